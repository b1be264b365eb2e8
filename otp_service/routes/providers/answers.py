"""What the answer of an HTTP provider to a submission says before its own words are read."""

from __future__ import annotations

import re
from datetime import datetime

from otp_service.core.http import Answer, NoAnswer, retry_after
from otp_service.core.outcomes import RAW_REPLY_LIMIT, ErrorClass, Submission, SubmitResult
from servers.relay.fields import GUID_LIMIT, INT_MAX, INT_MIN, is_storable

#: A redirect that says "ask again over there" did nothing here; a 303 may answer what was done.
_NOT_DONE_REDIRECTS = frozenset({301, 302, 307, 308})
_REQUEST_TIMEOUT = 408  # whether the provider read enough of the request is not known
#: Longest numeral that is read: more digits are no code of anybody's.
_NUMERAL = re.compile(r"-?[0-9]{1,10}", re.ASCII)
#: What may be logged of a foreign word: never a number that could be a code or a telephone's.
_SHOWABLE = re.compile(r"[A-Za-z_]{1,32}|[0-9]{1,5}", re.ASCII)


def not_sent(error_class: ErrorClass, why: str = "") -> SubmitResult:
    """Nothing left: `why` is for people, without secrets."""
    return SubmitResult(Submission.NOT_CONNECTED, error_class=error_class, raw=why)


def unanswered(answer: NoAnswer) -> SubmitResult:
    """Nobody replied."""
    if answer.left:
        return SubmitResult(Submission.UNKNOWN, error_class=ErrorClass.TIMEOUT_AFTER_SUBMIT, raw=answer.cause)
    return not_sent(ErrorClass.CONNECTION_REFUSED, answer.cause)


def accepted(answer: Answer, provider_message_id: str) -> SubmitResult:
    """The provider has it."""
    return SubmitResult(Submission.ACCEPTED, provider_message_id=provider_message_id, raw=raw_reply(answer))


def unclear(answer: Answer) -> SubmitResult:
    """The provider may have it."""
    return SubmitResult(Submission.UNKNOWN, error_class=ErrorClass.TIMEOUT_AFTER_SUBMIT, raw=raw_reply(answer))


def refused(answer: Answer, error_class: ErrorClass, error_code: int | None, *, now: datetime) -> SubmitResult:
    """The provider said no."""
    return SubmitResult(
        Submission.REFUSED,
        error_class=error_class,
        error_code=error_code,
        retry_after=retry_after(answer.retry_after, now=now) if error_class is ErrorClass.THROTTLED else None,
        raw=raw_reply(answer),
    )


def class_of_status(status: int) -> ErrorClass | None:
    """Whose fault a refusal is by its HTTP status alone; None where the status does not say that it is one."""
    if status == 429:
        return ErrorClass.THROTTLED
    is_refusal = 400 <= status < 500 and status != _REQUEST_TIMEOUT
    return ErrorClass.ROUTE_REJECTED if is_refusal or status in _NOT_DONE_REDIRECTS else None


def foreign_id(value: object) -> str:
    """A provider's id that can be kept and put into a path; "" for anything else."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    is_id = isinstance(text, str) and len(text) <= GUID_LIMIT and is_storable(text) and text not in {".", ".."}
    return str(text) if is_id else ""


def whole_number(value: object) -> int | None:
    """A code that an integer column holds, given as a number or as digits."""
    if isinstance(value, bool) or not isinstance(value, int | str) or not _NUMERAL.fullmatch(str(value)[:12]):
        return None
    number = int(str(value)[:12])
    return number if INT_MIN <= number <= INT_MAX else None


def showable(word: object) -> str:
    """What may be logged of a word that nobody knows."""
    text = word if isinstance(word, str) else str(word) if isinstance(word, int) else ""
    return text if _SHOWABLE.fullmatch(text) else "(not shown)"


def raw_reply(answer: Answer) -> str:
    """The reply for people, with the status in front: many an error has no body."""
    reply = f"{answer.status} ".encode() + answer.body
    return reply[:RAW_REPLY_LIMIT].decode("utf-8", errors="ignore").replace("\x00", "")
