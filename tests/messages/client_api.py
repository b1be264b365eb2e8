"""The client API without a socket in between."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from typing import Any, cast

from django.http import HttpResponse
from django.test import Client as Browser

from otp_service.messages import api_keys
from otp_service.messages.api_keys import Scope
from otp_service.messages.models import Client

MESSAGES = "/api/v1/messages/"
LEAST = {"to": "+34600000000", "text": "Your code is 123456"}


class ClientApi:
    """What one client does, with a key of its own."""

    def __init__(self, client: Client, *, now: dt.datetime, scopes: tuple[Scope, ...] = (Scope.MESSAGES,)) -> None:
        self.client = client
        _, self.key = api_keys.create(client, scopes, now)
        self._browser = Browser()

    def send(self, body: Any = None, *, key: str = "") -> HttpResponse:
        """Post a message, the least one that is accepted if no body is given; `key` is its Idempotency-Key."""
        headers = {"Idempotency-Key": key} if key else {}
        return self.call("POST", MESSAGES, json.dumps(LEAST if body is None else body), headers=headers)

    def get(self, path: str, **query: str) -> HttpResponse:
        return self.call("GET", path, query=query)

    def call(
        self,
        method: str,
        path: str,
        data: str | bytes = b"",
        *,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> HttpResponse:
        """Any request, with this client's key."""
        sent = {"Authorization": f"Bearer {self.key}", **(headers or {})}
        answer = self._browser.generic(method, path, data, content_type, headers=sent, query_params=dict(query or {}))
        return cast("HttpResponse", answer)


def fields(answer: HttpResponse) -> dict[str, str]:
    """The fields that a problem names, with the code of each."""
    assert answer["Content-Type"] == "application/problem+json"
    problem = json.loads(answer.content)
    assert problem["status"] == answer.status_code
    assert problem["detail"]
    return {row["field"]: row["code"] for row in problem.get("errors", [])}


def code(answer: HttpResponse) -> str:
    """The code of a problem."""
    assert answer["Content-Type"] == "application/problem+json"
    return str(json.loads(answer.content)["code"])


def body(answer: HttpResponse) -> dict[str, Any]:
    """The JSON object that was answered."""
    found: dict[str, Any] = json.loads(answer.content)
    return found
