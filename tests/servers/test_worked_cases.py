"""The worked cases of sender health, 1 to 16, with default settings and fixed draws, to the exact edge."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import transaction

from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState
from otp_service.routes.receipts import apply_host_receipts
from servers.cooldown import check_cooldown_servers, confirm_cooldown_warmup_delivery
from servers.deliverability_limits import record_delivery, record_failed_send
from servers.models import Group, Host, InternalSend, Server, ServerDelivery
from servers.preheat import preheat_otp_sender_names
from servers.rules import LADDERS, Event, Status
from tests.draws import Drawn, Highest, Lowest
from tests.factories import NOON, GroupFactory, ServerDeliveryFactory, ServerFactory
from tests.racing import Racer
from tests.routes.steps import attempt_of, host_of, in_flight
from tests.servers.scripted_relay import ScriptedRelay

pytestmark = pytest.mark.django_db
SECOND, MINUTE, HOUR = dt.timedelta(seconds=1), dt.timedelta(minutes=1), dt.timedelta(hours=1)
RECIPIENT = b"r" * 32


def at(clock: str) -> dt.datetime:
    """That time of the test's day."""
    return dt.datetime.combine(NOON.date(), dt.time.fromisoformat(clock), dt.UTC)


def fail(server: Server, *times: dt.datetime, rng: Drawn | Lowest | Highest | None = None, count: bool = True) -> None:
    for time in times:
        record_failed_send(
            server.pk, now=time, reason="message_failed", error_code=120, count=count, rng=rng or Drawn()
        )
    server.refresh_from_db()


def deliver(server: Server, *times: dt.datetime) -> None:
    for time in times:
        record_delivery(server.pk, now=time, recipient_hash=RECIPIENT)
    server.refresh_from_db()


def sweep(server: Server, now: dt.datetime, *draws: int) -> None:
    check_cooldown_servers(now=now, rng=Drawn(*draws))
    server.refresh_from_db()


def events(server: Server) -> list[int]:
    return list(server.history.order_by("id").values_list("event", flat=True))


def verdicts(server: Server) -> list[str]:
    return [row.data["verdict"] for row in server.history.filter(event=Event.COOLDOWN_FINISHED).order_by("id")]


def in_group(**parameters: Any) -> Server:
    server = ServerFactory.create()
    server.groups.add(GroupFactory.create(**parameters))
    return server


