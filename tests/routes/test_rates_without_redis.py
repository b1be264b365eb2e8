"""Without Redis a dispatcher goes on with its own share, and Redis is not waited for again and again."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from uuid import uuid4

import pytest
import redis
from django.conf import settings
from structlog.testing import capture_logs

from otp_service.messages.rules import Channel
from otp_service.routes.rates import REDIS_PAUSE, Rates
from otp_service.routes.route_rules import RouteKind, RouteSpec
from tests.conftest import NOON
from tests.deadline import eventually

PAUSE = REDIS_PAUSE.total_seconds()
SPECS = {name: RouteSpec(name, Channel.SMS, RouteKind.SIMULATED, tps=12.0) for name in ("sms:one", "sms:two")}


def take(rates: Rates, wanted: int, at: float, *, dispatchers: int = 1, name: str = "sms:one") -> int:
    return rates.take({name: wanted}, SPECS, now=NOON, at=at, dispatchers=dispatchers, for_otp=True)[name]


@pytest.fixture
def away() -> Iterator[Rates]:
    """Nobody listens there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    rates = Rates(f"redis://127.0.0.1:{port}/0")
    yield rates
    rates.close()


class Hanging:
    """Accepts connections and says nothing."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._callers: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()
        self.url = f"redis://127.0.0.1:{self._server.getsockname()[1]}/0"

    @property
    def calls(self) -> int:
        return len(self._callers)

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._server.accept()
            except OSError:
                return
            self._callers.append(caller)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()
        for caller in self._callers:
            caller.close()


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    server = Hanging()
    yield server
    server.close()


@pytest.mark.parametrize(("dispatchers", "a_second"), [(0, 12), (1, 12), (3, 4), (12, 1), (24, 0)])
def test_each_dispatcher_takes_its_share(away: Rates, dispatchers: int, a_second: int) -> None:
    assert take(away, 99, 0.0, dispatchers=dispatchers) == 0
    assert take(away, 99, 1.0, dispatchers=dispatchers) == a_second
    assert take(away, 99, 1.0, dispatchers=dispatchers) == 0


def test_routes_have_shares_of_their_own(away: Rates) -> None:
    take(away, 99, 0.0)
    take(away, 99, 0.0, name="sms:two")
    assert take(away, 99, 1.0) == take(away, 99, 1.0, name="sms:two") == 12


def test_what_was_not_used_of_a_share_is_there_again(away: Rates) -> None:
    take(away, 1, 0.0)
    assert take(away, 12, 1.0) == 12
    away.give_back({"sms:one": 5}, SPECS, now=NOON)
    assert take(away, 12, 1.0) == 5


def test_one_that_hangs_is_asked_once_a_pause(hanging: Hanging) -> None:
    rates = Rates(hanging.url)
    for at in (0.0, 0.1, PAUSE - 0.1):
        take(rates, 1, at)
        rates.give_back({"sms:one": 1}, SPECS, now=NOON)
    assert eventually(lambda: hanging.calls) == 1
    take(rates, 1, PAUSE)
    take(rates, 1, PAUSE + 0.1)
    eventually(lambda: hanging.calls > 1)
    assert hanging.calls == 2
    rates.close()


def test_of_several_threads_one_asks_after_a_pause(hanging: Hanging) -> None:
    rates = Rates(hanging.url)
    take(rates, 1, 0.0)
    threads = [threading.Thread(target=take, args=[rates, 1, PAUSE]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: hanging.calls > 1)
    assert hanging.calls == 2
    rates.close()


@pytest.fixture
def store() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        yield client


def test_says_once_that_it_went_and_once_that_it_came_back(store: redis.Redis) -> None:
    """A key that is no bucket of ours stands for every fault."""
    name, rates = f"sms:{uuid4().hex}", Rates(settings.REDIS_URL)
    specs = {name: RouteSpec(name, Channel.SMS, RouteKind.SIMULATED, tps=12.0)}
    store.set(f"otp:rate:{name}", "no bucket", ex=60)

    def take_at(at: float) -> int:
        return rates.take({name: 99}, specs, now=NOON, at=at, dispatchers=2, for_otp=True)[name]

    with capture_logs() as logs:
        assert [take_at(at) for at in (0.0, 1.0, PAUSE, PAUSE + 0.5)] == [0, 6, 6, 3]
        store.delete(f"otp:rate:{name}")
        assert [take_at(at) for at in (PAUSE + 1, 2 * PAUSE)] == [3, 12]
        take_at(2 * PAUSE)
    assert [line["event"] for line in logs] == ["rates_without_redis", "rates_with_redis_again"]
    assert settings.REDIS_URL not in str(logs)
    rates.close()


def test_begins_empty_each_time_that_it_goes(store: redis.Redis) -> None:
    """What a share held from an earlier time without Redis is not added to what Redis granted since."""
    name, rates = f"sms:{uuid4().hex}", Rates(settings.REDIS_URL)
    specs = {name: RouteSpec(name, Channel.SMS, RouteKind.SIMULATED, tps=12.0)}
    granted = []
    for at, is_away in ((0.0, True), (PAUSE, False), (2 * PAUSE, True)):
        store.delete(f"otp:rate:{name}")
        if is_away:
            store.set(f"otp:rate:{name}", "no bucket", ex=60)
        granted.append(rates.take({name: 99}, specs, now=NOON, at=at, dispatchers=1, for_otp=True)[name])
    assert granted == [0, 12, 0]
    rates.close()
