"""The simulated BlueBubbles host misbehaves as real ones do, and its posts can be read by the product."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from otp_service.core.clock import utc_now
from otp_service.core.outcomes import ErrorClass, ReportedState, StatusReport, Submission, SubmitResult, Submittable
from otp_service.simulation.bluebubbles_host import BlueBubblesHost, Quirks
from servers.relay.base import HostAddress, Known
from servers.relay.bluebubbles import BlueBubbles
from servers.relay.bluebubbles_events import parse_events
from servers.relay.events import Delivered, EventData, Heartbeat, Inbound, MessageFailed, MessageSent, UnitStatus
from tests.relay_fixture import FAST
from tests.simulation.play import NUMBER, TEXT, UNIT, a_send

PASSWORD = "a password"


@dataclass(slots=True)
class Play:
    """A host at play, and what it posted."""

    session: aiohttp.ClientSession
    posts: list[bytes] = field(default_factory=list)
    host: BlueBubblesHost = field(init=False)

    @property
    def address(self) -> HostAddress:
        return HostAddress(host_id=1, number=UNIT, base_url=self.host.base_url, secrets=(PASSWORD,))

    async def submit(self, send: Submittable) -> SubmitResult:
        """Hand it over, and wait until the host is quiet."""
        result = await BlueBubbles().submit(self.session, self.address, send)
        await self.host.settled()
        return result

    async def query(self, send: Submittable, guid: str = "") -> StatusReport:
        known = Known(NUMBER, (TEXT,), submitted_at=utc_now(), guid=guid)
        return await BlueBubbles().query(self.session, self.address, send.attempt_uuid, known)

    def left(self, send: Submittable) -> int:
        return len(self.host.ledger.find(attempt_id=send.attempt_uuid))

    def types(self) -> list[str]:
        return [json.loads(post)["type"] for post in self.posts]

    def told(self) -> list[EventData]:
        return [event.data for post in self.posts for event in parse_events(post, unit=UNIT, now=utc_now())]

    async def take(self, request: web.Request) -> web.Response:
        self.posts.append(await request.read())
        return web.Response()


@pytest.fixture
async def play(session: aiohttp.ClientSession) -> AsyncIterator[Play]:
    play = Play(session)
    application = web.Application()
    application.router.add_post("/hook", play.take)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    async with BlueBubblesHost(number=UNIT, password=PASSWORD, webhook_url=url, timings=FAST) as play.host:
        yield play
    await runner.cleanup()


async def test_a_host_that_works_sends_delivers_and_tells(play: Play) -> None:
    send = a_send()

    result = await play.submit(send)

    assert (result.submission, play.left(send)) == (Submission.ACCEPTED, 1)
    guid = result.provider_message_id
    told = play.told()  # calls may overtake one another
    assert len(told) == 3
    assert MessageSent(send.attempt_uuid, guid, success=True, service="imessage", error_code=None) in told
    assert MessageSent(None, guid, success=True, service="imessage", error_code=None) in told
    assert Delivered(None, guid, "imessage") in told
    by_guid, by_search = await play.query(send, guid), await play.query(send)
    assert by_guid == by_search
    assert (by_guid.state, by_guid.provider_message_id) == (ReportedState.DELIVERED, guid)


@pytest.mark.parametrize(
    ("quirks", "posts"),
    [
        (Quirks(), ["new-message", "updated-message"]),
        (Quirks(doubles_new_message=True), ["new-message", "new-message", "updated-message"]),
        (Quirks(update_after=None), ["new-message"]),
        (Quirks(update_after=dt.timedelta(milliseconds=30)), ["new-message", "updated-message"]),
        (Quirks(chat_prefix="any"), ["new-message", "updated-message"]),
        (Quirks(answers_500_after_sending=True), ["new-message", "updated-message"]),
    ],
    ids=["none", "new-message twice", "no updated-message", "a late updated-message", "any chat", "500 after sending"],
)
async def test_whatever_a_host_posts_a_question_finds_that_it_delivered(
    play: Play, quirks: Quirks, posts: list[str]
) -> None:
    play.host.quirks = quirks
    send = a_send()

    await play.submit(send)

    assert sorted(play.types()) == posts
    assert (await play.query(send)).state is ReportedState.DELIVERED
    assert play.left(send) == 1


async def test_a_500_after_the_send_is_unknown_and_no_failure(play: Play) -> None:
    play.host.quirks = Quirks(answers_500_after_sending=True)

    result = await play.submit(a_send())

    assert (result.submission, result.error_class) == (Submission.UNKNOWN, ErrorClass.TIMEOUT_AFTER_SUBMIT)


@pytest.mark.parametrize("posts_errors", [True, False], ids=["posted", "without an event"])
async def test_a_message_that_fails_has_its_code_in_the_answer_and_when_asked(
    play: Play, *, posts_errors: bool
) -> None:
    play.host.quirks = Quirks(error=22, posts_errors=posts_errors)
    send = a_send()

    result = await play.submit(send)
    report = await play.query(send)

    assert (result.submission, result.error_class) == (Submission.REFUSED, ErrorClass.RECIPIENT_UNREACHABLE)
    assert (report.state, report.error_code) == (ReportedState.FAILED, 22)
    expected = [MessageFailed(send.attempt_uuid, report.provider_message_id, 22, "")]
    assert play.told() == (expected if posts_errors else [])
    assert play.left(send) == 0


async def test_a_host_whose_aliases_are_removed_says_so_and_sends_no_more(play: Play) -> None:
    send = a_send()
    play.host.remove_aliases("+34600000001")

    result = await play.submit(send)
    health = await BlueBubbles().check(play.session, play.address)

    assert play.told() == [UnitStatus(signed_in=False, detail="1 of its handles were removed")]
    assert result.submission is Submission.UNKNOWN  # an exception of Messages proves nothing
    assert health is not None
    assert health.units == {UNIT: False}
    assert (await play.query(send)).state is ReportedState.NOT_FOUND
    assert play.left(send) == 0


async def test_what_happens_while_a_host_restarts_is_not_posted_and_is_found_when_asked(play: Play) -> None:
    play.host.quirks = Quirks(update_after=dt.timedelta(seconds=0.3))
    send, late = a_send(), a_send()
    result = await BlueBubbles().submit(play.session, play.address, send)
    # Another session: on a connection that is open, nobody could tell whether it was read.
    async with play.host.restarting(), aiohttp.ClientSession() as another:
        refused = await BlueBubbles().submit(another, play.address, late)
        await play.host.settled()
    await play.host.settled()

    assert result.submission is Submission.ACCEPTED
    assert (refused.submission, play.left(late)) == (Submission.NOT_CONNECTED, 0)
    assert "updated-message" not in play.types()
    assert Heartbeat(queue=None, version="") in play.told()
    assert (await play.query(send)).state is ReportedState.DELIVERED


async def test_an_attempt_that_is_handed_over_again_later_leaves_again(play: Play) -> None:
    send = a_send()

    await play.submit(send)
    await play.submit(send)

    assert play.left(send) == 2


async def test_a_person_who_writes_is_told(play: Play) -> None:
    row = play.host.receive(NUMBER, "STOP")
    await play.host.settled()

    assert play.told() == [Inbound(NUMBER, "", "STOP", row["guid"], "imessage")]


@pytest.mark.parametrize(
    ("changes", "word"), [({"tempGuid": ""}, "tempGuid"), ({"message": ""}, "message")], ids=["tempGuid", "message"]
)
async def test_refuses_a_submission_without(play: Play, changes: dict[str, str], word: str) -> None:
    document = {"chatGuid": f"iMessage;-;{NUMBER}", "tempGuid": str(uuid.uuid4()), "message": TEXT, **changes}
    url = f"{play.host.base_url}/api/v1/message/text"

    async with play.session.post(url, params={"guid": PASSWORD}, json=document) as response:
        answer = await response.json()

    assert (response.status, answer["status"], answer["error"]["type"]) == (400, 400, "Validation Error")
    assert word in answer["error"]["message"]
    assert play.host.messages == {}


@pytest.mark.parametrize("query", [{}, {"password": "another"}, {"pass": PASSWORD}], ids=["none", "wrong", "misnamed"])
async def test_tells_nothing_without_the_password(play: Play, query: dict[str, str]) -> None:
    async with play.session.get(f"{play.host.base_url}/api/v1/server/info", params=query) as response:
        assert response.status == 401
        assert (await response.json())["data"] is None
