"""What one run has at hand: its providers, its gate, its client, and its database as everybody else sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from otp_service.events.models import Event
from otp_service.messages.models import Attempt, Message
from otp_service.messages.rules import AttemptState, MessageStatus, OnUnknown
from otp_service.routes.models import Dispatcher, Route
from otp_service.simulation.twilio_api import TwilioApi
from scheduler.drill.gates import Gate
from scheduler.drill.journal import BreakerChange, Copy, Stored, Tried
from scheduler.drill.load import Load

_LOOK_EVERY_S = 0.1

_MESSAGES = f"""
SELECT uuid::text, status, on_unknown, created_at, expires_at, finished_at, final_reason FROM {Message._meta.db_table}
"""  # noqa: S608 - the table's own name
_ATTEMPTS = f"""
SELECT m.uuid::text, a.number, a.route, a.state, a.claimed_at,
  a.submission = 'unknown' OR a.state = 'unknown' OR (a.submission = '' AND a.lease_until < now()),
  a.possible_duplicate, a.check_at, a.error_class
FROM {Attempt._meta.db_table} a JOIN {Message._meta.db_table} m ON m.id = a.message_id ORDER BY a.message_id, a.number
"""  # noqa: S608 - the tables' own names
_BREAKERS = f"""
SELECT data ->> 'route', type, at FROM {Event._meta.db_table} WHERE type LIKE 'route.breaker%' ORDER BY id
"""  # noqa: S608 - the table's own name
_POINT_ELSEWHERE = f"""
UPDATE {Route._meta.db_table} SET settings = jsonb_set(settings, '{{base_url}}', to_jsonb(%s::text)) WHERE name = %s
"""  # noqa: S608 - the table's own name
_DISPATCHERS = f"SELECT count(*) FROM {Dispatcher._meta.db_table}"  # noqa: S608 - the table's own name


@dataclass
class Stage:
    """One run. Routes go by the words that their names begin with; `mark` follows, so that runs share no Redis keys."""

    providers: Mapping[str, TwilioApi]  # by route: "sms:one"
    mark: str
    database: psycopg.AsyncConnection  # not through a gate; commits by itself
    gate: Gate | None
    client: Load  # who posts

    @property
    def door(self) -> Gate:
        """What PostgreSQL or Redis stands behind."""
        assert self.gate is not None
        return self.gate

    def route(self, name: str) -> str:
        """A route by the name that the journal has for it."""
        return name.removesuffix(self.mark)

    async def point_elsewhere(self, route: str, base_url: str) -> None:
        """Give a route another address, as a person might in the admin."""
        await self._execute(_POINT_ELSEWHERE, [base_url, route + self.mark])

    async def dispatchers(self) -> int:
        """How many have written a heartbeat."""
        [(count,)] = await self._execute(_DISPATCHERS)
        return int(count)

    async def messages(self) -> dict[str, Stored]:
        """All, by id."""
        rows = await self._execute(_MESSAGES)
        return {row[0]: Stored(row[0], MessageStatus(row[1]), OnUnknown(row[2]), *row[3:]) for row in rows}

    async def attempts(self) -> list[Tried]:
        """All."""
        rows = await self._execute(_ATTEMPTS)
        return [Tried(row[0], row[1], self.route(row[2]), AttemptState(row[3]), *row[4:]) for row in rows]

    async def breakers(self) -> list[BreakerChange]:
        """What became of them, in order."""
        rows = await self._execute(_BREAKERS)
        return [BreakerChange(self.route(route), kind.removeprefix("route."), at) for route, kind, at in rows]

    def copies(self) -> list[Copy]:
        """What providers took."""
        return [
            Copy(name, message.text_sha256, message.sender, message.at, left=message in provider.ledger)
            for name, provider in self.providers.items()
            for message in provider.messages.values()
        ]

    async def has_breaker(self, kind: str, *, within_s: float) -> bool:
        """Wait for such an event; False where none comes in time."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + within_s
        while not any(change.kind == kind for change in await self.breakers()):
            if loop.time() > give_up_at:
                return False
            await asyncio.sleep(_LOOK_EVERY_S)
        return True

    async def _execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = await self.database.execute(statement.encode(), list(values) if values else None)
        return await cursor.fetchall() if cursor.description else []
