"""Our own protocol for relay hosts. Every call is signed; the id in the signature names the operation."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

import aiohttp

from otp_service.core.clock import utc_now
from otp_service.core.http import DEFAULT_TIMEOUTS, Answer, Call, NoAnswer, Timeouts, exchange, retry_after
from otp_service.core.outcomes import (
    RAW_REPLY_LIMIT,
    ErrorClass,
    ReportedState,
    StatusReport,
    Submission,
    SubmitResult,
    Submittable,
)
from otp_service.core.signing import SecretError, signature_headers
from servers.relay.base import HostAddress, HostHealth, Known
from servers.relay.error_codes import RATE_LIMITED, SIGNED_OUT
from servers.relay.fields import GUID_LIMIT, INT_MAX, INT_MIN, is_storable

_SERVICE_LIMIT = 32


@dataclass(frozen=True, slots=True)
class _Refusal:
    """What a status means when it answers a submission. `needs_code`: only with the protocol's own body."""

    error_class: ErrorClass
    error_code: int | None = None
    submission: Submission = Submission.REFUSED
    needs_code: bool = False


#: Each status says no before acceptance. A 404, 409 or 422 that does not carry the protocol's `code` was
#: written by something else at that address (a proxy, a wrong base_url) and condemns no unit and no number.
_REFUSALS: Mapping[int, _Refusal] = {
    400: _Refusal(ErrorClass.ROUTE_REJECTED),  # our own bug: nothing against unit or number
    401: _Refusal(ErrorClass.ROUTE_REJECTED),
    403: _Refusal(ErrorClass.ROUTE_REJECTED),
    404: _Refusal(ErrorClass.SENDER_FAULT, SIGNED_OUT, needs_code=True),  # no such unit on the host
    409: _Refusal(ErrorClass.SENDER_FAULT, SIGNED_OUT, needs_code=True),
    410: _Refusal(ErrorClass.EXPIRED),  # after submit_by, or after a tombstone
    422: _Refusal(ErrorClass.RECIPIENT_INVALID, needs_code=True),
    429: _Refusal(ErrorClass.THROTTLED, RATE_LIMITED),
    503: _Refusal(ErrorClass.THROTTLED),
}
_OTHER_REFUSAL = _Refusal(ErrorClass.ROUTE_REJECTED)
#: The request was read, and what became of it was not said: any 5xx, a 2xx that makes no sense, and so on.
_NO_CLEAR_ANSWER = _Refusal(ErrorClass.TIMEOUT_AFTER_SUBMIT, submission=Submission.UNKNOWN)

#: A redirect that says "ask again over there" did nothing here; a 303 may answer what was done.
_NOT_DONE_REDIRECTS = frozenset({301, 302, 307, 308})
_REQUEST_TIMEOUT = 408  # whether the host read enough of the request is not known

#: What a tombstone's answer may say: 200 promises, 409 came too late.
_TOMBSTONE_STATES: Mapping[int, frozenset[ReportedState]] = {
    200: frozenset({ReportedState.NEVER}),
    409: frozenset(ReportedState) - {ReportedState.NEVER, ReportedState.NOT_FOUND},
}
_QUERY_STATES: Mapping[int, frozenset[ReportedState]] = {200: frozenset(ReportedState) - {ReportedState.NOT_FOUND}}

#: Nobody answered, or not in the protocol's words: proves nothing, and is held against nobody.
_UNANSWERED = StatusReport(ReportedState.UNKNOWN, answered=False)


