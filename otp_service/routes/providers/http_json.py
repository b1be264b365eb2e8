"""Any provider with a JSON API, as its route's settings describe it; push and voice are spoken to by it too."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from urllib.parse import parse_qs, urlencode, urlsplit
from uuid import UUID

import aiohttp
import structlog

from otp_service.core.clock import utc_now
from otp_service.core.http import DEFAULT_TIMEOUTS, Answer, NoAnswer, Timeouts, exchange
from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState, StatusReport, SubmitResult, Submittable
from otp_service.routes.claim import Claimed
from otp_service.routes.providers import answers
from otp_service.routes.providers.base import Health, NotGenuine, Posted, Question, Unreadable
from otp_service.routes.providers.http_json_settings import (
    CREDENTIALS,
    SETTINGS,
    Description,
    Paths,
    Value,
    find,
    read_settings,
    word,
)
from otp_service.routes.route_rules import RouteSpec

__all__ = ["CREDENTIALS", "SETTINGS", "HttpJson", "read_settings"]

log = structlog.get_logger(__name__)

ATTEMPT, TOKEN = "attempt", "t"  # names in the query of a receipt's address

_RECEIPTS_LIMIT = 1_000  # in one post
_OTHER_FAILURE = ErrorClass.TEMPORARY  # of a failed message whose code is not in `errors`
_UNANSWERED = StatusReport(ReportedState.UNKNOWN, answered=False)


@dataclass(frozen=True, slots=True)
class HttpJson:
    """The provider of routes of the kind `http_json`."""

    timeouts: Timeouts = DEFAULT_TIMEOUTS
    clock: Callable[[], datetime] = utc_now
    _known: dict[str, tuple[RouteSpec, Description]] = field(default_factory=dict, init=False, repr=False)

    async def submit(self, session: aiohttp.ClientSession, claimed: Claimed) -> SubmitResult:
        """Hand one attempt over: `request`. Nothing is sent with less to live than the unit that it is told in."""
        spec, send = claimed.spec, claimed.send
        try:
            described = self._described(spec)
        except ValueError as error:
            return answers.not_sent(ErrorClass.ROUTE_REJECTED, str(error))
        now = self.clock()
        fields = _submit_fields(described, spec, send, now)
        if now >= send.submit_by or _is_too_late(described, fields):
            return answers.not_sent(ErrorClass.EXPIRED)
        call = described.request.call(fields)
        answer = await exchange(session, call, self.timeouts.until(send.submit_by - now))
        if isinstance(answer, NoAnswer):
            return answers.unanswered(answer)
        return _submit_result(described, spec.name, answer, now)

    async def query(self, session: aiohttp.ClientSession, question: Question) -> StatusReport | None:
        """Ask by `query`; None where there is none, or where it needs the provider's id and none is known."""
        try:
            described = self._described(question.spec)
        except ValueError:
            return _UNANSWERED
        template = described.query
        if template is None or (template.names("provider_message_id") and not question.provider_message_id):
            return None
        fields: dict[str, Value] = {
            "attempt_id": str(question.attempt_uuid),
            "provider_message_id": question.provider_message_id,
            "to": question.to,
            **_secrets(described),
        }
        answer = await exchange(session, template.call(fields), self.timeouts)
        return _UNANSWERED if isinstance(answer, NoAnswer) else _status_report(described, question, answer)

    def receipts(self, spec: RouteSpec, posted: Posted) -> Sequence[Receipt]:
        """The receipts of a post: a JSON object, or a list of them."""
        try:
            described = self._described(spec)
        except ValueError:
            raise NotGenuine from None  # what proves it cannot be read
        if described.receipt is None or not _is_genuine(described, posted):
            raise NotGenuine
        items = _items(described.receipt, posted.body)
        in_address = None if described.signature_header or len(items) != 1 else _in_query(posted.url, ATTEMPT)
        read = [_receipt(described, described.receipt, spec.name, item, in_address) for item in items]
        receipts = [receipt for receipt in read if receipt is not None]
        if items and not receipts:
            raise Unreadable("No part of the post has both a status and an id: look at receipt in the settings.")
        if len(receipts) < len(items):
            log.warning("receipts_left_out", route=spec.name, count=len(items) - len(receipts))
        return receipts

    async def check(self, session: aiohttp.ClientSession, spec: RouteSpec) -> Health:
        """Whether `check` is answered with a 2xx."""
        try:
            described = self._described(spec)
        except ValueError as error:
            return Health(ok=False, detail=str(error))
        if described.check is None:
            return Health(ok=True, detail="Its settings can be read; they have no check to ask by.")
        answer = await exchange(session, described.check.call(_secrets(described)), self.timeouts)
        if isinstance(answer, NoAnswer):
            return Health(ok=False, detail=f"No answer: {answer.cause}.")
        return Health(ok=200 <= answer.status < 300, detail=f"The provider answered {answer.status}.")

    def _described(self, spec: RouteSpec) -> Description:
        """The settings as read, once for every spec. Raises ValueError."""
        known, described = self._known.get(spec.name, (None, None))
        if described is None or known is not spec:
            described = read_settings(spec.settings, spec.credentials)
            self._known[spec.name] = (spec, described)
        return described


def _submit_fields(described: Description, spec: RouteSpec, send: Submittable, now: datetime) -> dict[str, Value]:
    left_s = int((send.expires_at - now).total_seconds())
    return {
        "to": send.to,
        "to_digits": send.to.removeprefix("+"),
        "text": send.text,
        "sender": send.sender or next(iter(spec.sender_names), ""),
        "attempt_id": str(send.attempt_uuid),
        "ttl_s": left_s,
        "ttl_min": left_s // 60,
        "expires_at": send.expires_at.isoformat(),
        "receipts_url": _receipts_url(described, spec, send.attempt_uuid),
        **_secrets(described),
    }


