"""Any API that speaks as Twilio's Messages does: form in, JSON out, signed posts about what became of each message."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import UUID

import aiohttp
import structlog

from otp_service.core.clock import utc_now
from otp_service.core.http import DEFAULT_TIMEOUTS, Answer, Call, NoAnswer, Timeouts, exchange
from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState, StatusReport, SubmitResult, Submittable
from otp_service.messages.recipient_rules import Word
from otp_service.routes.claim import Claimed
from otp_service.routes.providers import answers
from otp_service.routes.providers.base import Health, Inbound, NotGenuine, Posted, Question, Unreadable
from otp_service.routes.route_rules import RouteSpec

log = structlog.get_logger(__name__)

SETTINGS = ("base_url", "messaging_service_sid")
CREDENTIALS = ("account_sid", "auth_token")

SIGNATURE_HEADER = "x-twilio-signature"
ATTEMPT = "attempt"  # the name of our id in the query of a receipt's address
VALIDITY_LIMIT_S = 36_000  # the longest ValidityPeriod

_BASE_URL = "https://api.twilio.com"
_SID = re.compile(r"[A-Za-z0-9]{1,64}", re.ASCII)
_PARAMETERS_LIMIT = 200  # of one post

#: The recipient answered STOP to the provider, which sends nothing more to it from that sender: a code goes on to the
#: next channel, a promo nowhere.
STOPPED = 21610

#: Codes of refusals and of failed messages. What is not here: by the HTTP status, or TEMPORARY in a receipt.
ERRORS: Mapping[int, ErrorClass] = {
    14107: ErrorClass.THROTTLED,
    20429: ErrorClass.THROTTLED,
    21611: ErrorClass.THROTTLED,  # the queue of this sender is full
    20503: ErrorClass.TEMPORARY,
    30001: ErrorClass.TEMPORARY,  # queue overflow
    30003: ErrorClass.TEMPORARY,  # unreachable: the cascade counts, and goes to the next channel
    30008: ErrorClass.TEMPORARY,  # unknown
    21211: ErrorClass.RECIPIENT_INVALID,
    21217: ErrorClass.RECIPIENT_INVALID,
    30005: ErrorClass.RECIPIENT_INVALID,
    STOPPED: ErrorClass.RECIPIENT_UNREACHABLE,
    21614: ErrorClass.RECIPIENT_UNREACHABLE,  # no mobile
    21635: ErrorClass.RECIPIENT_UNREACHABLE,  # a landline
    30006: ErrorClass.RECIPIENT_UNREACHABLE,  # a landline
    21602: ErrorClass.CONTENT_REJECTED,  # no text
    21617: ErrorClass.CONTENT_REJECTED,  # too long
    20003: ErrorClass.ROUTE_REJECTED,
    21408: ErrorClass.ROUTE_REJECTED,
    21714: ErrorClass.ROUTE_REJECTED,
    30002: ErrorClass.ROUTE_REJECTED,
    30004: ErrorClass.ROUTE_REJECTED,
    30007: ErrorClass.ROUTE_REJECTED,
    30034: ErrorClass.ROUTE_REJECTED,
    30036: ErrorClass.EXPIRED,
}
_OTHER_FAILURE = ErrorClass.TEMPORARY

STATES: Mapping[str, ReportedState] = {
    "accepted": ReportedState.QUEUED,
    "scheduled": ReportedState.QUEUED,
    "queued": ReportedState.QUEUED,
    "sending": ReportedState.QUEUED,
    "sent": ReportedState.SENT,
    "partially_delivered": ReportedState.SENT,
    "delivered": ReportedState.DELIVERED,
    "read": ReportedState.DELIVERED,
    "undelivered": ReportedState.FAILED,
    "failed": ReportedState.FAILED,
    "canceled": ReportedState.NEVER,
}
#: The states of a message that somebody wrote to us; "" where it has none.
_STATES_OF_INBOUND = frozenset({"", "receiving", "received"})

_UNANSWERED = StatusReport(ReportedState.UNKNOWN, answered=False)


@dataclass(frozen=True, slots=True)
class Account:
    """One account of such a provider."""

    account_sid: str
    auth_token: str = field(repr=False)
    base_url: str = _BASE_URL
    messaging_service_sid: str = ""

    @property
    def url(self) -> str:
        """The account's own address, without its suffix."""
        return f"{self.base_url}/2010-04-01/Accounts/{self.account_sid}"

    @property
    def headers(self) -> dict[str, str]:
        """What proves to the provider who asks."""
        basic = base64.b64encode(f"{self.account_sid}:{self.auth_token}".encode()).decode()
        return {"Authorization": f"Basic {basic}"}