@dataclass(frozen=True, slots=True)
class NativeRelay:
    """The adapter of the native protocol."""

    timeouts: Timeouts = DEFAULT_TIMEOUTS
    clock: Callable[[], datetime] = utc_now

    async def submit(self, session: aiohttp.ClientSession, host: HostAddress, send: Submittable) -> SubmitResult:
        """Hand one attempt over: `POST /v1/sends`. Nothing is sent when `submit_by` has passed.

        EXPIRED speaks of the submission's own window: whether the message has time for another attempt
        is for the cascade to say.
        """
        # Read here, last before the write: a process that was frozen must not send a stale code.
        now = self.clock()
        if now >= send.submit_by:
            return SubmitResult(Submission.NOT_CONNECTED, error_class=ErrorClass.EXPIRED)
        body = _submission_body(send)
        call = _signed(host, "send", str(send.attempt_uuid), now, method="POST", path="/v1/sends", body=body)
        if call is None:
            return SubmitResult(Submission.NOT_CONNECTED, error_class=ErrorClass.ROUTE_REJECTED, raw="bad secret")
        answer = await exchange(session, call, self.timeouts.until(send.submit_by - now))
        if isinstance(answer, NoAnswer):
            return _unanswered_submission(answer)
        return _submit_result(answer, send.attempt_uuid, now)

    async def query(
        self, session: aiohttp.ClientSession, host: HostAddress, attempt_uuid: uuid.UUID, known: Known | None = None
    ) -> StatusReport:
        """Ask where an attempt stands: `GET /v1/sends/{attempt_id}`."""
        answer = await self._ask(session, host, "query", "GET", attempt_uuid)
        return _status_report(answer, _QUERY_STATES)

    async def tombstone(
        self, session: aiohttp.ClientSession, host: HostAddress, attempt_uuid: uuid.UUID
    ) -> StatusReport:
        """Make sure that an attempt is never sent: `DELETE /v1/sends/{attempt_id}`."""
        answer = await self._ask(session, host, "tombstone", "DELETE", attempt_uuid)
        return _status_report(answer, _TOMBSTONE_STATES)

    async def check(self, session: aiohttp.ClientSession, host: HostAddress) -> HostHealth | None:
        """The host's health: `GET /v1/health`."""
        call = _signed(host, "health", str(host.number), self.clock(), method="GET", path="/v1/health")
        answer = None if call is None else await exchange(session, call, self.timeouts)
        if not isinstance(answer, Answer) or answer.status != 200:
            return None
        return _health(answer.document() or {})

    async def _ask(
        self, session: aiohttp.ClientSession, host: HostAddress, operation: str, method: str, attempt_uuid: uuid.UUID
    ) -> Answer | NoAnswer | None:
        path = f"/v1/sends/{attempt_uuid}"
        call = _signed(host, operation, str(attempt_uuid), self.clock(), method=method, path=path)
        return None if call is None else await exchange(session, call, self.timeouts)


