"""The REST API of BlueBubbles servers: one Mac, one iMessage account, and one password in the query of every call.

The account is the only unit of its host, and that unit has the host's number.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import quote

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
from servers.relay.base import HostAddress, HostHealth, Known
from servers.relay.bluebubbles_events import MILLISECONDS_LIMIT, chat_address, service_of
from servers.relay.error_codes import SIGNED_OUT, error_class
from servers.relay.fields import GUID_LIMIT, INT_MAX, INT_MIN, is_storable

#: The clock of a Mac is that wrong at most.
CLOCK_SKEW = timedelta(minutes=1)
#: The server gives up a send after 120 s, and the Mac's database may be behind.
SEND_WINDOW = timedelta(minutes=5)
PAGE = 20  # messages of one query: about 2 KB each, and an answer is read up to RESPONSE_LIMIT

_ENVELOPE_STATUSES = frozenset({200, 500})  # those that may carry a message
_NOT_DONE_REDIRECTS = frozenset({301, 302, 307, 308})
_REQUEST_TIMEOUT = 408  # whether enough of the request was read is not known
_WRONG_PASSWORD = 401
#: A 400 with these words says that the same `tempGuid` is on its way: the text may have left.
_ON_ITS_WAY = b"already queued"

#: Nobody answered, or not in the protocol's words: proves nothing, and is held against nobody.
_UNANSWERED = StatusReport(ReportedState.UNKNOWN, answered=False)


@dataclass(frozen=True, slots=True)
class BlueBubbles:
    """The adapter of BlueBubbles. `HostAddress.secrets` are passwords: the old one is tried after a 401."""

    timeouts: Timeouts = DEFAULT_TIMEOUTS
    clock: Callable[[], datetime] = utc_now

    async def submit(self, session: aiohttp.ClientSession, host: HostAddress, send: Submittable) -> SubmitResult:
        """Hand one attempt over: `POST /message/text`, with the attempt as `tempGuid`.

        The host is idempotent only while it is sending: the same attempt handed over again later leaves
        again. Its answer comes when the Mac has sent, or after 120 s: what takes longer than the call is
        UNKNOWN, and so is every error without a message row that carries a code. A unit that is not the
        host's one account is refused here: the text would leave from another sender.
        """
        if send.unit != host.number:
            return SubmitResult(Submission.REFUSED, error_class=ErrorClass.SENDER_FAULT, error_code=SIGNED_OUT)
        body = _submission_body(send)
        result = SubmitResult(Submission.NOT_CONNECTED, error_class=ErrorClass.ROUTE_REJECTED, raw="no password")
        for password in host.secrets:
            now = self.clock()
            if now >= send.submit_by:
                return SubmitResult(Submission.NOT_CONNECTED, error_class=ErrorClass.EXPIRED)
            call = _call(host, password, "POST", "/message/text", body)
            answer = await exchange(session, call, self.timeouts.until(send.submit_by - now))
            if isinstance(answer, NoAnswer):
                return _unanswered_submission(answer)
            result = _submit_result(answer, send.attempt_uuid, now)
            if answer.status != _WRONG_PASSWORD:
                break
        return result

    async def query(
        self, session: aiohttp.ClientSession, host: HostAddress, attempt_uuid: uuid.UUID, known: Known | None = None
    ) -> StatusReport:
        """Ask where an attempt stands: by its guid, or else by what it must look like.

        The Mac forgets the `tempGuid` as soon as it has sent, so without a guid the message is looked for:
        from us, in the chat with the recipient, with one of its texts, between CLOCK_SKEW before the
        submission and SEND_WINDOW after it, and not the message of another attempt. Exactly one such is the
        attempt's. Several prove nothing (UNKNOWN), none is NOT_FOUND: the Mac may still send it. Where
        nothing is known, there is nothing to ask by, and nobody is asked.
        """
        if known is None:
            return _UNANSWERED
        if known.guid:
            path = f"/message/{quote(known.guid, safe='')}?with=chats"
            return _report_by_guid(await self._ask(session, host, "GET", path), known.guid)
        answer = await self._ask(session, host, "POST", "/message/query", _search_body(known))
        return _report_by_search(answer, attempt_uuid, known)

    async def tombstone(
        self, session: aiohttp.ClientSession, host: HostAddress, attempt_uuid: uuid.UUID
    ) -> StatusReport:
        """UNKNOWN, always: the protocol cannot take back a message, or promise that it will not be sent.

        The host is asked for a sign of life (`GET /ping`), so that `answered` says whether it is there.
        """
        answer = await self._ask(session, host, "GET", "/ping")
        return StatusReport(ReportedState.UNKNOWN) if _data(answer, 200) == "pong" else _UNANSWERED

    async def check(self, session: aiohttp.ClientSession, host: HostAddress) -> HostHealth | None:
        """The host's health: `GET /server/info`. It does not tell of a queue: 0."""
        info = _data(await self._ask(session, host, "GET", "/server/info"), 200)
        if not isinstance(info, dict) or "detected_imessage" not in info:
            return None
        return HostHealth(units={host.number: bool(info["detected_imessage"])}, queue=0)

    async def _ask(
        self, session: aiohttp.ClientSession, host: HostAddress, method: str, path: str, body: bytes = b""
    ) -> Answer | NoAnswer | None:
        answer: Answer | NoAnswer | None = None
        for password in host.secrets:
            answer = await exchange(session, _call(host, password, method, path, body), self.timeouts)
            if not isinstance(answer, Answer) or answer.status != _WRONG_PASSWORD:
                break
        return answer


