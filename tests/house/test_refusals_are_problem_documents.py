"""Whatever is refused, at whatever address, is refused by a problem document."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from django.test import Client, RequestFactory
from rest_framework.renderers import StaticHTMLRenderer
from rest_framework.views import APIView

from otp_service.core.clock import utc_now
from tests.factories import ClientFactory, HostFactory
from tests.messages.client_api import ClientApi

pytestmark = pytest.mark.django_db


def problem(answer: Any, status: int, code: str) -> bool:
    """Whether it is one, of this status and code."""
    document = json.loads(answer.content)
    told = {"type": "about:blank", "status": status, "code": code}
    return (
        (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json")
        and document | told == document
        and bool(document["title"] and document["detail"])
    )


@pytest.fixture
def caller() -> Client:
    """Somebody without a cookie, whom no test client's leniency helps."""
    return Client(enforce_csrf_checks=True)


@pytest.fixture
def api() -> ClientApi:
    """Somebody with a key."""
    return ClientApi(ClientFactory.create(), now=utc_now())


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize(
    "address",
    [
        *("/", "/api", "/api/", "/api/v1/", "/api/v1/messages", "/api/v1/nothing/", "/api/v1/messages/1/"),
        *("/webhooks/", "/webhooks/relay/", "/webhooks/relay/1", "/webhooks/relay/x/", "/webhooks/other/1/"),
        *("/health", "/health/", "/health/live/", "/health/x"),
    ],
)
def test_unknown_address(caller: Client, method: str, address: str) -> None:
    assert problem(caller.generic(method, address), 404, "not_found")


@pytest.mark.parametrize(
    ("address", "allowed"),
    [("/webhooks/relay/1/", "POST"), ("/health/live", "GET, HEAD"), ("/health/ready", "GET, HEAD")],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_method_that_is_not_offered_is_told_which_ones_are(
    caller: Client, address: str, allowed: str, method: str
) -> None:
    HostFactory.create(number=1)
    answer = caller.generic(method, address)
    if method in allowed:
        assert answer.status_code != 405
        return
    assert answer["Allow"] == allowed
    if method == "HEAD":
        assert (answer.status_code, answer["Content-Type"]) == (405, "application/problem+json")
        return
    assert problem(answer, 405, "method_not_allowed")


def test_method_that_the_schema_does_not_offer(caller: Client) -> None:
    answer = caller.put("/api/schema/")
    assert answer["Allow"] == "GET, HEAD, OPTIONS"
    assert problem(answer, 405, "method_not_allowed")


def test_schema_in_a_form_that_there_is_not(caller: Client) -> None:
    answer = caller.get("/api/schema/", headers={"Accept": "image/png"})
    assert problem(answer, 406, "not_acceptable")
    assert json.loads(answer.content)["title"] == "No such representation"


@pytest.mark.parametrize(
    ("address", "step"),
    [
        pytest.param("/api/v1/messages", "end it with a slash, or check its spelling", id="no slash at the end"),
        pytest.param("/api/v1/nothing/", "check its spelling", id="a slash at the end"),
    ],
)
def test_where_nothing_stands_the_next_step_is_said(caller: Client, address: str, step: str) -> None:
    assert json.loads(caller.get(address).content)["detail"] == f"Nothing stands at this address: {step}."


def test_what_there_is_not_is_said_with_what_to_check(api: ClientApi) -> None:
    answer = api.get(f"/api/v1/messages/{uuid.uuid4()}/")
    assert problem(answer, 404, "not_found")
    assert json.loads(answer.content)["detail"] == "There is none of this id: check it."


@pytest.mark.parametrize(
    ("method", "address", "offered"),
    [("PUT", "/api/v1/messages/", "GET or POST"), ("DELETE", "/api/v1/messages/batch/", "POST")],
)
def test_a_method_that_is_not_offered_is_told_with_those_that_are(
    api: ClientApi, method: str, address: str, offered: str
) -> None:
    answer = api.call(method, address, "{}")
    assert problem(answer, 405, "method_not_allowed")
    assert json.loads(answer.content)["detail"].startswith(f"{method} is not offered here: use {offered}")


@pytest.mark.parametrize(
    ("address", "taken"),
    [
        pytest.param("/api/v1/messages/", "application/json", id="a message"),
        pytest.param("/api/v1/campaigns/", "application/x-ndjson or text/csv", id="a campaign"),
    ],
)
def test_a_body_of_another_kind_is_told_which_one_is_taken(api: ClientApi, address: str, taken: str) -> None:
    answer = api.call("POST", address, "to=1", content_type="text/plain", headers={"Idempotency-Key": "one"})
    assert problem(answer, 415, "unsupported_media_type")
    assert json.loads(answer.content)["detail"].endswith(f" Send Content-Type: {taken}.")


class Page(APIView):
    """A view of DRF's that shows HTML, to nobody."""

    renderer_classes = [StaticHTMLRenderer]


def test_view_that_shows_a_page_refuses_in_json_all_the_same(rf: RequestFactory) -> None:
    assert problem(Page.as_view()(rf.get("/")).render(), 403, "permission_denied")


def test_method_of_the_api_is_not_told_to_a_stranger(caller: Client) -> None:
    assert problem(caller.put("/api/v1/messages/"), 401, "not_authenticated")


def test_health_and_webhooks_are_still_served(caller: Client) -> None:
    HostFactory.create(number=1)
    assert caller.get("/health/live").status_code == 200
    assert caller.head("/health/ready").status_code == 200
    assert problem(caller.post("/webhooks/relay/1/", b"[]", content_type="application/json"), 401, "invalid_signature")