def read_settings(settings: Mapping[str, Any], credentials: Mapping[str, str]) -> Account:
    """The account that a route's settings and credentials describe. Raises ValueError: a sentence."""
    if settings.keys() - set(SETTINGS):
        raise ValueError(f"Only {' and '.join(SETTINGS)} are settings of a Twilio route.")
    if not _is_sid(credentials.get("account_sid")):
        raise ValueError("account_sid must be given in the credentials: letters and digits, as in AC0123.")
    if not credentials.get("auth_token"):
        raise ValueError("auth_token must be given in the credentials.")
    service = settings.get("messaging_service_sid", "")
    if service != "" and not _is_sid(service):
        raise ValueError("messaging_service_sid must be letters and digits, as in MG0123, or be left out.")
    return Account(
        account_sid=credentials["account_sid"],
        auth_token=credentials["auth_token"],
        base_url=_base_url(settings.get("base_url", _BASE_URL)),
        messaging_service_sid=service,
    )


def _is_sid(value: object) -> bool:
    return isinstance(value, str) and _SID.fullmatch(value) is not None


def _base_url(value: object) -> str:
    try:
        parts = urlsplit(value if isinstance(value, str) else "")
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        raise ValueError("base_url must be an address, as in https://api.twilio.com.") from None
    if not is_address or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("base_url must be http:// or https:// and a host, without a log-in, ? or #.")
    return str(value).rstrip("/")


@dataclass(frozen=True, slots=True)
class Twilio:
    """The provider of routes of the kind `twilio`."""

    timeouts: Timeouts = DEFAULT_TIMEOUTS
    clock: Callable[[], datetime] = utc_now

    async def submit(self, session: aiohttp.ClientSession, claimed: Claimed) -> SubmitResult:
        """Hand one attempt over: `POST Messages.json`. Nothing is sent with less than a second left to live."""
        spec, send = claimed.spec, claimed.send
        try:
            account = read_settings(spec.settings, spec.credentials)
        except ValueError as error:
            return answers.not_sent(ErrorClass.ROUTE_REJECTED, str(error))
        now = self.clock()
        sender = _sender(account, spec, send)
        if now >= send.submit_by or _validity(send, now) < 1:
            return answers.not_sent(ErrorClass.EXPIRED)
        if not sender:
            return answers.not_sent(ErrorClass.ROUTE_REJECTED, "The route has no sender name and no messaging service.")
        call = _submission(account, spec, send, {**sender, "ValidityPeriod": str(_validity(send, now))})
        answer = await exchange(session, call, self.timeouts.until(send.submit_by - now))
        if isinstance(answer, NoAnswer):
            return answers.unanswered(answer)
        return _submit_result(spec.name, answer, now)

    async def query(self, session: aiohttp.ClientSession, question: Question) -> StatusReport | None:
        """Ask by the provider's id: `GET Messages/{sid}.json`; None where none is known."""
        sid = question.provider_message_id
        if not _is_sid(sid):
            return None
        try:
            account = read_settings(question.spec.settings, question.spec.credentials)
        except ValueError:
            return _UNANSWERED
        answer = await self._get(session, account, f"/Messages/{sid}.json")
        return _status_report(question.spec.name, answer, sid) if isinstance(answer, Answer) else _UNANSWERED

    def receipts(self, spec: RouteSpec, posted: Posted) -> Sequence[Receipt]:
        """The one receipt of a post, none where somebody wrote to us.

        Only what the account's auth_token signed is read.
        """
        parameters = _signed_parameters(spec.credentials.get("auth_token", ""), posted)
        if _is_inbound(parameters):
            return []
        sid = answers.foreign_id(parameters.get("MessageSid") or parameters.get("SmsSid"))
        attempt_uuid = _attempt(posted.url)
        if not sid and attempt_uuid is None:
            raise Unreadable("The post names neither a MessageSid nor an attempt of ours.")
        word = _state_word(parameters)
        if not word:
            raise Unreadable("The post has no MessageStatus.")
        state, code = _state(spec.name, word), answers.whole_number(parameters.get("ErrorCode", ""))
        return [
            Receipt(
                state=state,
                attempt_uuid=attempt_uuid,
                provider_message_id=sid,
                error_class=_class_of_failure(spec.name, code) if state is ReportedState.FAILED else None,
                error_code=code,
                read=word == "read",
            )
        ]

    def inbound(self, spec: RouteSpec, posted: Posted) -> Sequence[Inbound]:
        """What somebody wrote to us: as the provider understood it (OptOutType), else the text itself.

        A message that failed because its recipient is STOPPED says so too: that recipient wrote it to the provider.
        """
        parameters = _signed_parameters(spec.credentials.get("auth_token", ""), posted)
        if _is_inbound(parameters):
            return [Inbound(parameters.get("From", ""), parameters.get("OptOutType") or parameters.get("Body", ""))]
        if answers.whole_number(parameters.get("ErrorCode", "")) == STOPPED:
            return [Inbound(parameters.get("To", ""), Word.STOP)]
        return []

    async def check(self, session: aiohttp.ClientSession, spec: RouteSpec) -> Health:
        """Whether the account is active: `GET` of the account itself."""
        try:
            account = read_settings(spec.settings, spec.credentials)
        except ValueError as error:
            return Health(ok=False, detail=str(error))
        answer = await self._get(session, account, ".json")
        if isinstance(answer, NoAnswer):
            return Health(ok=False, detail=f"No answer: {answer.cause}.")
        if answer.status != 200:
            return Health(ok=False, detail=f"The provider answered {answer.status}.")
        is_active = (answer.document() or {}).get("status") == "active"
        return Health(ok=is_active, detail="The account is active." if is_active else "The account is not active.")

    async def _get(self, session: aiohttp.ClientSession, account: Account, path: str) -> Answer | NoAnswer:
        return await exchange(session, Call("GET", account.url + path, headers=account.headers), self.timeouts)


