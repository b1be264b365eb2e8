"""The HTTP side of the simulated hosts: our native relay protocol, as a host would speak it."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from aiohttp import web

from otp_service.core.clock import utc_now
from otp_service.core.outcomes import ReportedState
from otp_service.core.signing import ID_HEADER, SignatureError, SignatureFault, verify
from otp_service.simulation.behaviours import Answers, Plan, Refusal
from otp_service.simulation.delivery import Delivery
from otp_service.simulation.fleet import PlayedHost, PlayedUnit, Sending
from otp_service.simulation.ledger import LedgerEntry
from servers.relay.fields import Fields, RelayShapeError

TEXT_LIMIT = 64 * 1024  # characters
#: A host that tells before it answers gives up waiting for its own webhooks, or no call would end.
REPORTED_LIMIT = timedelta(seconds=5)

_NUMBER = re.compile(r"\+[1-9][0-9]{6,14}", re.ASCII)
_NUMBER_LIMIT = 64

TOMBSTONED = Refusal(410, "tombstoned", "This attempt was promised never to be sent.")
TOO_LATE = Refusal(410, "too_late", "The submission came after its submit_by.")
UNIT_UNKNOWN = Refusal(404, "unit_unknown", "There is no such unit on this host.")
NUMBER_INVALID = Refusal(422, "number_invalid", "The number is not of the form +<country><number>.")
ATTEMPT_UNKNOWN = Refusal(404, "attempt_unknown", "This attempt was never accepted here.")
#: Not a 404, which would be held against the unit: after a start, the hosts are still being read.
NOT_PLAYED = Refusal(503, "host_not_played", "No such host is played here, or not yet.")


@dataclass(frozen=True, slots=True)
class NativeEndpoints:
    """The routes of all hosts; `find` gives the host with a number, or None."""

    find: Callable[[int], PlayedHost | None]
    delivery: Delivery

    def routes(self) -> list[web.RouteDef]:
        """What to add to the application."""
        host = "/hosts/{host:[0-9]{1,9}}"
        send = host + "/v1/sends/{attempt_id:[0-9a-f-]{36}}"
        return [
            web.post(host + "/v1/sends", self.submit),
            web.get(send, self.query),
            web.delete(send, self.tombstone),
            web.get(host + "/v1/health", self.health),
        ]

    async def submit(self, request: web.Request) -> web.Response:
        """`POST /v1/sends`"""
        host = self._host(request)
        if host is None:
            return _refuse(NOT_PLAYED)
        body = await request.read()
        _verify(host, request, body)
        fields = _fields(body)
        attempt_id = fields.uuid("attempt_id")
        if request.headers[ID_HEADER] != f"send_{attempt_id}":
            raise SignatureError(SignatureFault.NO_MATCH)
        if (known := self._known(host, attempt_id)) is not None:
            return _refuse(TOMBSTONED) if known.state is ReportedState.NEVER else web.json_response(known.document())
        return await self._take(host, fields, attempt_id)

    async def query(self, request: web.Request) -> web.Response:
        """`GET /v1/sends/{attempt_id}`"""
        host = self._host(request)
        if host is None:
            return _refuse(NOT_PLAYED)
        attempt_id = await _verified_attempt(host, request, "query")
        if self.delivery.ledger.is_promised(host.number, attempt_id):
            return _never(attempt_id)
        sending = self._known(host, attempt_id)
        return _refuse(ATTEMPT_UNKNOWN) if sending is None else web.json_response(sending.document())

    async def tombstone(self, request: web.Request) -> web.Response:
        """`DELETE /v1/sends/{attempt_id}`"""
        host = self._host(request)
        if host is None:
            return _refuse(NOT_PLAYED)
        attempt_id = await _verified_attempt(host, request, "tombstone")
        sending = self._known(host, attempt_id)
        if sending is not None and not _cancel(sending):
            return web.json_response(sending.document(), status=409)
        self.delivery.ledger.promise(host.number, attempt_id)
        return _never(attempt_id)

    async def health(self, request: web.Request) -> web.Response:
        """`GET /v1/health`"""
        host = self._host(request)
        if host is None:
            return _refuse(NOT_PLAYED)
        _verify(host, request, b"")
        units = [{"unit": number, "signed_in": unit.behaviour.signed_in} for number, unit in host.units.items()]
        return web.json_response({"units": units, "queue": host.queue()})

    def _host(self, request: web.Request) -> PlayedHost | None:
        return self.find(int(request.match_info["host"]))

    def _known(self, host: PlayedHost, attempt_id: uuid.UUID) -> Sending | None:
        """What the host remembers of an attempt, or else what the ledger says: it outlives a restart."""
        if (sending := host.sendings.get(attempt_id)) is not None:
            return sending
        entry = self.delivery.ledger.sent(host.number, attempt_id)
        return None if entry is None else _as_sent(host, entry)

    async def _take(self, host: PlayedHost, fields: Fields, attempt_id: uuid.UUID) -> web.Response:
        sending = _sending(host, fields, attempt_id)
        unit = host.units.get(sending.unit)
        is_promised = self.delivery.ledger.is_promised(host.number, attempt_id)
        refusal = TOMBSTONED if is_promised else _refusal(unit, fields, sending)
        if unit is None or refusal is not None:
            return _refuse(refusal or UNIT_UNKNOWN)
        unit.taken += 1
        plan = unit.behaviour.plan(unit.taken, self.delivery.timings, unit.rng)
        sending.can_say = plan.can_say
        host.remember(sending)
        sending.task = asyncio.create_task(self.delivery.carry_out(plan, host, unit, sending))
        await _answer_time(plan, sending, sending.task)
        return _answer(plan, sending)


def _fields(body: bytes) -> Fields:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise RelayShapeError(0, "", "must be a JSON object")
    return Fields(0, document)


def _sending(host: PlayedHost, fields: Fields, attempt_id: uuid.UUID) -> Sending:
    unit = fields.integer("unit", low=0)
    if unit is None:
        raise fields.fault("unit", "must be given")
    if fields.text("service", limit=16, required=True) != "imessage":
        raise fields.fault("service", "must be imessage")
    return Sending(
        attempt_id=attempt_id,
        unit=unit,
        to=fields.text("to", limit=_NUMBER_LIMIT, required=True),
        text=fields.text("text", limit=TEXT_LIMIT, required=True),
        expires_at=fields.instant("expires_at"),
        guid=host.guid(attempt_id),
    )


def _refusal(unit: PlayedUnit | None, fields: Fields, sending: Sending) -> Refusal | None:
    submit_by = fields.instant("submit_by")
    if utc_now() >= submit_by:
        return TOO_LATE
    if unit is None:
        return UNIT_UNKNOWN
    if (refusal := unit.behaviour.refusal()) is not None:
        return refusal
    return None if _NUMBER.fullmatch(sending.to) else NUMBER_INVALID


def _as_sent(host: PlayedHost, entry: LedgerEntry) -> Sending:
    return Sending(
        attempt_id=entry.attempt_id,
        unit=entry.unit,
        to=entry.to,
        text="",
        expires_at=entry.at,
        guid=host.guid(entry.attempt_id),
        state=ReportedState.SENT,
        service=entry.service,
    )


async def _answer_time(plan: Plan, sending: Sending, task: asyncio.Task[None]) -> None:
    if plan.answers is Answers.WHEN_SENT:
        await sending.moved.wait()
    if plan.answers is Answers.WHEN_REPORTED:
        await asyncio.wait({task}, timeout=REPORTED_LIMIT.total_seconds())


def _answer(plan: Plan, sending: Sending) -> web.Response:
    if sending.state is ReportedState.NEVER:
        return _refuse(TOMBSTONED)
    if plan.status >= 500:
        return web.json_response({"code": "internal_error", "detail": "Simulated."}, status=plan.status)
    return web.json_response({"attempt_id": str(sending.attempt_id), "state": "queued"}, status=plan.status)


def _cancel(sending: Sending) -> bool:
    """Whether the attempt will never be sent: it was still queued, or had been cancelled before."""
    if sending.state is ReportedState.QUEUED and sending.can_say:
        sending.state = ReportedState.NEVER
        sending.give_up()
    return sending.state is ReportedState.NEVER


def _verify(host: PlayedHost, request: web.Request, body: bytes) -> None:
    verify([host.secret], request.headers, body, now=utc_now())


async def _verified_attempt(host: PlayedHost, request: web.Request, operation: str) -> uuid.UUID:
    """The attempt in the path, if the signature was made for this operation on it."""
    _verify(host, request, await request.read())
    try:
        attempt_id = uuid.UUID(request.match_info["attempt_id"])
    except ValueError:
        raise RelayShapeError(0, "attempt_id", "must be a UUID") from None
    if request.headers[ID_HEADER] != f"{operation}_{attempt_id}":
        raise SignatureError(SignatureFault.NO_MATCH)
    return attempt_id


def _never(attempt_id: uuid.UUID) -> web.Response:
    return web.json_response({"attempt_id": str(attempt_id), "state": ReportedState.NEVER.value})


def _refuse(refusal: Refusal) -> web.Response:
    headers = {} if refusal.retry_after_s is None else {"Retry-After": str(refusal.retry_after_s)}
    return web.json_response({"code": refusal.code, "detail": refusal.detail}, status=refusal.status, headers=headers)