def minutes_of(server: Server) -> list[int]:
    rows = Server.objects.filter(pk=server.pk, cooldown=True).values_list("cooldown_start_date", "cooldown_end_date")
    return [(end - start) // MINUTE for start, end in rows if start and end]


@pytest.mark.parametrize(
    ("rng", "end", "slot"),
    [(Lowest(), "13:01", "12:21"), (Highest(), "14:01", "12:31")],
    ids=["case 1, the shortest", "case 1, the longest"],
)
def test_two_failures_in_a_row_start_the_first_cooldown(rng: Lowest | Highest, end: str, slot: str) -> None:
    server = ServerFactory.create()
    fail(server, at("12:00"), rng=rng)
    assert (server.cooldown, server.failed_in_row) == (False, 1)
    fail(server, at("12:01"), rng=rng)
    assert (server.cooldown, server.cooldown_start_date, server.cooldown_end_date) == (True, at("12:01"), at(end))
    assert server.cooldown_warmup_at == at(slot)
    assert (server.cooldown_times, server.failed_in_row, server.cooldown_reason) == (1, 2, "failed in row")
    assert events(server) == [109, 109, 101]
    row = server.history.get(event=Event.COOLDOWN_STARTED)
    assert row.note == f"cooldown #1 until 2026-09-01 {end}:00 UTC"


def test_a_delivery_between_two_failures_starts_the_count_anew() -> None:
    """Case 2."""
    server = ServerFactory.create()
    fail(server, at("12:00"))
    deliver(server, at("12:01"))
    fail(server, at("12:02"))
    assert (server.cooldown, server.failed_in_row) == (False, 1)
    assert events(server) == [109, 113, 109]


@pytest.mark.parametrize(
    ("group", "failures", "shortest", "longest"),
    [
        ({"failed_in_row": 1, "cooldown_delay_from": 15, "cooldown_delay_to": 45}, 1, 15, 45),
        ({"failed_in_row": 0}, 2, 60, 120),
        ({"cooldown_delay_from": 0, "cooldown_delay_to": 45}, 2, 60, 120),
        ({"cooldown_delay_from": 15, "cooldown_delay_to": 0}, 2, 60, 120),
    ],
    ids=["case 3: 1, 15-45", "case 3: 0 is 2", "case 3: 0-45 is the ladder", "case 3: 15-0 is the ladder"],
)
def test_a_group_decides_threshold_and_length_where_it_says_so(
    group: dict[str, int], failures: int, shortest: int, longest: int
) -> None:
    for rng, minutes in ((Lowest(), shortest), (Highest(), longest)):
        server = in_group(**group)
        for number in range(failures):
            assert not server.cooldown
            fail(server, at("12:00") + number * MINUTE, rng=rng)
        assert minutes_of(server) == [minutes]


@pytest.mark.parametrize("ladder", [pytest.param(name, id=f"case 4, {name}") for name in ("standard", "five_step")])
def test_the_threshold_with_the_ladder_used_up_is_need_check(settings: Any, ladder: str) -> None:
    settings.COOLDOWN_LADDER = ladder
    server, now = ServerFactory.create(), at("12:00")
    lengths: list[int] = []
    for number in range(1, len(LADDERS[ladder]) + 1):
        fail(server, now, now + MINUTE, rng=Highest())
        lengths += minutes_of(server)
        assert server.cooldown_end_date is not None
        now = server.cooldown_end_date
        sweep(server, now)
        assert (server.cooldown_times, server.status) == (number, Status.ACTIVE)
    assert lengths == {"standard": [120, 120, 840, 840], "five_step": [120, 120, 120, 840, 840]}[ladder]
    fail(server, now)
    assert server.status == Status.ACTIVE
    fail(server, now + MINUTE)
    assert (server.status, server.cooldown, server.cooldown_times) == (Status.NEED_CHECK, False, len(lengths))
    assert server.history.filter(event=Event.COOLDOWN_STARTED).count() == len(lengths)
    assert [row.data["path"] for row in server.history.filter(event=Event.NEED_CHECK)] == ["ladder"]


@pytest.mark.parametrize(
    ("deliveries", "age", "preheating", "times"),
    [pytest.param(*row, id=f"case 5: {name}") for name, row in {
        "11 within 14 h": (11, 14 * HOUR, False, 0),
        "11, all of them a second too old": (11, 14 * HOUR + SECOND, False, 3),
        "10": (10, HOUR, False, 3),
        "2 while preheating": (2, HOUR, True, 0),
        "1 while preheating": (1, HOUR, True, 3),
        "2 and no preheat": (2, HOUR, False, 3),
    }.items()],
)  # fmt: skip
def test_enough_deliveries_and_one_failure_bring_the_ladder_back_to_its_foot(
    deliveries: int, age: dt.timedelta, preheating: bool, times: int
) -> None:
    started = {"preheating": True, "preheat_started_at": NOON - 20 * HOUR} if preheating else {}
    server = ServerFactory.create(cooldown_times=3, **started)
    ServerDeliveryFactory.create_batch(deliveries, server=server, at=NOON - age)
    fail(server, NOON)
    assert (server.cooldown_times, server.failed_in_row, server.cooldown) == (times, 1, False)
    assert events(server) == ([109, 113] if times == 0 else [109])


@pytest.mark.parametrize(
    ("threshold", "failures", "times", "told"),
    [(1, 1, 4, [109, 101]), (2, 2, 1, [109, 113, 109, 101])],
    ids=["case 6: threshold 1, no reset", "case 6: threshold 2, the first failure resets"],
)
def test_the_threshold_comes_before_the_reset(threshold: int, failures: int, times: int, told: list[int]) -> None:
    server = in_group(failed_in_row=threshold)
    Server.objects.filter(pk=server.pk).update(cooldown_times=3)
    ServerDeliveryFactory.create_batch(11, server=server, at=NOON - HOUR)
    fail(server, *(NOON + number * MINUTE for number in range(failures)), rng=Lowest())
    assert (server.cooldown, server.cooldown_times, events(server)) == (True, times, told)


def by_rule(**times: int) -> pytest.MarkDecorator:
    rows = [pytest.param(rule, left, id=f"case 7: {rule}") for rule, left in times.items()]
    return pytest.mark.parametrize(("rule", "times"), rows)


@by_rule(calendar_window=3, since_release=0, either=0)
def test_eleven_deliveries_since_the_release_reset_by_rule(rule: str, times: int) -> None:
    server = in_group(reset_rule=rule)
    cooldown = {"cooldown": True, "cooldown_start_date": at("12:00") - 13 * HOUR, "cooldown_end_date": at("12:00")}
    Server.objects.filter(pk=server.pk).update(**cooldown, cooldown_times=3)
    sweep(server, at("12:00"))
    deliver(server, *(at("12:00") + number * 18 * MINUTE for number in range(10)))
    assert server.cooldown_times == 3
    deliver(server, at("15:00"))
    assert server.cooldown_times == times


@by_rule(calendar_window=0, since_release=3, either=0)
def test_ten_deliveries_before_a_short_cooldown_and_one_after_it_reset_by_rule(rule: str, times: int) -> None:
    server = in_group(reset_rule=rule, cooldown_delay_from=20, cooldown_delay_to=20)
    Server.objects.filter(pk=server.pk).update(cooldown_times=2)
    deliver(server, *(at("11:00") + number * 5 * MINUTE for number in range(10)))
    fail(server, at("11:58"), at("12:00"), rng=Lowest())
    sweep(server, at("12:20"))
    assert (server.cooldown, server.cooldown_times, server.released_at) == (False, 3, at("12:20"))
    deliver(server, at("12:40"))
    fail(server, at("12:41"))
    assert (server.cooldown_times, server.failed_in_row) == (times, 1)


@pytest.mark.parametrize(
    ("minutes", "draw", "has_slot"),
    [pytest.param(*row, id=f"case 8: {row[0]} min, {row[1]} drawn") for row in
     ((9, 5, False), (9, 10, False), (10, 5, True), (10, 6, False), (12, 5, True), (12, 7, True), (12, 8, False),
      (12, 10, False), (14, 10, False), (15, 5, True), (15, 10, True), (59, 5, True), (59, 10, True),
      (60, 20, True), (60, 30, True))],
)  # fmt: skip
def test_a_short_cooldown_has_no_slot_for_a_warm_up(minutes: int, draw: int, has_slot: bool) -> None:
    server = in_group(cooldown_delay_from=minutes, cooldown_delay_to=minutes)
    fail(server, at("11:59"), at("12:00"), rng=Drawn(minutes, draw))
    assert server.cooldown_warmup_at == (at("12:00") + draw * MINUTE if has_slot else None)


def test_a_cooldown_without_a_slot_ends_neutral() -> None:
    """Case 8."""
    server = in_group(cooldown_delay_from=9, cooldown_delay_to=9)
    Server.objects.filter(pk=server.pk).update(fail_open_streak=2)
    fail(server, at("11:59"), at("12:00"), rng=Drawn(9, 5))
    sweep(server, at("12:08:59"))
    assert server.cooldown
    sweep(server, at("12:09"))
    assert (server.cooldown, server.fail_open_streak, verdicts(server)) == (False, 2, ["neutral"])
    assert (server.released_at, server.next_send_date) == (at("12:09"), at("12:19"))


def warm_up(now: dt.datetime) -> int:
    Host.objects.update(last_seen_at=now)
    return preheat_otp_sender_names(now=now, adapter=ScriptedRelay())


def leave_unproven(server: Server, now: dt.datetime) -> dt.datetime:
    """A cooldown of an hour whose three warm-ups leave and are not confirmed; returns the time after it."""
    fail(server, now, now + MINUTE, rng=Drawn(60, 20))
    start = now + MINUTE
    assert warm_up(start + 20 * MINUTE - SECOND) == 0
    assert warm_up(start + 20 * MINUTE) == 1
    for number, (longer, end) in enumerate([(55, start + 60 * MINUTE), (70, start + 115 * MINUTE)], start=1):
        sweep(server, end - SECOND)
        assert server.cooldown_extensions == number - 1
        sweep(server, end, longer, 10)
        assert (server.cooldown, server.cooldown_end_date) == (True, end + longer * MINUTE)
        assert (server.cooldown_extensions, server.cooldown_warmup_at) == (number, end + 10 * MINUTE)
        assert (server.cooldown_warmup_uuid, server.cooldown_warmup_sent_date) == (None, None)
        assert warm_up(end + 10 * MINUTE) == 1
    now = start + 185 * MINUTE
    sweep(server, now - SECOND)
    assert server.cooldown_extensions == 2
    sweep(server, now)
    assert not server.cooldown
    return now


def test_two_extensions_then_out_without_proof_and_the_third_time_need_check() -> None:
    """Case 9."""
    server, now = ServerFactory.create(), at("12:00")
    ServerFactory.create()
    for streak in (1, 2):
        now = leave_unproven(server, now)
        assert (server.status, server.fail_open_streak) == (Status.ACTIVE, streak)
    Server.objects.filter(pk=server.pk).update(cooldown_times=0)  # the path is to be this one, not the ladder's
    leave_unproven(server, now)
    assert (server.status, server.fail_open_streak) == (Status.NEED_CHECK, 3)
    assert verdicts(server) == ["fail_open", "fail_open"]
    assert server.history.filter(event=Event.COOLDOWN_EXTENDED).count() == 6
    assert server.history.get(event=Event.NEED_CHECK).data["path"] == "fail_open"


@pytest.mark.parametrize(
    ("proved", "verdict", "streak"),
    [(True, "verified", 0), (False, "neutral", 1)],
    ids=["case 9: verified", "case 9: neutral"],
)
def test_an_exit_in_between_ends_the_streak_only_when_it_is_verified(proved: bool, verdict: str, streak: int) -> None:
    server = ServerFactory.create()
    ServerFactory.create()
    now = leave_unproven(server, at("12:00"))
    Server.objects.filter(pk=server.pk).update(cooldown_times=0)
    fail(server, now, now, rng=Drawn(60, 20))
    if proved:
        assert warm_up(now + 30 * MINUTE) == 1
        assert confirm_cooldown_warmup_delivery(server.pk, now=now + 31 * MINUTE, via="message_sent")
    sweep(server, now + 60 * MINUTE)
    assert (verdicts(server), server.fail_open_streak) == (["fail_open", verdict], streak)
    now = leave_unproven(server, now + 70 * MINUTE)
    assert server.fail_open_streak == streak + 1


@pytest.mark.parametrize(
    ("age", "counts"),
    [(3 * HOUR, True), (3 * HOUR + SECOND, False), (3 * HOUR + MINUTE, False)],
    ids=["case 10: 3 h", "case 10: 3 h and 1 s", "case 10: 3 h and 1 min"],
)
@pytest.mark.parametrize("named", [True, False], ids=["named", "not named"])
def test_a_confirmation_counts_for_three_hours(age: dt.timedelta, counts: bool, named: bool) -> None:
    server = ServerFactory.create(wants_warm_up=True, cooldown_extensions=1)
    Server.objects.filter(pk=server.pk).update(cooldown_end_date=at("13:00"))
    ServerFactory.create()
    assert warm_up(at("12:00")) == 1
    Server.objects.filter(pk=server.pk).update(cooldown_end_date=at("17:00"))  # in it for long enough
    uuid = InternalSend.objects.get().uuid if named else None
    assert confirm_cooldown_warmup_delivery(server.pk, now=at("12:00") + age, uuid=uuid, via="inbound") is counts
    server.refresh_from_db()
    assert server.cooldown_warmup_delivered is counts
    assert events(server) == ([104, 105] if counts else [104])


@pytest.mark.parametrize(
    ("window", "clock", "covered"),
    [
        pytest.param(window, clock, covered, id=f"case 11: {window or 'default'} at {clock}")
        for window, covered, clocks in (
            ("22:00-08:00", True, ("22:00", "23:00", "07:59:59", "08:00:00", "08:00:00.999999")),
            ("22:00-08:00", False, ("21:59:59", "08:00:01", "12:00")),
            ("", True, ("23:59:59.5", "00:00")),
        )
        for clock in clocks
    ],
)
def test_a_window_includes_both_its_ends_and_may_cross_midnight(window: str, clock: str, covered: bool) -> None:
    from_time, _, to_time = window.partition("-")
    server = in_group(from_time=from_time, to_time=to_time) if window else in_group()
    group = Group.objects.get()
    assert server.get_group_for_current_time(at(clock)) == (group if covered else None)


def test_of_two_overlapping_groups_the_higher_priority_is_in_force() -> None:
    """Case 11."""
    server = in_group(priority=901, failed_in_row=3)
    higher = GroupFactory.create(priority=902, from_time=dt.time(11), to_time=dt.time(12))
    server.groups.add(higher, GroupFactory.create(priority=900))
    assert server.get_group_for_current_time(at("12:00")) == higher
    assert server.get_group_for_current_time(at("12:00:01")) == Group.objects.get(priority=901)


def test_a_change_of_the_group_moves_no_running_cooldown() -> None:
    """Case 12."""
    server = in_group(cooldown_delay_from=30, cooldown_delay_to=30)
    fail(server, at("11:59"), at("12:00"), rng=Drawn(30, 5))
    Group.objects.update(failed_in_row=1, cooldown_delay_from=200, cooldown_delay_to=240)
    fail(server, at("12:10"))
    assert server.cooldown_end_date == at("12:30")
    sweep(server, at("12:30"))
    fail(server, at("12:40"), rng=Drawn(200, 20))
    assert (server.cooldown_times, server.cooldown_end_date) == (2, at("12:40") + 200 * MINUTE)


@pytest.mark.django_db(transaction=True)
def test_two_failures_in_two_connections_at_once_start_one_cooldown() -> None:
    """Case 13."""
    server = ServerFactory.create()
    with transaction.atomic():
        fail(server, NOON)
        other = Racer(lambda: record_failed_send(server.pk, now=NOON, reason="message_failed", rng=Lowest()))
        other.wait_until_blocked()
    other.result()
    server.refresh_from_db()
    assert (server.cooldown, server.cooldown_times, server.failed_in_row) == (True, 1, 2)
    assert events(server) == [109, 109, 101]


def test_the_same_report_five_times_is_as_once() -> None:
    """Case 14."""
    (one,) = in_flight()
    failed = Receipt(ReportedState.FAILED, one.send.attempt_uuid, error_class=ErrorClass.SENDER_FAULT, error_code=120)
    assert [apply_host_receipts(host_of(one).host_id, [failed], now=NOON) for _ in range(5)] == [1, 0, 0, 0, 0]
    server = attempt_of(one).server
    assert server is not None
    assert (server.failed_in_row, events(server)) == (1, [109])


@pytest.mark.parametrize("success", [True, False], ids=["case 15: then sent", "case 15: then failed"])
def test_what_arrives_after_the_delivery_changes_nothing(success: bool) -> None:
    (one,) = in_flight()
    fault = None if success else ErrorClass.SENDER_FAULT
    late = Receipt(ReportedState.SENT if success else ReportedState.FAILED, one.send.attempt_uuid, error_class=fault)
    for receipt in (Receipt(ReportedState.DELIVERED, one.send.attempt_uuid), late):
        apply_host_receipts(host_of(one).host_id, [receipt], now=NOON)
    attempt = attempt_of(one)
    assert attempt.server is not None
    assert (attempt.state, attempt.message.status) == ("delivered", "delivered")
    assert (attempt.server.failed_in_row, events(attempt.server)) == (0, [])
    assert ServerDelivery.objects.count() == 1


@pytest.mark.parametrize(
    ("failed_in_row", "told"),
    [(0, []), (1, []), (2, [101])],
    ids=["case 16: none before", "case 16: one below the threshold", "case 16: at the threshold"],
)
def test_the_last_attempt_of_several_is_not_counted_but_looked_at(failed_in_row: int, told: list[int]) -> None:
    server = ServerFactory.create(failed_in_row=failed_in_row)
    fail(server, NOON, rng=Lowest(), count=False)
    assert (server.failed_in_row, server.cooldown, events(server)) == (failed_in_row, bool(told), told)