def _validity(send: Submittable, now: datetime) -> int:
    """Whole seconds that the provider may take, rounded down: a stale code must not leave."""
    return min(int((send.expires_at - now).total_seconds()), VALIDITY_LIMIT_S)


def _sender(account: Account, spec: RouteSpec, send: Submittable) -> dict[str, str]:
    """The name that was asked for, else the service, else the route's first name; empty where there is none."""
    if not send.sender and account.messaging_service_sid:
        return {"MessagingServiceSid": account.messaging_service_sid}
    name = send.sender or next(iter(spec.sender_names), "")
    return {"From": name} if name else {}


def _submission(account: Account, spec: RouteSpec, send: Submittable, more: Mapping[str, str]) -> Call:
    form = {"To": send.to, "Body": send.text, **more}
    if spec.receipts_url:
        form["StatusCallback"] = f"{spec.receipts_url}?{urlencode({ATTEMPT: str(send.attempt_uuid)})}"
    headers = {**account.headers, "Content-Type": "application/x-www-form-urlencoded"}
    return Call("POST", f"{account.url}/Messages.json", urlencode(form).encode(), headers)


def _submit_result(route: str, answer: Answer, now: datetime) -> SubmitResult:
    document = answer.document() or {}
    if 200 <= answer.status < 300:
        return _taken(answer, document, now)
    code = answers.whole_number(document.get("code"))
    # A gateway's 5xx has no code in the provider's words, and may hide an acceptance.
    error_class = ERRORS.get(code or 0) or answers.class_of_status(answer.status)
    if error_class is None:
        return answers.unclear(answer)
    if code is not None and code not in ERRORS:
        log.warning("refusal_code_not_known", route=route, word=answers.showable(code))
    return answers.refused(answer, error_class, code, now=now)


def _taken(answer: Answer, document: Mapping[str, object], now: datetime) -> SubmitResult:
    """What a 2xx says: even that may be the word that it failed at once."""
    sid, state = answers.foreign_id(document.get("sid")), STATES.get(str(document.get("status")))
    if not _is_sid(sid):
        return answers.unclear(answer)
    if state is ReportedState.FAILED:
        code = answers.whole_number(document.get("error_code"))
        return answers.refused(answer, ERRORS.get(code or 0, _OTHER_FAILURE), code, now=now)
    return answers.accepted(answer, sid)


