"""A provider that speaks as Twilio's Messages API does, over real HTTP, and posts signed receipts.

async with TwilioApi("AC01", "token") as api:
    api.base_url  # the `base_url` of a route's settings
    api.ledger    # what was sent to phones
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import random
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import format_datetime
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
from aiohttp import web

from otp_service.core.clock import utc_now
from otp_service.routes.providers.twilio import ATTEMPT, VALIDITY_LIMIT_S, signature
from otp_service.simulation.ledger import text_digest

logger = logging.getLogger(__name__)

TEXT_LIMIT = 1_600  # characters of a Body
MEMORY_LIMIT = 100_000  # messages that are kept: the oldest are forgotten
POST_TIMEOUT = timedelta(seconds=5)
_RECEIPTS_AT_ONCE = 8  # of those that were held
_SHUTDOWN_SECONDS = 0.2  # for calls that are still being answered

AUTHENTICATE = (401, 20003, "Authenticate")
NOT_FOUND = (404, 20404, "The requested resource was not found")
TO_INVALID = (400, 21211, "Invalid 'To' Phone Number")
FROM_MISSING = (400, 21603, "A 'From' phone number is required")
BODY_MISSING = (400, 21602, "Message body is required")
BODY_TOO_LONG = (400, 21617, "The message body exceeds the 1600 character limit")
VALIDITY_INVALID = (400, 21620, "Invalid validity period value")


@dataclass(slots=True, repr=False)
class SentMessage:
    """One message that was taken. The text is kept as a hash: enough to tell copies from one another."""

    sid: str
    to: str
    sender: str
    text_sha256: str
    validity_s: int
    callback: str
    at: datetime
    status: str = "queued"
    error_code: int | None = None

    def __repr__(self) -> str:
        return f"<SentMessage {self.sid} {self.status}>"

    @property
    def attempt(self) -> str:
        """What the sender calls it, in the address for its receipts; "" where nothing is said there."""
        return next(iter(parse_qs(urlsplit(self.callback).query).get(ATTEMPT, ())), "")


@dataclass(slots=True)
class Behaviour:
    """What the provider does otherwise than well."""

    refuse: Mapping[str, tuple[int, int]] = field(default_factory=dict, repr=False)  # by recipient: status, code
    undeliverable: Mapping[str, int] = field(default_factory=dict, repr=False)  # by recipient: code
    refuse_all: tuple[int, int] | None = None  # whatever is submitted: status, code
    retry_after_s: int | None = None  # told with such a refusal
    loses_answers: bool = False  # takes the message, and cuts the connection
    answers_after: timedelta = timedelta()  # takes the message at once, and says so as much later
    holds_receipts: bool = False  # until they are released


class TwilioApi:
    """Plays one account. All methods belong to the loop that started it."""

    def __init__(
        self, account_sid: str, auth_token: str, *, port: int = 0, step: timedelta = timedelta(milliseconds=20)
    ) -> None:
        self.account_sid = account_sid
        self.behaviour = Behaviour()
        self.ledger: deque[SentMessage] = deque(maxlen=MEMORY_LIMIT)  # what left, oldest first
        self.messages: dict[str, SentMessage] = {}
        self.receipts_lost = 0  # that nobody took
        self.port = port
        self.auth_token = auth_token
        self._step = step
        self._runner = web.AppRunner(self._application(), access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        self._site: web.TCPSite | None = None
        self._session: aiohttp.ClientSession | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: list[tuple[str, dict[str, str]]] = []  # receipts: address, form

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        try:
            await self.listen()
        except OSError:
            await self._runner.cleanup()
            raise
        self._session = aiohttp.ClientSession(trust_env=False, cookie_jar=aiohttp.DummyCookieJar())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    async def listen(self) -> None:
        """Take connections, at the same port after `hang_up`. Raises OSError where the port is taken."""
        self._site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await self._site.start()
        self.port = int(self._runner.addresses[0][1])

    async def hang_up(self) -> None:
        """End every connection, and refuse new ones. What was taken goes on to its end."""
        assert self._site is not None
        assert self._runner.server is not None
        await self._site.stop()
        await self._runner.server.shutdown(_SHUTDOWN_SECONDS)

    async def release_receipts(self, *, copies: int = 1, rng: random.Random) -> None:
        """Post what was held, as many copies of each, in no order."""
        self.behaviour.holds_receipts = False
        posts, self._held = self._held * copies, []
        rng.shuffle(posts)
        at_once = asyncio.Semaphore(_RECEIPTS_AT_ONCE)

        async def post(address: str, form: dict[str, str]) -> None:
            async with at_once:
                await self._post(address, form)

        await asyncio.gather(*(post(address, form) for address, form in posts))

    @property
    def base_url(self) -> str:
        """The address that stands for https://api.twilio.com."""
        return f"http://127.0.0.1:{self.port}"

    def _application(self) -> web.Application:
        application = web.Application()
        account = "/2010-04-01/Accounts/{account}"
        application.add_routes(
            [
                web.get(account + ".json", self._account),
                web.post(account + "/Messages.json", self._submit),
                web.get(account + "/Messages/{sid}.json", self._query),
            ]
        )
        return application

    async def _account(self, request: web.Request) -> web.Response:
        if not self._may(request):
            return _refuse(AUTHENTICATE)
        return web.json_response({"sid": self.account_sid, "status": "active", "type": "Full"})

    async def _submit(self, request: web.Request) -> web.Response:
        if not self._may(request):
            return _refuse(AUTHENTICATE)
        form = {name: str(value) for name, value in (await request.post()).items()}
        behaviour = self.behaviour
        if behaviour.refuse_all is not None:
            return _refuse((*behaviour.refuse_all, "Simulated."), retry_after_s=behaviour.retry_after_s)
        refusal = self._refusal(form)
        if refusal is not None:
            return _refuse(refusal)
        message = self._take(form)
        await asyncio.sleep(behaviour.answers_after.total_seconds())
        if behaviour.loses_answers and request.transport is not None:
            request.transport.abort()
        return web.json_response(self._document(message), status=201)

    async def _query(self, request: web.Request) -> web.Response:
        if not self._may(request):
            return _refuse(AUTHENTICATE)
        message = self.messages.get(request.match_info["sid"])
        return _refuse(NOT_FOUND) if message is None else web.json_response(self._document(message))

    def _may(self, request: web.Request) -> bool:
        expected = base64.b64encode(f"{self.account_sid}:{self.auth_token}".encode()).decode()
        offered = request.headers.get("Authorization", "").encode(errors="replace")
        is_own = hmac.compare_digest(offered, f"Basic {expected}".encode())
        return is_own and request.match_info["account"] == self.account_sid

    def _refusal(self, form: Mapping[str, str]) -> tuple[int, int, str] | None:
        to, text = form.get("To", ""), form.get("Body", "")
        if to in self.behaviour.refuse:
            return (*self.behaviour.refuse[to], "Simulated.")
        if not to.startswith("+") or not to[1:].isdecimal():
            return TO_INVALID
        if not form.get("From") and not form.get("MessagingServiceSid"):
            return FROM_MISSING
        if not text or len(text) > TEXT_LIMIT:
            return BODY_TOO_LONG if text else BODY_MISSING
        validity = form.get("ValidityPeriod", str(VALIDITY_LIMIT_S))
        is_valid = validity.isdecimal() and 1 <= int(validity[:6]) <= VALIDITY_LIMIT_S
        return None if is_valid else VALIDITY_INVALID

    def _take(self, form: Mapping[str, str]) -> SentMessage:
        message = SentMessage(
            sid=f"SM{uuid.uuid4().hex}",
            to=form["To"],
            sender=form.get("From") or form["MessagingServiceSid"],
            text_sha256=text_digest(form["Body"]),
            validity_s=int(form.get("ValidityPeriod", VALIDITY_LIMIT_S)),
            callback=form.get("StatusCallback", ""),
            at=utc_now(),
        )
        self.messages[message.sid] = message
        if len(self.messages) > MEMORY_LIMIT:
            del self.messages[next(iter(self.messages))]
        task = asyncio.create_task(self._carry_out(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return message

    async def _carry_out(self, message: SentMessage) -> None:
        """Play one message to its end; one that waits too long is never sent."""
        await asyncio.sleep(self._step.total_seconds())
        if utc_now() >= message.at + timedelta(seconds=message.validity_s):
            await self._move(message, "failed", 30036)
            return
        self.ledger.append(message)
        await self._move(message, "sent")
        await asyncio.sleep(self._step.total_seconds())
        code = self.behaviour.undeliverable.get(message.to)
        await self._move(message, "delivered" if code is None else "undelivered", code)

    async def _move(self, message: SentMessage, status: str, error_code: int | None = None) -> None:
        message.status, message.error_code = status, error_code
        if not message.callback:
            return
        if self.behaviour.holds_receipts:
            self._held.append((message.callback, self._receipt(message)))
        else:
            await self._post(message.callback, self._receipt(message))

    def _receipt(self, message: SentMessage) -> dict[str, str]:
        form = {
            "MessageSid": message.sid,
            "SmsSid": message.sid,
            "MessageStatus": message.status,
            "SmsStatus": message.status,
            "AccountSid": self.account_sid,
            "From": message.sender,
            "To": message.to,
            "ApiVersion": "2010-04-01",
        }
        if message.error_code is not None:
            form["ErrorCode"] = str(message.error_code)
        return form

    async def _post(self, address: str, form: dict[str, str]) -> None:
        """Tell once: this provider does not repeat a post that failed."""
        assert self._session is not None
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "X-Twilio-Signature": signature(self.auth_token, address, list(form.items())),
        }
        try:
            async with self._session.post(
                address,
                data=urlencode(form).encode(),
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=POST_TIMEOUT.total_seconds()),
                allow_redirects=False,
            ) as response:
                if response.status >= 400:
                    self.receipts_lost += 1
                    logger.warning("a receipt was refused with %d", response.status)
        except (aiohttp.ClientError, OSError) as error:
            self.receipts_lost += 1
            logger.warning("a receipt was not taken: %s", type(error).__name__)

    def _document(self, message: SentMessage) -> dict[str, object]:
        return {
            "sid": message.sid,
            "account_sid": self.account_sid,
            "api_version": "2010-04-01",
            "body": "",  # not kept
            "date_created": format_datetime(message.at, usegmt=False),
            "date_sent": None,
            "date_updated": format_datetime(message.at, usegmt=False),
            "direction": "outbound-api",
            "error_code": message.error_code,
            "error_message": None,
            "from": message.sender,
            "messaging_service_sid": None,
            "num_media": "0",
            "num_segments": "1",
            "price": None,
            "price_unit": "USD",
            "status": message.status,
            "subresource_uris": {},
            "to": message.to,
            "uri": f"/2010-04-01/Accounts/{self.account_sid}/Messages/{message.sid}.json",
        }


def _refuse(refusal: tuple[int, int, str], *, retry_after_s: int | None = None) -> web.Response:
    status, code, sentence = refusal
    more_info = f"https://www.twilio.com/docs/errors/{code}"
    return web.json_response(
        {"code": code, "message": sentence, "more_info": more_info, "status": status},
        status=status,
        headers={} if retry_after_s is None else {"Retry-After": str(retry_after_s)},
    )
