"""The OpenAPI document is complete, and the page that shows it asks no other host for anything."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.core.management import call_command
from django.test import Client as Browser

PROBLEMS = {
    "post_message": {400, 401, 403, 409, 413, 415, 422, 503},
    "list_messages": {400, 401, 403, 503},
    "get_message": {401, 403, 404, 503},
    "explain_message": {401, 403, 404, 503},
    "cancel_message": {401, 403, 404, 409, 503},
    "get_preferences": {400, 401, 403, 503},
    "put_preferences": {400, 401, 403, 413, 415, 503},
}


@pytest.fixture
def document() -> dict[str, Any]:
    answer = Browser().get("/api/schema/", headers={"Accept": "application/vnd.oai.openapi+json"})
    assert answer.status_code == 200
    found: dict[str, Any] = json.loads(answer.content)
    return found


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    methods = (method for path in document["paths"].values() for method in path.values())
    return {operation["operationId"]: operation for operation in methods}


def test_is_valid_and_made_without_a_warning(tmp_path: Path) -> None:
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(tmp_path / "openapi.yaml"))


@pytest.mark.parametrize("operation", PROBLEMS)
def test_every_problem_is_documented(document: dict[str, Any], operation: str) -> None:
    responses = operations(document)[operation]["responses"]
    problems = {
        int(status) for status, response in responses.items() if "application/problem+json" in response["content"]
    }
    assert problems == PROBLEMS[operation]


@pytest.mark.parametrize("operation", PROBLEMS)
def test_every_operation_wants_a_key(document: dict[str, Any], operation: str) -> None:
    assert operations(document)[operation]["security"] == [{"clientKey": []}]
    assert document["components"]["securitySchemes"]["clientKey"]["scheme"] == "bearer"


def test_idempotency_is_documented(document: dict[str, Any]) -> None:
    post = operations(document)["post_message"]
    assert ("header", "Idempotency-Key") in {(row["in"], row["name"]) for row in post["parameters"]}
    assert {"Idempotent-Replayed", "Location"} <= post["responses"]["202"]["headers"].keys()
    assert post["requestBody"]["content"]["application/json"]["examples"]


def test_only_recipient_and_text_are_required(document: dict[str, Any]) -> None:
    assert document["components"]["schemas"]["NewMessageRequest"]["required"] == ["text", "to"]


def test_the_cascade_is_documented(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    asked = schemas["NewMessageRequest"]["properties"]
    assert {"sender_name", "on_unknown", "supersede_key", "addresses", "max_routes"} <= asked.keys()
    assert schemas["AddressesRequest"]["properties"].keys() == {"push"}
    assert {"outcome", "on_unknown", "sender_name", "supersede_key", "max_routes"} <= schemas["Message"][
        "properties"
    ].keys()
    attempt = schemas["Attempt"]["properties"]
    assert {"possible_duplicate", "parts", "cost", "currency", "error_class"} <= attempt.keys()
    assert attempt["cost"]["type"] == "string"


@pytest.mark.parametrize("secret", ["text", "addresses"])
def test_no_answer_has_a_text_or_an_address(document: dict[str, Any], secret: str) -> None:
    for name in ("Accepted", "Message", "MessageDetail"):
        assert secret not in document["components"]["schemas"][name]["properties"]


def test_page_names_no_other_host() -> None:
    page = Browser().get("/api/docs/").content.decode()
    assert not re.findall(r"""(?:https?:)?//[a-z0-9]""", page)
    assets = re.findall(r"""(?:src|href)="([^"]+)\"""", page)
    assert len(assets) >= 3
    for asset in assets:
        assert finders.find(asset.removeprefix("/static/")), asset