def _submission_body(send: Submittable) -> bytes:
    document = {
        "attempt_id": str(send.attempt_uuid),
        "unit": send.unit,
        "to": send.to,
        "text": send.text,
        "service": "imessage",
        "expires_at": send.expires_at.isoformat(),
        "submit_by": send.submit_by.isoformat(),
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _signed(
    host: HostAddress, operation: str, subject: str, now: datetime, *, method: str, path: str, body: bytes = b""
) -> Call | None:
    """The signed call, None when our secret for the host is unusable.

    The signature covers neither method nor path, so the id carries the operation: without it a
    recorded query could be played back as a tombstone.
    """
    try:
        headers = signature_headers(host.secrets, message_id=f"{operation}_{subject}", now=now, body=body)
    except SecretError:
        return None
    content_type = {"Content-Type": "application/json"} if body else {}
    return Call(method, host.base_url.rstrip("/") + path, body, {**headers, **content_type})


def _unanswered_submission(answer: NoAnswer) -> SubmitResult:
    if answer.left:
        return SubmitResult(Submission.UNKNOWN, error_class=ErrorClass.TIMEOUT_AFTER_SUBMIT, raw=answer.cause)
    return SubmitResult(Submission.NOT_CONNECTED, error_class=ErrorClass.CONNECTION_REFUSED, raw=answer.cause)


def _submit_result(answer: Answer, attempt_uuid: uuid.UUID, now: datetime) -> SubmitResult:
    document = answer.document()
    if _is_acceptance(answer.status, document, attempt_uuid):
        assert document is not None
        return SubmitResult(Submission.ACCEPTED, provider_message_id=_guid(document), raw=_raw(answer))
    refusal = _refusal(answer.status, document)
    return SubmitResult(
        refusal.submission,
        error_class=refusal.error_class,
        error_code=refusal.error_code,
        retry_after=retry_after(answer.retry_after, now=now) if refusal.error_class is ErrorClass.THROTTLED else None,
        raw=_raw(answer),
    )


def _is_acceptance(status: int, document: Mapping[str, object] | None, attempt_uuid: uuid.UUID) -> bool:
    """202 takes this attempt; 200 says where it stands, and so that it was taken before."""
    if document is None:
        return False
    if status == 202:
        return str(document.get("attempt_id")).lower() == str(attempt_uuid)
    return status == 200 and _state(document) in _QUERY_STATES[200] - {ReportedState.NEVER}


def _refusal(status: int, document: Mapping[str, object] | None) -> _Refusal:
    if status in _NOT_DONE_REDIRECTS:
        return _OTHER_REFUSAL
    refusal = _REFUSALS.get(status)
    if refusal is None:
        is_refused = 400 <= status < 500 and status != _REQUEST_TIMEOUT
        return _OTHER_REFUSAL if is_refused else _NO_CLEAR_ANSWER
    if refusal.needs_code and not _speaks_protocol(document):
        return _OTHER_REFUSAL
    return refusal


def _speaks_protocol(document: Mapping[str, object] | None) -> bool:
    """Whether a refusal has the protocol's shape, `{"code", "detail"}`."""
    return document is not None and isinstance(document.get("code"), str)


def _status_report(answer: Answer | NoAnswer | None, allowed: Mapping[int, frozenset[ReportedState]]) -> StatusReport:
    if not isinstance(answer, Answer):
        return _UNANSWERED
    document = answer.document()
    if answer.status == 404 and _speaks_protocol(document):
        return StatusReport(ReportedState.NOT_FOUND)
    state = None if document is None else _state(document)
    if document is None or state is None or state not in allowed.get(answer.status, ()):
        return _UNANSWERED
    return StatusReport(
        state,
        provider_message_id=_guid(document),
        service=_text(document, "service", _SERVICE_LIMIT).lower(),
        error_code=_integer(document, "error_code"),
    )


def _health(document: Mapping[str, object]) -> HostHealth | None:
    listed, queue = document.get("units"), _integer(document, "queue")
    if not isinstance(listed, list) or queue is None:
        return None
    units = {unit: signed_in for unit, signed_in in map(_unit, listed) if unit is not None}
    return HostHealth(units=units, queue=queue)


def _unit(value: object) -> tuple[int | None, bool]:
    """A unit and whether it is signed in; None for what cannot be read."""
    if not isinstance(value, dict):
        return None, False
    return _integer(value, "unit"), value.get("signed_in") is True


def _state(document: Mapping[str, object]) -> ReportedState | None:
    try:
        return ReportedState(str(document.get("state")))
    except ValueError:
        return None


def _guid(document: Mapping[str, object]) -> str:
    return _text(document, "guid", GUID_LIMIT)


def _text(document: Mapping[str, object], name: str, limit: int) -> str:
    """A text that the database can hold; anything else counts as absent."""
    value = document.get(name)
    return value if isinstance(value, str) and len(value) <= limit and is_storable(value) else ""


def _integer(document: Mapping[str, object], name: str) -> int | None:
    value = document.get(name)
    is_integer = isinstance(value, int) and not isinstance(value, bool) and INT_MIN <= value <= INT_MAX
    return value if isinstance(value, int) and is_integer else None


def _raw(answer: Answer) -> str:
    """The reply for people, with the status in front: many an error has no body."""
    reply = f"{answer.status} ".encode() + answer.body
    return reply[:RAW_REPLY_LIMIT].decode("utf-8", errors="ignore").replace("\x00", "")
