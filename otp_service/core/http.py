"""The one HTTP seam towards relay hosts and providers: bounded in time and size, and it says whether a request left."""

from __future__ import annotations

import email.utils
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import aiohttp

#: To a connection, waiting for a free one in the pool included.
CONNECT_TIMEOUT = timedelta(seconds=3)
#: The whole call, headers and body. A lease on an attempt must be longer.
TOTAL_TIMEOUT = timedelta(seconds=10)
RESPONSE_LIMIT = 64 * 1024  # bytes; the longest answer of the protocol, a host's health, is shorter
RETRY_AFTER_LIMIT = timedelta(hours=1)  # a host cannot put us off for longer

_RETRY_AFTER_DIGITS = 9
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "otp-service"}

#: Raised before a byte of the request was written. Everything else may have been read by the host.
_NEVER_LEFT = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.InvalidURL,
    aiohttp.NonHttpUrlClientError,
    UnicodeError,  # a host name that cannot be looked up
)


@dataclass(frozen=True, slots=True)
class Call:
    """One request. Its repr shows neither body nor signature, nor the address: that may hold a password."""

    method: str
    url: str = field(repr=False)
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply, of which at most RESPONSE_LIMIT bytes were read; `whole` is False when some are missing."""

    status: int
    body: bytes = field(repr=False)
    whole: bool
    retry_after: str = ""

    def document(self) -> dict[str, object] | None:
        """The JSON object in the body, None when it is anything else."""
        if not self.whole:
            return None
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Nobody replied. `left` is False when it is certain that the host never saw the request."""

    left: bool
    cause: str  # the name of the error, for people


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long one call may take."""

    connect: timedelta = CONNECT_TIMEOUT
    total: timedelta = TOTAL_TIMEOUT

    def until(self, remaining: timedelta) -> Timeouts:
        """The same, with a connection made before `remaining` (> 0) has passed, or not at all."""
        return Timeouts(connect=min(self.connect, remaining), total=self.total)


DEFAULT_TIMEOUTS = Timeouts()


async def exchange(session: aiohttp.ClientSession, call: Call, timeouts: Timeouts) -> Answer | NoAnswer:
    """Carry out one call, once. Raises nothing that the host or the network did; cancellation passes through."""
    # aiohttp sends GET and PUT again by itself when the connection breaks: a message would leave twice, unseen by us.
    session._retry_connection = False  # noqa: SLF001 - there is no public switch
    try:
        async with session.request(
            call.method,
            call.url,
            data=call.body or None,
            headers={**_HEADERS, **call.headers},
            timeout=_client_timeout(timeouts),
            allow_redirects=False,
        ) as response:
            return await _read(response)
    except _NEVER_LEFT as error:
        return NoAnswer(left=False, cause=type(error).__name__)
    except (aiohttp.ClientError, OSError) as error:
        return NoAnswer(left=True, cause=type(error).__name__)


def _client_timeout(timeouts: Timeouts) -> aiohttp.ClientTimeout:
    # aiohttp rounds long time-outs up to whole seconds, unless the threshold is out of reach.
    return aiohttp.ClientTimeout(
        total=timeouts.total.total_seconds(), connect=timeouts.connect.total_seconds(), ceil_threshold=math.inf
    )


async def _read(response: aiohttp.ClientResponse) -> Answer:
    body = bytearray()
    try:
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > RESPONSE_LIMIT:
                break
        whole = len(body) <= RESPONSE_LIMIT
    except (aiohttp.ClientError, OSError):
        whole = False  # the status was read, and says enough where it is a refusal
    return Answer(
        status=response.status,
        body=bytes(body[:RESPONSE_LIMIT]),
        whole=whole,
        retry_after=response.headers.get("Retry-After", ""),
    )


def retry_after(header: str, *, now: datetime) -> timedelta | None:
    """How long a `Retry-After` (seconds or an HTTP date) asks us to wait, bounded; None if it says nothing."""
    text = header.strip()
    if text.isascii() and text.isdigit():
        return min(timedelta(seconds=int(text[:_RETRY_AFTER_DIGITS])), RETRY_AFTER_LIMIT)
    moment = _http_date(text)
    if moment is None:
        return None
    return min(max(moment - now, timedelta(0)), RETRY_AFTER_LIMIT)


def _http_date(text: str) -> datetime | None:
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
