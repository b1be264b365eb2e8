"""A Kannel gateway: sendsms of its smsbox, and the receipts (DLRs) that it calls us with."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit
from uuid import UUID

import aiohttp
import structlog

from otp_service.core.clock import utc_now
from otp_service.core.http import DEFAULT_TIMEOUTS, Answer, Call, NoAnswer, Timeouts, exchange
from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState, StatusReport, SubmitResult, Submittable
from otp_service.routes.claim import Claimed
from otp_service.routes.parts import Encoding, measure
from otp_service.routes.providers import answers, smpp_rules
from otp_service.routes.providers.base import Health, Inbound, NotGenuine, Posted, Question, Unreadable
from otp_service.routes.providers.foreign_ids import normal_id
from otp_service.routes.providers.smpp_inbound import international
from otp_service.routes.route_rules import RouteSpec

log = structlog.get_logger(__name__)

SETTINGS = ("url", "smsc", "max_messages", "status_url")
CREDENTIALS = ("username", "password", "receipt_token", "status_password")

DLR_MASK = 31  # every kind of receipt in STATES
VALIDITY_UNIT = timedelta(minutes=1)
_LONGEST_WORD = 128
_MOST_MESSAGES = 255  # what the number of a part can count
_PARAMETERS_LIMIT = 20  # of a receipt's address

#: How a body of 202 begins: held by its SMSC's queue, by its own until the SMSC is back, not asked for an answer.
_TAKEN = (b"0:", b"3:", b"Sent.")

#: Refusals by HTTP status; others: `answers.class_of_status`, and what that does not know is no clear answer.
ERRORS: Mapping[int, ErrorClass] = {
    403: ErrorClass.ROUTE_REJECTED,  # a wrong log-in, or no SMSC for this number
    503: ErrorClass.TEMPORARY,  # the queue is full
}

#: By the bit that a receipt's type is.
STATES: Mapping[str, ReportedState] = {
    "1": ReportedState.DELIVERED,
    "2": ReportedState.FAILED,  # the SMSC took it, and did not deliver it
    "4": ReportedState.QUEUED,  # by the SMSC
    "8": ReportedState.SENT,  # the SMSC has it
    "16": ReportedState.FAILED,  # the SMSC did not take it, or it became stale in Kannel's own queue
}
_REFUSED_BY_SMSC = "16"

_STALE = "validity expired"  # Kannel's own words
_STATUS = re.compile(r"NACK/0x0*([0-9a-f]{1,7})(?![0-9a-f])", re.ASCII | re.IGNORECASE)
_WORD = re.compile(r"(?:^|\s)stat:([a-z]+)(?:\s+err:([0-9]{1,9})(?![0-9a-z]))?", re.ASCII | re.IGNORECASE)

_GATEWAY = re.compile(rb"<status>([a-z]+)")
_SMSC = re.compile(rb"<smsc>.*?<id>([^<]*)</id>\s*<status>([a-z-]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Gateway:
    """One user of a Kannel."""

    url: str
    username: str
    password: str = field(repr=False)
    receipt_token: str = field(repr=False)
    smsc: str = ""
    max_messages: int = 1  # parts of a text, as its configuration says of this user; without a word there, one
    status_url: str = ""
    status_password: str = field(default="", repr=False)


def read_settings(settings: Mapping[str, Any], credentials: Mapping[str, str]) -> Gateway:
    """The gateway that a route's settings and credentials describe. Raises ValueError: a sentence."""
    if settings.keys() - set(SETTINGS):
        raise ValueError(f"The settings of a Kannel route are {', '.join(SETTINGS)}.")
    if credentials.keys() - set(CREDENTIALS):
        raise ValueError(f"The credentials of a Kannel route are {', '.join(CREDENTIALS)}.")
    return Gateway(
        url=_address(settings, "url", "http://kannel.example:13013/cgi-bin/sendsms"),
        username=_word(credentials, "username"),
        password=_word(credentials, "password"),
        receipt_token=_word(credentials, "receipt_token"),
        smsc=_word(settings, "smsc") if settings.get("smsc", "") != "" else "",
        max_messages=_max_messages(settings),
        status_url=_address(settings, "status_url", "http://kannel.example:13000/status.xml", default=""),
        status_password=_word(credentials, "status_password") if credentials.get("status_password") else "",
    )


def _word(values: Mapping[str, Any], name: str) -> str:
    """What can stand in a header as it is."""
    value = values.get(name)
    if not isinstance(value, str) or not _fits_header(value):
        raise ValueError(f"{name} must be 1 to {_LONGEST_WORD} ASCII characters without blanks at its ends.")
    return value