def _is_too_late(described: Description, fields: Mapping[str, Value]) -> bool:
    """Whether less time is left than the provider can be told."""
    unit = "ttl_min" if described.request.names("ttl_min") else "ttl_s"
    return int(fields[unit]) < 1


def _secrets(described: Description) -> dict[str, Value]:
    return {f"credentials.{name}": value for name, value in described.credentials.items()}


def _receipts_url(described: Description, spec: RouteSpec, attempt_uuid: UUID) -> str:
    """Where the provider posts what became of this attempt; "" when nowhere."""
    if not spec.receipts_url:
        return ""
    query = {ATTEMPT: str(attempt_uuid)}
    if not described.signature_header:
        query[TOKEN] = described.credentials.get("receipt_token", "")
    return f"{spec.receipts_url}?{urlencode(query)}"


def _submit_result(described: Description, route: str, answer: Answer, now: datetime) -> SubmitResult:
    document, paths = answer.document(), described.answer
    code = find(document, paths.code)
    known = described.errors.get(word(code))
    if known is None and 200 <= answer.status < 300:
        is_taken = document is not None and _is_taken(described, document)
        provider_id = answers.foreign_id(find(document, paths.id))
        if is_taken:
            return answers.accepted(answer, provider_id)
        return replace(answers.unclear(answer), provider_message_id=provider_id)  # it can be asked about
    # A gateway's 5xx has no code in the provider's words, and may hide an acceptance.
    error_class = known or answers.class_of_status(answer.status)
    if error_class is None:
        return answers.unclear(answer)
    if known is None and code is not None:
        log.warning("refusal_code_not_known", route=route, word=answers.showable(code))
    return answers.refused(answer, error_class, answers.whole_number(code), now=now)


def _is_taken(described: Description, document: Mapping[str, object]) -> bool:
    """Whether a 2xx says in the provider's words that it has the message."""
    paths = described.answer
    has_id = not paths.id or answers.foreign_id(find(document, paths.id)) != ""
    return has_id and (not described.accepted or word(find(document, paths.status)) in described.accepted)


def _status_report(described: Description, question: Question, answer: Answer) -> StatusReport:
    document, paths = answer.document(), described.queried
    if answer.status == 404 and document is not None:
        return StatusReport(ReportedState.NOT_FOUND)
    state = described.states.get(word(find(document, paths.status)))
    if not 200 <= answer.status < 300 or state is None:
        return _UNANSWERED
    code = find(document, paths.code)
    return StatusReport(
        state,
        provider_message_id=answers.foreign_id(find(document, paths.id)) or question.provider_message_id,
        error_code=answers.whole_number(code),
        error_class=_class_of_failure(described, question.spec.name, code) if state is ReportedState.FAILED else None,
    )


def _is_genuine(described: Description, posted: Posted) -> bool:
    """Signed over its exact body, where the settings name a header; else with the token in its address."""
    if not described.signature_header:
        return _is_same(_in_query(posted.url, TOKEN), described.credentials["receipt_token"])
    offered = posted.headers.get(described.signature_header, "").removeprefix("sha256=")
    digest = hmac.digest(described.credentials["receipt_secret"].encode(), posted.body, hashlib.sha256)
    # Both are compared, so that the time taken does not say which one matched.
    matches = [_is_same(offered.lower(), digest.hex()), _is_same(offered, base64.b64encode(digest).decode())]
    return any(matches)


def _is_same(offered: str, ours: str) -> bool:
    return hmac.compare_digest(offered.encode(errors="replace"), ours.encode())


def _in_query(url: str, name: str) -> str:
    try:
        return parse_qs(urlsplit(url).query).get(name, [""])[0]
    except ValueError:
        return ""


def _items(paths: Paths, body: bytes) -> list[object]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise Unreadable("The post is not JSON.") from None
    listed = find(document, paths.list) if paths.list else document
    items = listed if isinstance(listed, list) else [listed]
    if len(items) > _RECEIPTS_LIMIT:
        raise Unreadable(f"The post has more than {_RECEIPTS_LIMIT} receipts.")
    return items


def _receipt(described: Description, paths: Paths, route: str, item: object, in_address: str | None) -> Receipt | None:
    """One receipt; None for what has no status or names no attempt."""
    status, code = word(find(item, paths.status)), find(item, paths.code)
    provider_id = answers.foreign_id(find(item, paths.id))
    attempt_uuid = next(_uuids(find(item, paths.attempt), in_address), None)
    if not status or (not provider_id and attempt_uuid is None):
        return None
    state = described.states.get(status)
    if state is None:
        log.warning("receipt_state_not_known", route=route, word=answers.showable(status))
    return Receipt(
        state=state or ReportedState.UNKNOWN,
        attempt_uuid=attempt_uuid,
        provider_message_id=provider_id,
        error_class=_class_of_failure(described, route, code) if state is ReportedState.FAILED else None,
        error_code=answers.whole_number(code),
    )


def _uuids(*written: object) -> Iterator[UUID]:
    for value in written:
        try:
            yield UUID(value if isinstance(value, str) else "")
        except ValueError:
            continue


def _class_of_failure(described: Description, route: str, code: object) -> ErrorClass:
    known = described.errors.get(word(code))
    if known is None:
        log.warning("receipt_code_not_known", route=route, word=answers.showable(code))
    return known or _OTHER_FAILURE
