"""Without Redis a process goes by its own calls, says nothing of receipts, and does not wait again and again."""

from __future__ import annotations

import datetime as dt
import socket
from collections.abc import Iterator
from uuid import uuid4

import pytest
import redis
from django.conf import settings
from structlog.testing import capture_logs

from otp_service.routes.breaker_rules import Limits, Sign, Standing
from otp_service.routes.samples import REDIS_PAUSE, CallSample, ReceiptSample, Samples, Window
from tests.conftest import NOON

SECOND = dt.timedelta(seconds=1)
LIMITS = Limits(slow_after=2 * SECOND, target=30 * SECOND)


@pytest.fixture
def name() -> str:
    return f"sms:{uuid4().hex}"


@pytest.fixture
def away() -> Iterator[Samples]:
    """Nobody listens there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    samples = Samples(f"redis://127.0.0.1:{port}/0")
    yield samples
    samples.close()


def add(samples: Samples, name: str, number: int, at: dt.datetime = NOON) -> None:
    calls = [CallSample(name, 0, at, Sign.FAULT, SECOND)] * number
    samples.add(calls, [ReceiptSample(name, at)] * number, {name: LIMITS}, now=at)


def read(samples: Samples, name: str, at: dt.datetime = NOON) -> Window:
    return samples.read({name: (Standing(), LIMITS)}, now=at)[name]


def test_its_own_calls_are_known_and_receipts_are_not(away: Samples, name: str) -> None:
    add(away, name, 20)
    add(away, name, 5, NOON + SECOND)
    assert read(away, name, NOON + 40 * SECOND).calls.faults == 25
    assert read(away, name, NOON + 60 * SECOND).calls.faults == 5
    assert read(away, name, NOON + 40 * SECOND).receipts.volume == 0


def test_what_is_older_than_its_window_is_not_kept(away: Samples, name: str) -> None:
    add(away, name, 1)
    add(away, name, 1, NOON + 90 * SECOND)
    assert len(away._own) == 1


def test_it_is_asked_once_a_pause(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(0.05)
        samples = Samples(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        for at in (NOON, NOON + SECOND, NOON + REDIS_PAUSE - SECOND):
            add(samples, name, 1, at)
            read(samples, name, at)
        silent.accept()[0].close()
        with pytest.raises(TimeoutError):
            silent.accept()
        read(samples, name, NOON + REDIS_PAUSE)
        silent.accept()[0].close()
        samples.close()


@pytest.fixture
def store() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        yield client


def test_begins_anew_when_it_comes_back(store: redis.Redis, name: str) -> None:
    """A key that is no bucket of ours stands for every fault."""
    samples, back = Samples(settings.REDIS_URL), NOON + REDIS_PAUSE
    key = f"otp:breaker:calls:{name}:0:{int(NOON.timestamp())}"
    add(samples, name, 20, NOON - SECOND)
    store.set(key, "no bucket", ex=60)
    with capture_logs() as logs:
        add(samples, name, 3)
        assert read(samples, name).calls.faults == 3
        store.delete(key)
        assert read(samples, name, back).calls.faults == 20  # and those of meanwhile are not added twice
        assert read(samples, name, back).calls.faults == 20
    assert [line["event"] for line in logs] == ["samples_without_redis", "samples_with_redis_again"]
    assert settings.REDIS_URL not in str(logs)
    samples.close()


def test_attempts_of_before_it_came_back_are_not_judged(store: redis.Redis, name: str) -> None:
    """Their receipts may have been heard while it was away."""
    samples, back = Samples(settings.REDIS_URL), NOON + REDIS_PAUSE
    key = f"otp:breaker:calls:{name}:0:{int(NOON.timestamp())}"
    add(samples, name, 20, NOON - SECOND)
    assert read(samples, name, NOON + 35 * SECOND).receipts.volume == 20
    store.set(key, "no bucket", ex=60)
    read(samples, name)
    store.delete(key)
    assert read(samples, name, back).receipts.volume == 0
    assert read(samples, name, NOON + 35 * SECOND).receipts.volume == 0
    add(samples, name, 7, back)
    assert read(samples, name, back + 35 * SECOND).receipts.volume == 7
    samples.close()
