"""The OpenAPI document tells all of the manage API: every address, its key, its problems, its constraints."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.conf import settings
from django.test import Client as Browser

from servers import urls

READ, PAGED, WRITTEN = {401, 404, 503}, {400, 401, 503}, {400, 401, 413, 415, 503}
PROBLEMS = {
    "list_groups": PAGED,
    "make_group": WRITTEN | {409},
    "get_group": READ,
    "change_group": WRITTEN | {404, 409},
    "delete_group": {400, 401, 404, 409, 503},
    "set_assignments": WRITTEN,
    "add_assignments": WRITTEN,
    "remove_assignments": WRITTEN,
    "list_servers_of_group": PAGED | {404},
    "set_servers_of_group": WRITTEN | {404},
    "add_servers_to_group": WRITTEN | {404},
    "remove_servers_from_group": WRITTEN | {404},
    "list_servers": PAGED,
    "get_server": READ,
    "list_history": PAGED | {404},
    "act_on_servers": WRITTEN,
    "list_hosts": PAGED,
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Browser().get("/api/schema/").content)
    return found


@pytest.fixture(scope="module")
def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    under = {
        path: methods for path, methods in document["paths"].items() if path[1:].startswith(settings.MANAGE_API_PREFIX)
    }
    assert len(under) == len(urls.urlpatterns)
    return {operation["operationId"]: operation for methods in under.values() for operation in methods.values()}


def schema(document: dict[str, Any], name: str) -> Any:
    return document["components"]["schemas"][name]


def test_every_operation_is_there(operations: dict[str, Any]) -> None:
    assert operations.keys() == PROBLEMS.keys()
    assert all(operation["summary"] and operation["description"] for operation in operations.values())
    assert {tuple(operation["tags"]) for operation in operations.values()} == {("groups",), ("servers",)}


@pytest.mark.parametrize("operation", PROBLEMS)
def test_every_problem_is_documented(operations: dict[str, Any], operation: str) -> None:
    responses = operations[operation]["responses"]
    problems = {
        int(status)
        for status, response in responses.items()
        if "application/problem+json" in response.get("content", {})
    }
    assert problems == PROBLEMS[operation]


@pytest.mark.parametrize("operation", PROBLEMS)
def test_every_operation_wants_the_manage_key(
    document: dict[str, Any], operations: dict[str, Any], operation: str
) -> None:
    assert operations[operation]["security"] == [{"manageKey": []}]
    scheme = document["components"]["securitySchemes"]["manageKey"]
    assert (scheme["type"], scheme["in"], scheme["name"]) == ("apiKey", "header", "Authorization")


@pytest.mark.parametrize(
    "name",
    [
        *("NewGroupRequest", "PatchedGroupParametersRequest", "AssignmentsRequest", "AssignmentRequest"),
        *("AllServersRequest", "SomeServersRequest", "ActionRequest"),
    ],
)
def test_unknown_fields_are_refused_and_that_is_told(document: dict[str, Any], name: str) -> None:
    assert schema(document, name)["additionalProperties"] is False


@pytest.mark.parametrize(
    ("name", "field", "least"),
    [
        ("AssignmentsRequest", "items", 1),
        ("SomeServersRequest", "servers", 1),
        ("ActionRequest", "servers", 1),
        ("AllServersRequest", "servers", 0),
    ],
)
def test_length_of_a_list_is_told(document: dict[str, Any], name: str, field: str, least: int) -> None:
    told = schema(document, name)["properties"][field]
    assert (told.get("minItems", 0), told["maxItems"]) == (least, 500)


def test_server_is_named_in_one_of_two_ways(document: dict[str, Any]) -> None:
    by_uuid, by_name = schema(document, "SomeServersRequest")["properties"]["servers"]["items"]["oneOf"]
    assert by_uuid == {"type": "string", "format": "uuid"}
    assert (by_name["required"], by_name["additionalProperties"]) == (["region", "unit"], False)
    assert schema(document, "AssignmentRequest")["oneOf"] == [{"required": ["server"]}, {"required": ["uuid"]}]


def test_only_name_and_priority_of_a_group_are_needed(document: dict[str, Any]) -> None:
    assert schema(document, "NewGroupRequest")["required"] == ["name", "priority"]
    assert "required" not in schema(document, "PatchedGroupParametersRequest")


@pytest.mark.parametrize("name", ["Group", "Server", "ServerDetail", "Host", "History", "Changed"])
def test_answers_are_told_in_full(document: dict[str, Any], name: str) -> None:
    told = schema(document, name)
    assert set(told["required"]) == told["properties"].keys()


def test_nothing_secret_is_among_the_answers(document: dict[str, Any]) -> None:
    for name in ("Host", "Server", "ServerDetail"):
        assert not [field for field in schema(document, name)["properties"] if "secret" in field]