def _max_messages(settings: Mapping[str, Any]) -> int:
    value = settings.get("max_messages", 1)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST_MESSAGES:
        raise ValueError(f"max_messages must be what sendsms-user has in Kannel, from 1 to {_MOST_MESSAGES}.")
    return value


def _fits_header(value: str) -> bool:
    is_plain = value.isascii() and value.isprintable() and value == value.strip()
    return is_plain and 0 < len(value) <= _LONGEST_WORD


def _address(settings: Mapping[str, Any], name: str, example: str, *, default: str | None = None) -> str:
    value = settings.get(name, default)
    if value == default == "":
        return ""
    try:
        parts = urlsplit(value if isinstance(value, str) else "")
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        raise ValueError(f"{name} must be an address, as in {example}.") from None
    if not is_address or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(f"{name} must be an address without a log-in, ? or #, as in {example}.")
    return str(value)


@dataclass(frozen=True, slots=True)
class Kannel:
    """The provider of routes of the kind `kannel`."""

    timeouts: Timeouts = DEFAULT_TIMEOUTS
    clock: Callable[[], datetime] = utc_now

    async def submit(self, session: aiohttp.ClientSession, claimed: Claimed) -> SubmitResult:
        """Hand one attempt over: `POST` to sendsms, text in the body, all else in headers, which no log of URLs keeps.

        Kannel counts a validity in whole minutes from when it reads the call, and with its SMSC away it keeps a
        message that long. So what the call may take is taken off first, then it is rounded down; what has less than
        a minute left after that is EXPIRED and does not leave.
        """
        spec, send = claimed.spec, claimed.send
        sender = send.sender or next(iter(spec.sender_names), "")
        try:
            gateway = read_settings(spec.settings, spec.credentials)
            _require_writable(gateway, sender, send.text)
        except ValueError as error:
            return answers.not_sent(ErrorClass.ROUTE_REJECTED, str(error))
        now = self.clock()
        validity = (send.expires_at - now - self.timeouts.total) // VALIDITY_UNIT
        if now >= send.submit_by or validity < 1:
            return answers.not_sent(ErrorClass.EXPIRED)
        call = _submission(gateway, send, sender, validity, spec.receipts_url)
        answer = await exchange(session, call, self.timeouts.until(send.submit_by - now))
        return answers.unanswered(answer) if isinstance(answer, NoAnswer) else _submit_result(spec.name, answer, now)

    async def query(self, session: aiohttp.ClientSession, question: Question) -> StatusReport | None:
        """None: Kannel cannot be asked about a message."""
        return None

    def receipts(self, spec: RouteSpec, posted: Posted) -> Sequence[Receipt]:
        """The one receipt of a call, which is all in its address; none where somebody wrote to us.

        Kannel signs nothing: the token makes it genuine.
        """
        fields = _genuine_fields(spec.credentials.get("receipt_token", ""), posted.url)
        kind, reply = fields.get("type", ""), fields.get("reply", "")
        if _is_inbound(fields):
            return []
        if not kind:
            raise Unreadable("The receipt has no type.")
        state = _state(spec.name, kind)
        error_class, error_code = _failure(kind, reply) if state is ReportedState.FAILED else (None, None)
        return [
            Receipt(
                state=state,
                attempt_uuid=_attempt(fields),
                provider_message_id=answers.foreign_id(normal_id(fields.get("id", ""))),
                error_class=error_class,
                error_code=error_code,
            )
        ]

    def inbound(self, spec: RouteSpec, posted: Posted) -> Sequence[Inbound]:
        """What somebody wrote to us: `from` and `text` in the address that an sms-service of Kannel's calls."""
        fields = _genuine_fields(spec.credentials.get("receipt_token", ""), posted.url)
        return [Inbound(international(fields["from"]), fields["text"])] if _is_inbound(fields) else []

    async def check(self, session: aiohttp.ClientSession, spec: RouteSpec) -> Health:
        """Whether Kannel runs and its SMSC is online, by the status page if the settings name one."""
        try:
            gateway = read_settings(spec.settings, spec.credentials)
        except ValueError as error:
            return Health(ok=False, detail=str(error))
        if not gateway.status_url:
            return Health(ok=True, detail="Kannel was not asked: the settings name no status_url.")
        answer = await exchange(session, _status_call(gateway), self.timeouts)
        if isinstance(answer, NoAnswer):
            return Health(ok=False, detail=f"No answer: {answer.cause}.")
        return _health(gateway, answer)


def _require_writable(gateway: Gateway, sender: str, text: str) -> None:
    """Raises ValueError for what would arrive changed: Kannel accepts a text that is too long, and cuts it off."""
    if sender and not _fits_header(sender):
        raise ValueError("The sender name is not plain ASCII.")
    if measure(text).parts > gateway.max_messages:
        raise ValueError("The text has more parts than max_messages in the settings of the route.")


