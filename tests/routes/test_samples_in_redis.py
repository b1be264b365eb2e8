"""Samples of all processes are added up in Redis, bucket by bucket, and vanish by themselves."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis
from django.conf import settings

from otp_service.routes import samples as windows
from otp_service.routes.breaker_rules import Calls, Ending, Limits, Receipts, Sign, Standing
from otp_service.routes.samples import CallSample, ReceiptSample, Samples
from tests.conftest import NOON

SECOND = dt.timedelta(seconds=1)
TARGET = 30 * SECOND
LIMITS = Limits(slow_after=2 * SECOND, target=TARGET)


@pytest.fixture
def name() -> str:
    """A route that no other test has: all of them share one server."""
    return f"sms:{uuid4().hex}"


@pytest.fixture
def samples() -> Iterator[Samples]:
    made = Samples(settings.REDIS_URL)
    yield made
    made.close()


def call(name: str, at: dt.datetime = NOON, sign: Sign = Sign.GOOD, generation: int = 0) -> CallSample:
    return CallSample(name, generation, at, sign, SECOND)


def add(
    samples: Samples, *calls: CallSample, receipts: tuple[ReceiptSample, ...] = (), limits: Limits = LIMITS
) -> None:
    names = {call.route for call in calls} | {receipt.route for receipt in receipts}
    samples.add(calls, receipts, dict.fromkeys(names, limits), now=NOON)


def calls_of(samples: Samples, name: str, at: dt.datetime = NOON, generation: int = 0) -> Calls:
    return samples.read({name: (Standing(generation=generation), LIMITS)}, now=at)[name].calls


def receipts_of(
    samples: Samples, name: str, at: dt.datetime, since: dt.datetime | None = None, limits: Limits = LIMITS
) -> Receipts:
    return samples.read({name: (Standing(since=since), limits)}, now=at)[name].receipts


def test_processes_share_what_they_learn(samples: Samples, name: str) -> None:
    other = Samples(settings.REDIS_URL)
    add(samples, call(name), call(name, sign=Sign.FAULT))
    add(other, call(name, sign=Sign.REFUSED), call(name, sign=Sign.SLOW))
    other.close()
    assert calls_of(samples, name) == Calls(1, 1, 1, 1, p95=0.5)


def test_what_says_nothing_is_not_counted(samples: Samples, name: str) -> None:
    add(samples, call(name, sign=Sign.NOTHING))
    assert calls_of(samples, name) == Calls()


def test_a_fault_is_no_quick_answer(samples: Samples, name: str) -> None:
    add(samples, call(name, sign=Sign.FAULT))
    assert calls_of(samples, name).p95 == 0.0


@pytest.mark.parametrize(("seconds", "counted"), [(0, 1), (59, 1), (60, 0), (-1, 0)])
def test_calls_count_for_sixty_seconds(samples: Samples, name: str, seconds: int, counted: int) -> None:
    add(samples, call(name))
    assert calls_of(samples, name, NOON + seconds * SECOND).volume == counted


def test_calls_count_in_their_own_generation(samples: Samples, name: str) -> None:
    add(samples, call(name), call(name, generation=1), call(name, generation=1))
    assert [calls_of(samples, name, generation=each).volume for each in (0, 1, 2)] == [1, 2, 0]


def test_routes_have_windows_of_their_own(samples: Samples, name: str) -> None:
    other = f"{name}-b"
    add(samples, call(name), call(other, sign=Sign.FAULT))
    asked = {each: (Standing(), LIMITS) for each in (name, other)}
    found = samples.read(asked, now=NOON)
    assert (found[name].calls.bad, found[other].calls.bad) == (0, 1)


def ending(name: str, ending: Ending | None, took: int = 0, at: dt.datetime = NOON) -> ReceiptSample:
    return ReceiptSample(name, at, ending, took * SECOND)


def test_receipts_are_counted_by_when_the_attempt_was_handed_over(samples: Samples, name: str) -> None:
    accepted = [ending(name, None)] * 5
    ends = [ending(name, Ending.DELIVERED, 30), ending(name, Ending.DELIVERED, 31), ending(name, Ending.FAILED)]
    add(samples, receipts=(*accepted, *ends, ending(name, Ending.EXCUSED)))
    receipts = receipts_of(samples, name, NOON + 31 * SECOND)
    assert receipts == Receipts(volume=4, in_time=1, delivered=2, failed=1, p95=1.1)


@pytest.mark.parametrize(("seconds", "judged"), [(30, 0), (31, 1), (59, 1), (60, 0)])
def test_what_is_younger_than_the_target_is_not_judged(samples: Samples, name: str, seconds: int, judged: int) -> None:
    add(samples, receipts=(ending(name, None),))
    assert receipts_of(samples, name, NOON + seconds * SECOND).volume == judged


@pytest.mark.parametrize(("seconds", "judged"), [(-1, 1), (0, 1), (1, 0)])
def test_what_was_handed_over_before_the_last_change_is_not_judged(
    samples: Samples, name: str, seconds: int, judged: int
) -> None:
    add(samples, receipts=(ending(name, None),))
    assert receipts_of(samples, name, NOON + 40 * SECOND, NOON + seconds * SECOND).volume == judged


@pytest.mark.parametrize(("target", "step"), [(1, 1), (30, 1), (31, 2), (300, 10), (3_600, 120)])
def test_the_second_window_is_twice_the_target_long(samples: Samples, name: str, target: int, step: int) -> None:
    limits = Limits(SECOND, target * SECOND)
    assert windows.receipt_step(target * SECOND) == step
    assert windows.BUCKETS * step >= max(60, 2 * target)
    add(samples, receipts=(ending(name, None),), limits=limits)
    assert receipts_of(samples, name, NOON + (target + step) * SECOND, limits=limits).volume == 1


def test_a_receipt_older_than_the_window_is_dropped(samples: Samples, name: str) -> None:
    with redis.Redis.from_url(settings.REDIS_URL) as store:
        add(samples, receipts=(ending(name, Ending.DELIVERED, 60, NOON - 60 * SECOND),))
        assert list(store.scan_iter(f"otp:breaker:*:{name}:*", count=10_000)) == []
        add(samples, receipts=(ending(name, Ending.DELIVERED, 59, NOON - 59 * SECOND),))
        assert len(list(store.scan_iter(f"otp:breaker:*:{name}:*:*", count=10_000))) == 1


def test_a_route_without_receipts_has_no_second_window(samples: Samples, name: str) -> None:
    limits = Limits(SECOND)
    add(samples, call(name), receipts=(ending(name, None),), limits=limits)
    found = samples.read({name: (Standing(), limits)}, now=NOON + 40 * SECOND)[name]
    assert (found.calls.volume, found.receipts) == (1, Receipts())


def test_buckets_expire_a_little_after_their_window(samples: Samples, name: str) -> None:
    add(samples, call(name), receipts=(ending(name, None),), limits=Limits(SECOND, 300 * SECOND))
    with redis.Redis.from_url(settings.REDIS_URL) as store:
        lives = {str(store.ttl(key)) for key in store.scan_iter(f"otp:breaker:*:{name}:*", count=10_000)}
    assert {60 < int(life) <= 70 or 600 < int(life) <= 610 for life in lives} == {True}
    assert len(lives) == 2


def test_routes_of_which_nothing_is_known_are_not_read_bucket_by_bucket(
    samples: Samples, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    hgetall = redis.client.Pipeline.hgetall

    def noted(pipeline: Any, key: str) -> Any:
        read.append(key)
        return hgetall(pipeline, key)

    monkeypatch.setattr(redis.client.Pipeline, "hgetall", noted)
    add(samples, call(name))
    asked = {route: (Standing(), LIMITS) for route in (name, f"{name}-silent")}
    found = samples.read(asked, now=NOON)
    assert found[name].calls.volume == 1
    assert len(read) == windows.BUCKETS
    assert all(f":{name}:" in key for key in read)
