"""What a relay host does when it posts to us: events, and calls that are really signed."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.test import Client

from otp_service.core.signing import signature_headers
from otp_service.routes.claim import Claimed
from servers.models import Host, Server
from tests.factories import NOON, HostFactory
from tests.routes.steps import attempt_of, in_flight

NUMBER = 4_000_007  # far from the numbers of hosts that tests make besides


def event(kind: str, *, unit: int | None = 228, event_id: str = "", **data: Any) -> dict[str, Any]:
    """One event; what an attempt or a message is named by goes into `data`."""
    return {
        "id": event_id or str(uuid.uuid4()),
        "type": kind,
        "at": "2026-09-01T11:59:59.5+00:00",
        **({} if unit is None else {"unit": unit}),
        "data": data,
    }


@dataclass(frozen=True)
class Answered:
    """What came back."""

    status: int
    body: dict[str, Any]

    @property
    def counts(self) -> tuple[int, int]:
        """How many were accepted, how many were known."""
        assert self.status == 200, self
        return self.body["accepted"], self.body["duplicates"]


def about(one: Claimed) -> dict[str, Any]:
    """How an event names an attempt by our id."""
    return {"attempt_id": str(one.send.attempt_uuid)}


@dataclass(frozen=True)
class RelayPoster:
    """A host, and the client that it posts through."""

    host: Host
    client: Client

    @classmethod
    def of_new_host(cls, client: Client) -> RelayPoster:
        return cls(HostFactory.create(number=NUMBER), client)

    def posts(
        self,
        content: Mapping[str, Any] | Sequence[Mapping[str, Any]] | bytes,
        *,
        secrets: Sequence[str] = (),
        at: dt.datetime = NOON,
        number: int | None = None,
    ) -> Answered:
        """A signed call with these events, or these bytes."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        signed = signature_headers(secrets or [self.host.secret], message_id=str(uuid.uuid4()), now=at, body=body)
        return self.posts_unsigned(body, signed, number=number)

    def posts_unsigned(
        self, body: bytes, headers: Mapping[str, str] | None = None, *, number: int | None = None
    ) -> Answered:
        response = self.client.post(
            f"/webhooks/relay/{self.host.number if number is None else number}/",
            body,
            content_type="application/json",
            headers=dict(headers or {}),
        )
        return Answered(response.status_code, response.json())

    def in_flight(self, n: int = 1, **fields: Any) -> list[Claimed]:
        """Messages that have just been claimed for servers of this host."""
        ones = in_flight(n, **fields)
        Server.objects.filter(pk__in=[attempt_of(one).server_id for one in ones]).update(host=self.host)
        return ones