def _submission(gateway: Gateway, send: Submittable, sender: str, validity: int, receipts_url: str) -> Call:
    is_gsm = measure(send.text).encoding is Encoding.GSM7
    headers = {
        "Content-Type": "text/plain; charset=UTF-8",
        "X-Kannel-Username": gateway.username,
        "X-Kannel-Password": gateway.password,
        "X-Kannel-To": send.to,
        "X-Kannel-Coding": "0" if is_gsm else "2",
        "X-Kannel-Validity": str(validity),
    }
    if sender:
        headers["X-Kannel-From"] = sender
    if gateway.smsc:
        headers["X-Kannel-SMSC"] = gateway.smsc
    if receipts_url:
        headers["X-Kannel-DLR-Mask"] = str(DLR_MASK)
        headers["X-Kannel-DLR-Url"] = _receipt_address(receipts_url, send.attempt_uuid, gateway.receipt_token)
    return Call("POST", gateway.url, send.text.encode(), headers)


def _receipt_address(receipts_url: str, attempt_uuid: UUID, token: str) -> str:
    """Where Kannel reports. It fills in what follows a %; one that is meant is written twice."""
    address, secret = receipts_url.replace("%", "%%"), quote(token, safe="").replace("%", "%%")
    return f"{address}?attempt={attempt_uuid}&type=%d&id=%F&reply=%A&t={secret}"


def _submit_result(route: str, answer: Answer, now: datetime) -> SubmitResult:
    if answer.status == 202 and answer.body.startswith(_TAKEN):
        return answers.accepted(answer, "")
    error_class = ERRORS.get(answer.status) or answers.class_of_status(answer.status)
    if error_class is None:
        log.warning("answer_not_known", route=route, status=answer.status)
        return answers.unclear(answer)
    return answers.refused(answer, error_class, answer.status, now=now)


def _genuine_fields(token: str, url: str) -> Mapping[str, str]:
    try:
        pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True, max_num_fields=_PARAMETERS_LIMIT)
    except ValueError:
        raise NotGenuine from None
    fields = dict(pairs)
    offered = fields.get("t", "").encode(errors="replace")
    if not token or not hmac.compare_digest(offered, token.encode()):
        raise NotGenuine
    return fields


def _is_inbound(fields: Mapping[str, str]) -> bool:
    return "type" not in fields and {"from", "text"} <= fields.keys()


def _attempt(fields: Mapping[str, str]) -> UUID:
    try:
        return UUID(fields.get("attempt", ""))
    except ValueError:
        raise Unreadable("The receipt names no attempt.") from None


def _state(route: str, kind: str) -> ReportedState:
    if kind not in STATES:
        log.warning("receipt_state_not_known", route=route, word=answers.showable(kind))
    return STATES.get(kind, ReportedState.UNKNOWN)


def _failure(kind: str, reply: str) -> tuple[ErrorClass, int | None]:
    """Whose fault it is and the SMSC's code, by its own words; they may end with what the message said."""
    if kind == _REFUSED_BY_SMSC:
        status = _STATUS.search(reply)
        if status is not None:
            code = int(status[1], 16)
            return smpp_rules.refusal(code), code
        return (ErrorClass.EXPIRED if _STALE in reply else ErrorClass.TEMPORARY), None
    word = _WORD.search(reply)
    meaning = smpp_rules.STATES.get(word[1].upper()) if word else None
    error_class = (meaning and meaning.error_class) or ErrorClass.RECIPIENT_UNREACHABLE
    return error_class, answers.whole_number(word[2]) if word else None


def _status_call(gateway: Gateway) -> Call:
    password = urlencode({"password": gateway.status_password}) if gateway.status_password else ""
    return Call("GET", f"{gateway.status_url}?{password}" if password else gateway.status_url)


def _health(gateway: Gateway, answer: Answer) -> Health:
    status = _GATEWAY.search(answer.body)
    if answer.status != 200 or status is None:
        return Health(ok=False, detail=f"The status page answered {answer.status}, and shows no status.")
    if status[1] != b"running":
        return Health(ok=False, detail=f"Kannel is {status[1].decode()}.")
    smscs = [
        state
        for name, state in _SMSC.findall(answer.body)
        if name.decode("latin-1") == gateway.smsc or not gateway.smsc
    ]
    if b"online" not in smscs:
        return Health(ok=False, detail="Kannel runs, and no SMSC of this route is online.")
    return Health(ok=True, detail="Kannel runs, and an SMSC of this route is online.")
