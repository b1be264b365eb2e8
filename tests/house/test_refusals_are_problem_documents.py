"""Whatever is refused, at whatever address, is refused by a problem document."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client, RequestFactory
from rest_framework.renderers import StaticHTMLRenderer
from rest_framework.views import APIView

from tests.factories import HostFactory

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