def _status_report(route: str, answer: Answer, sid: str) -> StatusReport:
    document = answer.document() or {}
    if answer.status == 404 and answers.whole_number(document.get("code")) is not None:
        return StatusReport(ReportedState.NOT_FOUND)
    state = STATES.get(str(document.get("status")))
    if answer.status != 200 or document.get("sid") != sid or state is None:
        return _UNANSWERED
    code = answers.whole_number(document.get("error_code"))
    error_class = _class_of_failure(route, code) if state is ReportedState.FAILED else None
    return StatusReport(state, provider_message_id=sid, error_code=code, error_class=error_class)


def _is_inbound(parameters: Mapping[str, str]) -> bool:
    """Whether a post is about a message that somebody wrote to us."""
    return _state_word(parameters) in _STATES_OF_INBOUND and not parameters.keys().isdisjoint({"Body", "OptOutType"})


def _state_word(parameters: Mapping[str, str]) -> str:
    return parameters.get("MessageStatus") or parameters.get("SmsStatus") or ""


def _state(route: str, word: str) -> ReportedState:
    if word not in STATES:
        log.warning("receipt_state_not_known", route=route, word=answers.showable(word))
    return STATES.get(word, ReportedState.UNKNOWN)


def _class_of_failure(route: str, code: int | None) -> ErrorClass:
    if code not in ERRORS:
        log.warning("receipt_code_not_known", route=route, word=answers.showable(code))
    return ERRORS.get(code or 0, _OTHER_FAILURE)


def _attempt(url: str) -> UUID | None:
    """Our id in the address, which is signed as a whole."""
    try:
        return UUID(parse_qs(urlsplit(url).query)[ATTEMPT][0])
    except (KeyError, ValueError):
        return None


def signature(auth_token: str, url: str, parameters: Sequence[tuple[str, str]]) -> str:
    """The signature of a post to `url`: every distinct name and value, sorted, follows the address."""
    text = url + "".join(name + value for name, value in sorted(set(parameters)))
    digest = hmac.digest(auth_token.encode(), text.encode(errors="surrogatepass"), hashlib.sha1)
    return base64.b64encode(digest).decode()


def _signed_parameters(auth_token: str, posted: Posted) -> Mapping[str, str]:
    """What a genuine post says. Raises NotGenuine, and Unreadable for a signed body that says nothing."""
    offered = posted.headers.get(SIGNATURE_HEADER, "").encode(errors="replace")
    is_json = posted.headers.get("content-type", "").split(";")[0].strip().lower() == "application/json"
    parameters = [] if is_json else _form(posted.body)
    expected = [signature(auth_token, url, parameters).encode() for url in _addresses(posted.url)]
    # Both are compared, so that the time taken does not say which one matched.
    matches = [hmac.compare_digest(offered, ours) for ours in expected]
    if not auth_token or not any(matches) or (is_json and not _is_body_signed(posted)):
        raise NotGenuine
    return _json(posted.body) if is_json else dict(parameters)


def _json(body: bytes) -> Mapping[str, str]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise Unreadable("The post is not a JSON object.")
    return {name: str(value) for name, value in document.items() if isinstance(value, str | int)}


def _form(body: bytes) -> list[tuple[str, str]]:
    try:
        text = body.decode()
        return parse_qsl(text, keep_blank_values=True, max_num_fields=_PARAMETERS_LIMIT)
    except ValueError:
        raise NotGenuine from None


def _is_body_signed(posted: Posted) -> bool:
    """Whether the signed address carries the digest of this body."""
    digest = parse_qs(urlsplit(posted.url).query).get("bodySHA256", [""])[0]
    ours = hashlib.sha256(posted.body).hexdigest()
    return hmac.compare_digest(digest.encode(errors="replace"), ours.encode())


def _addresses(url: str) -> tuple[str, str]:
    """The address without and with its port: which of them was signed depends on the sender."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise NotGenuine from None
    bare = re.sub(r":[0-9]*$", "", parts.netloc)
    without, with_port = (urlunsplit(parts._replace(netloc=netloc)) for netloc in (bare, f"{bare}:{port}"))
    return without, with_port