def _call(host: HostAddress, password: str, method: str, path: str, body: bytes = b"") -> Call:
    separator = "&" if "?" in path else "?"
    url = f"{host.base_url.rstrip('/')}/api/v1{path}{separator}password={quote(password, safe='')}"
    return Call(method, url, body, {"Content-Type": "application/json"} if body else {})


def _submission_body(send: Submittable) -> bytes:
    document = {
        "chatGuid": f"iMessage;-;{send.to}",
        "tempGuid": str(send.attempt_uuid),
        "message": send.text,
        "method": "apple-script",  # the one that needs no change to the Mac's protection
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _search_body(known: Known) -> bytes:
    document = {
        "with": ["chats"],
        # The chat's prefix is iMessage, SMS, or any, as the Mac's system has it.
        "where": [
            {"statement": "chat.guid LIKE :chat", "args": {"chat": f"%;-;{known.to}"}},
            {"statement": "message.is_from_me = :me", "args": {"me": 1}},
        ],
        "after": _milliseconds(known.submitted_at - CLOCK_SKEW),
        "before": _milliseconds(known.submitted_at + SEND_WINDOW),
        "sort": "ASC",
        "limit": PAGE,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _unanswered_submission(answer: NoAnswer) -> SubmitResult:
    if answer.left:
        return SubmitResult(Submission.UNKNOWN, error_class=ErrorClass.TIMEOUT_AFTER_SUBMIT, raw=answer.cause)
    return SubmitResult(Submission.NOT_CONNECTED, error_class=ErrorClass.CONNECTION_REFUSED, raw=answer.cause)


def _submit_result(answer: Answer, attempt_uuid: uuid.UUID, now: datetime) -> SubmitResult:
    row = _message(answer, attempt_uuid)
    if code := _integer(row, "error"):
        return SubmitResult(Submission.REFUSED, error_class=error_class(code), error_code=code, raw=_raw(answer))
    if answer.status == 200 and _guid(row) and row.get("error") in (0, None):
        return SubmitResult(Submission.ACCEPTED, provider_message_id=_guid(row), raw=_raw(answer))
    refused = _refusal(answer)
    if refused is None:
        return SubmitResult(Submission.UNKNOWN, error_class=ErrorClass.TIMEOUT_AFTER_SUBMIT, raw=_raw(answer))
    wait = retry_after(answer.retry_after, now=now) if refused is ErrorClass.THROTTLED else None
    return SubmitResult(Submission.REFUSED, error_class=refused, retry_after=wait, raw=_raw(answer))


def _refusal(answer: Answer) -> ErrorClass | None:
    """Whose fault a refusal before the send is; None where the text may have left."""
    if answer.status in _NOT_DONE_REDIRECTS:
        return ErrorClass.ROUTE_REJECTED
    if answer.status == 429:  # not of BlueBubbles itself: of the tunnel in front of it
        return ErrorClass.THROTTLED
    if not 400 <= answer.status < 500 or answer.status == _REQUEST_TIMEOUT:
        return None
    may_be_on_its_way = answer.status == 400 and (not answer.whole or _ON_ITS_WAY in answer.body.lower())
    return None if may_be_on_its_way else ErrorClass.ROUTE_REJECTED


def _report_by_guid(answer: Answer | NoAnswer | None, guid: str) -> StatusReport:
    if isinstance(answer, Answer) and answer.status == 404 and _speaks_protocol(answer):
        return StatusReport(ReportedState.NOT_FOUND)
    row = _data(answer, 200)
    return _report(row) if isinstance(row, dict) and _guid(row) == guid else _UNANSWERED


def _report_by_search(answer: Answer | NoAnswer | None, attempt_uuid: uuid.UUID, known: Known) -> StatusReport:
    rows = _data(answer, 200)
    if not isinstance(rows, list):
        return _UNANSWERED
    found = matching(rows, attempt_uuid, known)
    if len(found) == 1:
        return _report(found[0])
    is_everything = len(rows) < PAGE
    return StatusReport(ReportedState.UNKNOWN if found or not is_everything else ReportedState.NOT_FOUND)


def matching(rows: Sequence[object], attempt_uuid: uuid.UUID, known: Known) -> list[Mapping[str, object]]:
    """The messages that may be the attempt's, as `query` says; one that carries its `tempGuid` is it."""
    messages: list[Mapping[str, object]] = [row for row in rows if isinstance(row, dict) and _guid(row)]
    named = [row for row in messages if str(row.get("tempGuid")).lower() == str(attempt_uuid)]
    return named[:1] or [row for row in messages if _looks_like(row, known)]


def _looks_like(row: Mapping[str, object], known: Known) -> bool:
    created = _integer(row, "dateCreated", high=MILLISECONDS_LIMIT)
    first, last = _milliseconds(known.submitted_at - CLOCK_SKEW), _milliseconds(known.submitted_at + SEND_WINDOW)
    return (
        row.get("isFromMe") is True
        and chat_address(row) == known.to
        and _words(row.get("text")) in map(_words, known.texts)
        and created is not None
        and first <= created <= last
        and _guid(row) not in known.others
    )


def _words(text: object) -> str:
    """A text without what the Mac changes: spaces around it, and the mark of an attachment."""
    return text.replace("\ufffc", "").strip() if isinstance(text, str) else ""


def _report(row: Mapping[str, object]) -> StatusReport:
    code = _integer(row, "error") or None
    if code is not None:
        state = ReportedState.FAILED
    elif row.get("dateDelivered") or row.get("dateRead") or row.get("isDelivered") is True:
        state = ReportedState.DELIVERED
    else:
        state = ReportedState.SENT
    return StatusReport(state, provider_message_id=_guid(row), service=service_of(row), error_code=code)


def _speaks_protocol(answer: Answer) -> bool:
    """Whether the answer is BlueBubbles' own, and not that of a tunnel or of a stranger."""
    document = answer.document() or {}
    return document.get("status") == answer.status and isinstance(document.get("message"), str)


def _data(answer: Answer | NoAnswer | None, status: int) -> object:
    """What an answer with this status carries, None where it is none of the protocol."""
    if not isinstance(answer, Answer) or answer.status != status or not _speaks_protocol(answer):
        return None
    return (answer.document() or {}).get("data")


def _message(answer: Answer, attempt_uuid: uuid.UUID) -> Mapping[str, object]:
    """The attempt's message in the answer to its submission; empty when there is none, or that of another one."""
    row = _data(answer, answer.status) if answer.status in _ENVELOPE_STATUSES else None
    is_ours = isinstance(row, dict) and str(row.get("tempGuid", attempt_uuid)).lower() == str(attempt_uuid)
    return row if isinstance(row, dict) and is_ours else {}


def _guid(row: Mapping[str, object]) -> str:
    value = row.get("guid")
    return value if isinstance(value, str) and len(value) <= GUID_LIMIT and is_storable(value) else ""


def _integer(row: Mapping[str, object], name: str, high: int = INT_MAX) -> int | None:
    value = row.get(name)
    is_integer = isinstance(value, int) and not isinstance(value, bool) and INT_MIN <= value <= high
    return value if isinstance(value, int) and is_integer else None


def _raw(answer: Answer) -> str:
    """The reply for people, with the status in front: many an error has no body."""
    reply = f"{answer.status} ".encode() + answer.body
    return reply[:RAW_REPLY_LIMIT].decode("utf-8", errors="ignore").replace("\x00", "")
