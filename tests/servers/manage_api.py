"""The manage API without a socket in between."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Mapping
from typing import Any, cast

import pytest
from django.conf import settings
from django.http import HttpResponse
from django.test import Client as Browser

from otp_service.events.models import Event
from servers.models import Server, ServerStatusHistory

KEY = "manage-key-of-the-tests-0001"
PREVIOUS = "manage-key-of-the-tests-0000"
EDGES = ("servers.api.servers", "servers.api.groups", "servers.api.memberships")


class ManageApi:
    """What a caller of the manage API does, at a moment that stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, now: dt.datetime) -> None:
        monkeypatch.setattr(settings, "MANAGE_SERVERS_API_AUTH_KEY", KEY)
        monkeypatch.setattr(settings, "MANAGE_SERVERS_API_AUTH_KEY_PREVIOUS", PREVIOUS)
        self._monkeypatch = monkeypatch
        self.key = KEY
        self.at(now)

    def at(self, now: dt.datetime) -> None:
        """It is `now` for the API."""
        for edge in EDGES:
            self._monkeypatch.setattr(f"{edge}.utc_now", lambda: now)

    def get(self, path: str, **query: str) -> HttpResponse:
        return self.call("GET", path, query=query)

    def post(self, path: str, body: Any) -> HttpResponse:
        return self.call("POST", path, json.dumps(body))

    def patch(self, path: str, body: Any) -> HttpResponse:
        return self.call("PATCH", path, json.dumps(body))

    def delete(self, path: str, **query: str) -> HttpResponse:
        return self.call("DELETE", path, query=query)

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
        """Any request below the prefix, with the key."""
        answer = Browser(raise_request_exception=False).generic(
            method,
            f"/{settings.MANAGE_API_PREFIX}{path}",
            data,
            content_type,
            headers={"Authorization": self.key} if headers is None else dict(headers),
            query_params=dict(query or {}),
        )
        return cast("HttpResponse", answer)


def body(answer: HttpResponse, status: int = 200) -> dict[str, Any]:
    """The JSON object that was answered with this status."""
    assert answer.status_code == status, (answer.status_code, answer.content)
    found: dict[str, Any] = json.loads(answer.content)
    return found


def problem(answer: HttpResponse, status: int = 400) -> dict[str, Any]:
    """The problem that was answered with this status."""
    assert answer["Content-Type"] == "application/problem+json", answer.content
    found = body(answer, status)
    assert found["status"] == status
    assert found["detail"]
    return found


def fields(answer: HttpResponse) -> dict[str, str]:
    """The fields that a 400 names, with the code of each."""
    return {row["field"]: row["code"] for row in problem(answer)["errors"]}


def faults(answer: HttpResponse) -> list[tuple[int, str, str]]:
    """The items that a 400 names: index, field, code."""
    found = problem(answer)
    assert found["code"] == "invalid_items"
    assert all(row["detail"] for row in found["errors"])
    return [(row["index"], row["field"], row["code"]) for row in found["errors"]]


def by_name(server: Server) -> dict[str, Any]:
    """A server as people call it."""
    return {"region": server.region, "unit": server.unit}


def written() -> tuple[int, int]:
    """How many rows of history there are, and how many events."""
    return ServerStatusHistory.objects.count(), Event.objects.count()


NOBODY = str(uuid.UUID(int=0))
