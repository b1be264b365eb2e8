"""One simulated BlueBubbles server over real HTTP: a Mac with one account, its messages, and its unsigned webhooks.

async with BlueBubblesHost(number=7, password="…", webhook_url=url) as host:
    host.base_url  # what a Host's base_url must be
    host.quirks = Quirks(answers_500_after_sending=True)
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

from otp_service.core.clock import utc_now
from otp_service.simulation.behaviours import Timings
from otp_service.simulation.ledger import Ledger, LedgerEntry, text_digest

Row = dict[str, Any]

_API = "/api/v1"
_POST_SECONDS = 5.0
_DEFAULT_TIMINGS = Timings()


@dataclass(frozen=True, slots=True)
class Quirks:
    """How the host misbehaves from now on; as it is made, it works."""

    chat_prefix: str = "iMessage"  # "any" since macOS 26, "SMS" when it falls back
    doubles_new_message: bool = False  # posted before the send is matched, and again with its tempGuid
    update_after: timedelta | None = timedelta(0)  # of `updated-message` after the delivery; None: it is missing
    answers_500_after_sending: bool = False
    error: int = 0  # what each message fails with
    posts_errors: bool = True  # whether failures are posted
    signed_out: bool = False  # Messages raises an exception before it sends


class BlueBubblesHost:
    """Plays one server. All methods belong to the loop that started it."""

    def __init__(
        self, *, number: int, password: str, webhook_url: str = "", timings: Timings = _DEFAULT_TIMINGS
    ) -> None:
        self.number = number
        self.port = 0
        self.quirks = Quirks()
        self.ledger = Ledger()
        self.messages: dict[str, Row] = {}  # what the Mac keeps: by guid, oldest first
        self._password = password
        self._webhook_url = webhook_url
        self._timings = timings
        self._sending: set[str] = set()  # each tempGuid while its message is on its way
        self._tasks: set[asyncio.Task[None]] = set()
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(trust_env=False, cookie_jar=aiohttp.DummyCookieJar())
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    @property
    def base_url(self) -> str:
        """The address of the host."""
        return f"http://127.0.0.1:{self.port}"

    @contextlib.asynccontextmanager
    async def restarting(self) -> AsyncIterator[None]:
        """Down inside the block: it refuses connections, posts nothing, and forgets what is on its way.

        The Mac keeps its messages, and goes on delivering what it has sent.
        """
        await self._stop()
        yield
        await self._start()
        self._post("hello-world", None)

    def receive(self, sender: str, text: str) -> Row:
        """A person writes to the account."""
        row = self._row(sender, text, is_from_me=False)
        self._post("new-message", row)
        return row

    def remove_aliases(self, *aliases: str) -> None:
        """The service takes handles away: from now on nothing is sent."""
        self.quirks = replace(self.quirks, signed_out=True)
        self._post("imessage-aliases-removed", {"aliases": list(aliases)})

    async def settled(self) -> None:
        """Wait until nothing is on its way, to phones or to us."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _start(self) -> None:
        application = web.Application(middlewares=[self._authenticate])
        application.add_routes(
            [
                web.get(f"{_API}/ping", self._ping),
                web.get(f"{_API}/server/info", self._info),
                web.post(f"{_API}/message/text", self._send_text),
                web.post(f"{_API}/message/query", self._search),
                web.get(f"{_API}/message/{{guid}}", self._find),
            ]
        )
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = int(self._runner.addresses[0][1])

    async def _stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        self._sending.clear()

    @web.middleware
    async def _authenticate(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        offered = next((request.query[name] for name in ("guid", "password", "token") if name in request.query), "")
        if not hmac.compare_digest(offered.encode(), self._password.encode()):
            return _failure(401, "Authentication Error", "Unauthorized", "Invalid password")
        return await handler(request)

    async def _ping(self, _request: web.Request) -> web.Response:
        return _success("Ping received!", "pong")

    async def _info(self, _request: web.Request) -> web.Response:
        account = None if self.quirks.signed_out else "account@example.com"
        info = {"server_version": "1.9.9", "private_api": False, "detected_imessage": account}
        return _success("Success", info)

    async def _send_text(self, request: web.Request) -> web.Response:
        document = json.loads(await request.read())
        temp_guid, text = document.get("tempGuid"), document.get("message")
        for name, value in (("tempGuid", temp_guid), ("message", text)):
            if not value:
                return _invalid(f"A '{name}' is required when sending via AppleScript")
        if temp_guid in self._sending:
            return _invalid(f"Message is already queued to be sent! (Temp GUID: {temp_guid})")
        self._sending.add(temp_guid)
        try:
            return await self._send(document["chatGuid"], temp_guid, text)
        finally:
            self._sending.discard(temp_guid)

    async def _send(self, chat_guid: str, temp_guid: str, text: str) -> web.Response:
        quirks = self.quirks
        if quirks.signed_out:
            return _failure(500, "iMessage Error", "Message Send Error", "Can't get account (-1728)")
        await asyncio.sleep(self._timings.to_sent.total_seconds())
        row = self._row(chat_guid.rpartition(";")[2], text, is_from_me=True)
        if quirks.error:
            return self._fail(row, temp_guid, quirks)
        self._keep_in_ledger(row, temp_guid)
        if quirks.doubles_new_message:
            self._post("new-message", row)
        self._post("new-message", {**row, "tempGuid": temp_guid})
        self._begin(self._deliver(row, quirks))
        if quirks.answers_500_after_sending:
            error = "Failed to send message! See attached message error code."
            return _failure(500, "iMessage Error", "Message Send Error", error)
        return _success("Message sent!", {**row, "tempGuid": temp_guid})

    def _fail(self, row: Row, temp_guid: str, quirks: Quirks) -> web.Response:
        row["error"] = quirks.error
        named = {**row, "tempGuid": temp_guid}
        if quirks.posts_errors:
            self._post("message-send-error", named)
        message = "Message sent with an error. See attached message"
        return _failure(500, "iMessage Error", message, "Message failed to send!", named)

    async def _deliver(self, row: Row, quirks: Quirks) -> None:
        await asyncio.sleep(self._timings.to_delivered.total_seconds())
        row["dateDelivered"], row["isDelivered"] = _milliseconds(utc_now()), True
        if quirks.update_after is not None:
            await asyncio.sleep(quirks.update_after.total_seconds())
            self._post("updated-message", row)

    async def _find(self, request: web.Request) -> web.Response:
        row = self.messages.get(request.match_info["guid"])
        if row is None:
            return _failure(404, "Database Error", "The requested resource was not found", "Message does not exist!")
        return _success("Success", row)

    async def _search(self, request: web.Request) -> web.Response:
        """`after`, `before`, `limit`, and the conditions that we use: a pattern for the chat, and who wrote."""
        document = json.loads(await request.read())
        arguments = {name: value for item in document["where"] for name, value in item["args"].items()}
        rows = [
            row
            for row in self.messages.values()
            if document["after"] <= row["dateCreated"] <= document["before"]
            and row["chats"][0]["guid"].endswith(arguments["chat"].removeprefix("%"))
            and row["isFromMe"] is bool(arguments["me"])
        ]
        page = rows[: document["limit"]]
        return _success("Successfully fetched messages!", page)

    def _row(self, other: str, text: str, *, is_from_me: bool) -> Row:
        """A message as the Mac keeps it."""
        guid, prefix = str(uuid.uuid4()).upper(), self.quirks.chat_prefix
        service = "iMessage" if prefix == "any" else prefix
        self.messages[guid] = {
            "originalROWID": len(self.messages) + 1,
            "guid": guid,
            "text": text,
            "handle": {"address": other, "service": service},
            "chats": [{"guid": f"{prefix};-;{other}", "style": 45, "chatIdentifier": other}],
            "error": 0,
            "dateCreated": _milliseconds(utc_now()),
            "dateRead": None,
            "dateDelivered": None,
            "isDelivered": False,
            "isFromMe": is_from_me,
            "itemType": 0,
            "associatedMessageGuid": None,
        }
        return self.messages[guid]

    def _keep_in_ledger(self, row: Mapping[str, Any], temp_guid: str) -> None:
        self.ledger.add(
            LedgerEntry(
                to=row["handle"]["address"],
                attempt_id=uuid.UUID(temp_guid),
                unit=self.number,
                host=self.number,
                at=utc_now(),
                service=row["handle"]["service"].lower(),
                text_sha256=text_digest(row["text"]),
            )
        )

    def _post(self, kind: str, data: object) -> None:
        """Post once, whatever comes of it; a host that is down posts nothing."""
        if self._webhook_url and self._runner is not None:
            self._begin(self._call(json.dumps({"type": kind, "data": data}).encode()))

    async def _call(self, body: bytes) -> None:
        assert self._session is not None
        headers, timeout = {"Content-Type": "application/json"}, aiohttp.ClientTimeout(total=_POST_SECONDS)
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with self._session.post(self._webhook_url, data=body, headers=headers, timeout=timeout):
                return

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _success(message: str, data: object) -> web.Response:
    return web.json_response({"status": 200, "message": message, "data": data})


def _invalid(error: str) -> web.Response:
    return _failure(
        400, "Validation Error", "You've made a bad request! Please check your request params & body", error
    )


def _failure(status: int, kind: str, message: str, error: str, data: object = None) -> web.Response:
    document = {"status": status, "message": message, "error": {"type": kind, "message": error}, "data": data}
    return web.json_response(document, status=status)
