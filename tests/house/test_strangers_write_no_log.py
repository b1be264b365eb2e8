"""What anybody may send as often as they like is answered, in JSON, and writes no line of a log."""

from __future__ import annotations

import json
import logging

import pytest
from django.test import Client

from otp_service.core.logs import logging_config

#: Every address outside the admin and the docs page, which are for browsers.
ADDRESSES = [
    *("/", "/health/live", "/health/ready", "/api/v1/messages/", "/api/v1/messages", "/api/schema/", "/nothing/"),
    *("/webhooks/relay/1/", "/webhooks/relay/x/", "/static/nothing.css", "/api/v1/messages/1/cancel/"),
    "/api/v1/messages/6c1f9a52-6f6a-4c53-8d6e-1f2f3a4b5c6d/cancel/",
]


@pytest.fixture
def written(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> pytest.CaptureFixture[str]:
    """Standard error, where the configured log goes to."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logging_config("INFO", "text")
    return capfd


@pytest.mark.parametrize("address", ["/health/live", "/api/v1/messages/", "/webhooks/relay/1/", "/nothing"])
def test_a_host_that_is_not_ours_is_refused_in_silence(written: pytest.CaptureFixture[str], address: str) -> None:
    answer = Client(enforce_csrf_checks=True).get(address, headers={"Host": "evil.com"})
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
    assert json.loads(answer.content)["code"] == "bad_request"
    assert written.readouterr().err == ""


def test_what_goes_wrong_is_still_written(written: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("django.request").error("broken")
    logging.getLogger("django.security.csrf").warning("an origin that is not trusted")
    told = written.readouterr().err
    assert "broken" in told
    assert "an origin that is not trusted" in told


@pytest.mark.django_db
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "NONSENSE"])
@pytest.mark.parametrize("address", ADDRESSES)
def test_no_address_for_programs_answers_with_a_page(address: str, method: str) -> None:
    for accept in ("*/*", "text/html"):
        answer = Client(enforce_csrf_checks=True, raise_request_exception=False).generic(
            method, address, b"x=1", "application/x-www-form-urlencoded", headers={"Accept": accept}
        )
        assert "html" not in answer.headers.get("Content-Type", "")
        assert answer.status_code < 500


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_the_docs_page_refuses_other_methods_in_json(method: str) -> None:
    answer = Client(enforce_csrf_checks=True).generic(method, "/api/docs/")
    assert (answer.status_code, answer["Content-Type"]) == (405, "application/problem+json")
    assert json.loads(answer.content)["code"] == "method_not_allowed"


@pytest.mark.parametrize("accept", ["text/html", "application/json", "image/png"])
def test_the_docs_page_is_shown_whatever_is_asked_for(accept: str) -> None:
    answer = Client().get("/api/docs/", headers={"Accept": accept})
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/html; charset=utf-8")
