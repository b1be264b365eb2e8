"""Each behaviour does what its name says: over real HTTP, with a sink for the webhooks."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from otp_service.core.outcomes import ErrorClass, ReportedState, Submission
from otp_service.simulation.behaviours import BEHAVIOURS
from otp_service.simulation.ledger import text_digest
from tests.simulation.play import HOST, NUMBER, TEXT, UNIT, Play, a_send
from tests.simulation.sink import Sink


def kinds(sink: Sink) -> list[str]:
    return [event["type"] for event in sink.events()]


async def test_healthy_sends_delivers_and_tells_both(play: Play, sink: Sink) -> None:
    send, result = await play.submit()
    sent, delivered = await sink.wait_for(2)

    assert result.submission is Submission.ACCEPTED
    assert (sent["type"], delivered["type"]) == ("message_sent", "delivered")
    assert sent["unit"] == UNIT
    assert sent["data"]["attempt_id"] == str(send.attempt_uuid)
    assert (sent["data"]["success"], sent["data"]["service"]) == (True, "imessage")
    assert delivered["data"]["guid"] == sent["data"]["guid"]
    assert sent["at"] < delivered["at"]
    (entry,) = play.left(send)
    assert (entry.to, entry.host, entry.unit, entry.service) == (NUMBER, HOST, UNIT, "imessage")
    assert entry.text_sha256 == text_digest(TEXT)


async def test_dead_accepts_everything_and_fails_it(play: Play, sink: Sink) -> None:
    await play.behave("dead")

    send, result = await play.submit()
    (failed,) = await sink.wait_for(1)

    assert result.submission is Submission.ACCEPTED
    assert (failed["type"], failed["data"]["success"], failed["data"]["error_code"]) == ("message_sent", False, 120)
    assert "guid" not in failed["data"]
    assert play.left(send) == []
    report = await play.query(send)
    assert (report.state, report.error_code) == (ReportedState.FAILED, 120)


async def outcomes(play: Play, sink: Sink, count: int) -> list[bool]:
    """Whether each of so many messages, one after the other, was sent."""
    sends = []
    for nth in range(1, count + 1):
        send, _result = await play.submit()
        await sink.wait_for(nth, "message_sent")
        sends.append(send)
    return [bool(play.left(send)) for send in sends]


async def test_flaky_fails_a_share_that_is_the_same_for_the_same_seed(play: Play, sink: Sink) -> None:
    await play.behave("flaky", p=0.5)
    first = await outcomes(play, sink, 12)
    sink.calls.clear()
    await play.behave("flaky", p=0.5)
    second = await outcomes(play, sink, 12)

    assert True in first
    assert False in first
    assert first == second


@pytest.mark.parametrize(("p", "all_sent"), [(0, True), (1, False)])
async def test_flaky_at_its_ends_fails_nothing_or_everything(play: Play, sink: Sink, p: float, all_sent: bool) -> None:
    await play.behave("flaky", p=p)

    assert set(await outcomes(play, sink, 5)) == {all_sent}


async def test_dying_after_delivers_so_many_and_fails_the_rest(play: Play, sink: Sink) -> None:
    await play.behave("dying_after", n=2)

    assert await outcomes(play, sink, 4) == [True, True, False, False]


async def test_slow_answers_only_when_it_has_sent(play: Play) -> None:
    await play.behave("slow", seconds=0.3)
    started = asyncio.get_running_loop().time()

    send, result = await play.submit()

    assert asyncio.get_running_loop().time() - started >= 0.3
    assert result.submission is Submission.ACCEPTED
    assert len(play.left(send)) == 1


async def test_slow_sends_also_when_the_caller_has_hung_up(play: Play) -> None:
    await play.behave("slow", seconds=0.3)
    send = a_send()
    call = asyncio.create_task(play.submit(send))
    await play.until_state(send, ReportedState.QUEUED)
    call.cancel()

    await play.until_left(send)


async def test_slow_does_not_send_what_has_expired_meanwhile(play: Play) -> None:
    await play.behave("slow", seconds=0.3)

    send, result = await play.submit(a_send(ttl=dt.timedelta(seconds=0.1)))

    assert (result.submission, result.error_class) == (Submission.REFUSED, ErrorClass.EXPIRED)
    assert (await play.query(send)).state is ReportedState.NEVER
    assert play.left(send) == []


async def test_signed_out_takes_nothing_and_tells_of_signing_out_and_in(play: Play, sink: Sink) -> None:
    await play.behave("signed_out")
    send, result = await play.submit()
    await play.behave("healthy")
    out, back = await sink.wait_for(2, "unit_status")

    assert (result.submission, result.error_class) == (Submission.REFUSED, ErrorClass.SENDER_FAULT)
    assert play.left(send) == []
    assert (out["unit"], out["data"]["signed_in"]) == (UNIT, False)
    assert (back["unit"], back["data"]["signed_in"]) == (UNIT, True)
    assert (await play.submit())[1].submission is Submission.ACCEPTED


async def test_throttled_says_when_to_come_back(play: Play) -> None:
    await play.behave("throttled", retry_after_s=7)

    _send, result = await play.submit()

    assert (result.submission, result.error_class) == (Submission.REFUSED, ErrorClass.THROTTLED)
    assert result.retry_after == dt.timedelta(seconds=7)


async def test_falls_back_to_sms_says_so_everywhere(play: Play, sink: Sink) -> None:
    await play.behave("falls_back_to_sms")

    send, _result = await play.submit()
    events = await sink.wait_for(2)

    assert [event["data"]["service"] for event in events] == ["sms", "sms"]
    assert play.left(send)[0].service == "sms"
    assert (await play.query(send)).service == "sms"


async def test_not_on_imessage_fails_with_22(play: Play, sink: Sink) -> None:
    await play.behave("not_on_imessage")

    send, _result = await play.submit()
    (failed,) = await sink.wait_for(1)

    assert (failed["type"], failed["data"]["error_code"]) == ("message_failed", 22)
    assert play.left(send) == []


async def test_accepts_and_never_reports_sends_in_silence_and_cannot_say(play: Play, sink: Sink) -> None:
    await play.behave("accepts_and_never_reports")

    send, result = await play.submit()
    await play.until_left(send)
    await sink.until(lambda: len(sink.events("heartbeat")) >= 2)
    report = await play.query(send)

    assert result.submission is Submission.ACCEPTED
    assert kinds(sink) == []
    assert (report.answered, report.state) == (True, ReportedState.UNKNOWN)
    assert (await play.tombstone(send)).state is ReportedState.UNKNOWN


async def test_accepts_and_never_reports_need_not_even_send(play: Play, sink: Sink) -> None:
    await play.behave("accepts_and_never_reports", sends=False)

    send, result = await play.submit()
    await sink.until(lambda: len(sink.events("heartbeat")) >= 2)

    assert result.submission is Submission.ACCEPTED
    assert play.left(send) == []
    assert kinds(sink) == []


async def test_reports_twice_posts_each_event_again_with_its_id(play: Play, sink: Sink) -> None:
    await play.behave("reports_twice")

    send, _result = await play.submit()
    events = await sink.wait_for(4)

    ids = [event["id"] for event in events]
    assert len(set(ids)) == 2
    assert all(ids.count(each) == 2 for each in ids)
    assert len(play.left(send)) == 1


async def test_reports_out_of_order_tells_of_the_delivery_first(play: Play, sink: Sink) -> None:
    await play.behave("reports_out_of_order")

    await play.submit()
    first, second = await sink.wait_for(2)

    assert (first["type"], second["type"]) == ("delivered", "message_sent")
    assert second["at"] < first["at"]


async def test_reports_before_answering_has_told_everything_by_the_answer(play: Play, sink: Sink) -> None:
    await play.behave("reports_before_answering")

    _send, result = await play.submit()

    assert result.submission is Submission.ACCEPTED
    assert kinds(sink) == ["message_sent", "delivered"]


async def test_error_500_after_sending_has_sent(play: Play, sink: Sink) -> None:
    await play.behave("error_500_after_sending")

    send, result = await play.submit()

    assert (result.submission, result.error_class) == (Submission.UNKNOWN, ErrorClass.TIMEOUT_AFTER_SUBMIT)
    assert result.raw.startswith("500 ")
    assert len(play.left(send)) == 1
    assert (await play.until_state(send, ReportedState.DELIVERED)).provider_message_id
    await sink.wait_for(2)


async def test_drops_webhooks_loses_some_and_knows_the_truth(play: Play, sink: Sink) -> None:
    await play.behave("drops_webhooks", p=1)

    send, _result = await play.submit()
    report = await play.until_state(send, ReportedState.DELIVERED)

    assert report.provider_message_id
    assert kinds(sink) == []


async def test_drops_webhooks_at_its_default_loses_about_a_third(play: Play, sink: Sink) -> None:
    await play.behave("drops_webhooks")
    sends = [(await play.submit())[0] for _nth in range(60)]
    for send in sends:
        await play.until_state(send, ReportedState.DELIVERED)
    await play.behave("signed_out")  # its event comes after all of theirs
    await sink.wait_for(1, "unit_status")

    assert 0.5 <= len(sink.events("message_sent", "delivered")) / 120 <= 0.9


def test_every_behaviour_is_shown_here() -> None:
    tested = " ".join(name for name in globals() if name.startswith("test_"))

    assert [name for name in BEHAVIOURS if f"test_{name}" not in tested] == []
