"""The simulated Twilio API is one for the official client library, and for our provider."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs

import aiohttp
import pytest
from aiohttp import web
from twilio.base.exceptions import TwilioRestException  # type: ignore[import-untyped]  # it ships no types
from twilio.http.http_client import TwilioHttpClient  # type: ignore[import-untyped]  # it ships no types
from twilio.request_validator import RequestValidator  # type: ignore[import-untyped]  # it ships no types
from twilio.rest import Client  # type: ignore[import-untyped]  # it ships no types

from otp_service.core.clock import utc_now
from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState, Submission
from otp_service.routes.providers.base import Posted
from otp_service.routes.providers.twilio import Twilio
from otp_service.routes.route_rules import RouteSpec
from otp_service.simulation import twilio_api
from otp_service.simulation.ledger import text_digest
from otp_service.simulation.twilio_api import Behaviour, TwilioApi
from tests.routes.providers.contract_base import NUMBER, TEXT, a_claim, a_question, a_send
from tests.routes.providers.test_twilio_contract import TOKEN, twilio_spec

ACCOUNT = twilio_spec("").credentials["account_sid"]


@dataclass
class Listener:
    """Takes what the provider posts, as the poster sees it."""

    port: int = 0
    status: int = 204
    posts: list[Posted] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/webhooks/providers/sms:one/"

    async def take(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        async with self.changed:
            self.posts.append(Posted(request.method, str(request.url), headers, await request.read()))
            self.changed.notify_all()
        return web.Response(status=self.status)

    async def wait_for(self, count: int) -> list[Posted]:
        async with asyncio.timeout(10), self.changed:
            await self.changed.wait_for(lambda: len(self.posts) >= count)
        return self.posts


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    listener = Listener()
    application = web.Application()
    application.router.add_post("/webhooks/providers/{route}/", listener.take)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    listener.port = runner.addresses[0][1]
    yield listener
    await runner.cleanup()


@pytest.fixture
async def api() -> AsyncIterator[TwilioApi]:
    async with TwilioApi(ACCOUNT, TOKEN, step=dt.timedelta(milliseconds=5)) as api:
        yield api


class _TowardsUs(TwilioHttpClient):  # type: ignore[misc]  # it ships no types
    """The library's own client, with another address in place of Twilio's."""

    def __init__(self, base_url: str) -> None:
        super().__init__(timeout=10)
        self._base_url = base_url

    def request(self, method: str, url: str, *args: Any, **values: Any) -> Any:
        return super().request(method, url.replace("https://api.twilio.com", self._base_url), *args, **values)


async def by_library(api: TwilioApi, token: str = TOKEN, **message: Any) -> Any:
    """Send through the official library, in a thread of its own."""
    http_client = _TowardsUs(api.base_url)
    client = Client(ACCOUNT, token, http_client=http_client)
    try:
        return await asyncio.to_thread(
            client.messages.create, **{"to": NUMBER, "from_": "ACME", "body": TEXT} | message
        )
    finally:
        http_client.session.close()


def spec_of(api: TwilioApi, listener: Listener) -> RouteSpec:
    return replace(twilio_spec(api.base_url), receipts_url=listener.url)


async def test_the_official_library_sends_through_it(api: TwilioApi, listener: Listener) -> None:
    message = await by_library(api, status_callback=listener.url, validity_period=60)
    await listener.wait_for(2)

    assert (message.status, message.error_code, message.to) == ("queued", None, NUMBER)
    (sent,) = api.ledger
    assert (sent.sid, sent.to, sent.sender, sent.validity_s) == (message.sid, NUMBER, "ACME", 60)
    assert sent.text_sha256 == text_digest(TEXT)


async def test_the_official_validator_takes_what_it_signs(api: TwilioApi, listener: Listener) -> None:
    message = await by_library(api, status_callback=f"{listener.url}?attempt=1")
    posts = await listener.wait_for(2)

    forms = [{name: values[0] for name, values in parse_qs(post.body.decode()).items()} for post in posts]
    assert [form["MessageStatus"] for form in forms] == ["sent", "delivered"]
    assert {form["MessageSid"] for form in forms} == {message.sid}
    for post, form in zip(posts, forms, strict=True):
        offered = post.headers["x-twilio-signature"]
        assert RequestValidator(TOKEN).validate(post.url, form, offered)
        assert not RequestValidator("another").validate(post.url, form, offered)


@pytest.mark.parametrize(
    ("message", "status", "code"),
    [
        ({"token": "another"}, 401, 20003),
        ({"to": "12"}, 400, 21211),
        ({"from_": ""}, 400, 21603),
        ({"body": ""}, 400, 21602),
        ({"body": "x" * 1601}, 400, 21617),
        ({"validity_period": 0}, 400, 21620),
        ({"validity_period": 36_001}, 400, 21620),
        ({"to": "+34600000099"}, 429, 20429),
    ],
    ids=["token", "number", "sender", "no text", "too long", "too short-lived", "too long-lived", "as it is told"],
)
async def test_the_official_library_understands_its_refusals(
    api: TwilioApi, message: dict[str, Any], status: int, code: int
) -> None:
    api.behaviour = Behaviour(refuse={"+34600000099": (429, 20429)})

    with pytest.raises(TwilioRestException) as raised:
        await by_library(api, **message)

    assert (raised.value.status, raised.value.code) == (status, code)
    assert not api.messages


async def test_our_provider_sends_and_its_receipts_are_genuine(
    api: TwilioApi, listener: Listener, session: aiohttp.ClientSession
) -> None:
    spec, send = spec_of(api, listener), a_send()

    result = await Twilio().submit(session, a_claim(spec, send))
    posts = await listener.wait_for(2)

    assert result.submission is Submission.ACCEPTED
    receipts = [receipt for post in posts for receipt in Twilio().receipts(spec, post)]
    sid = result.provider_message_id
    assert receipts == [
        Receipt(ReportedState.SENT, send.attempt_uuid, sid),
        Receipt(ReportedState.DELIVERED, send.attempt_uuid, sid),
    ]
    report = await Twilio().query(session, a_question(spec, sid))
    assert report is not None
    assert (report.answered, report.state) == (True, ReportedState.DELIVERED)
    assert (await Twilio().check(session, spec)).ok


async def test_a_message_that_cannot_be_delivered_says_why(
    api: TwilioApi, listener: Listener, session: aiohttp.ClientSession
) -> None:
    api.behaviour = Behaviour(undeliverable={NUMBER: 30003})
    spec = spec_of(api, listener)

    await Twilio().submit(session, a_claim(spec))
    posts = await listener.wait_for(2)

    (receipt,) = Twilio().receipts(spec, posts[-1])
    assert (receipt.state, receipt.error_class, receipt.error_code) == (
        ReportedState.FAILED,
        ErrorClass.TEMPORARY,
        30003,
    )


async def test_an_answer_that_is_lost_leaves_the_outcome_open_and_a_receipt_closes_it(
    api: TwilioApi, listener: Listener, session: aiohttp.ClientSession
) -> None:
    api.behaviour = Behaviour(loses_answers=True)
    spec, send = spec_of(api, listener), a_send()

    result = await Twilio().submit(session, a_claim(spec, send))
    posts = await listener.wait_for(2)

    assert (result.submission, result.error_class) == (Submission.UNKNOWN, ErrorClass.TIMEOUT_AFTER_SUBMIT)
    (receipt,) = Twilio().receipts(spec, posts[-1])
    assert (receipt.state, receipt.attempt_uuid) == (ReportedState.DELIVERED, send.attempt_uuid)
    assert len(api.ledger) == 1


async def test_what_waited_longer_than_it_was_valid_is_never_sent(
    api: TwilioApi, listener: Listener, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter([utc_now(), utc_now() + dt.timedelta(minutes=5)])
    monkeypatch.setattr(twilio_api, "utc_now", lambda: next(moments))
    spec = spec_of(api, listener)

    await Twilio().submit(session, a_claim(spec))
    (post,) = await listener.wait_for(1)

    (receipt,) = Twilio().receipts(spec, post)
    assert (receipt.state, receipt.error_class) == (ReportedState.FAILED, ErrorClass.EXPIRED)
    assert not api.ledger


async def test_a_message_that_it_never_took_is_not_found(
    api: TwilioApi, listener: Listener, session: aiohttp.ClientSession
) -> None:
    report = await Twilio().query(session, a_question(spec_of(api, listener), "SM404"))

    assert report is not None
    assert (report.answered, report.state) == (True, ReportedState.NOT_FOUND)


async def test_a_receipt_that_is_refused_is_not_repeated_and_the_next_one_comes(
    api: TwilioApi, listener: Listener, session: aiohttp.ClientSession
) -> None:
    listener.status = 500

    await Twilio().submit(session, a_claim(spec_of(api, listener)))
    posts = await listener.wait_for(2)

    assert [b"MessageStatus=delivered" in post.body for post in posts] == [False, True]


async def test_neither_numbers_nor_secrets_show_in_a_repr(api: TwilioApi) -> None:
    api.behaviour = Behaviour(undeliverable={NUMBER: 1}, refuse={NUMBER: (400, 1)})
    await by_library(api, to="+34600000018")

    shown = f"{api!r} {api.behaviour!r} {api.messages!r}"
    for secret in (NUMBER, "34600000018", TOKEN):
        assert secret not in shown
