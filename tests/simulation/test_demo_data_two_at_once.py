"""Two starts at the same moment make one demo."""

from __future__ import annotations

import datetime as dt
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.db import connection
from pytest_django import Settings

from otp_service.core.clock import utc_now
from otp_service.messages import api_keys
from otp_service.messages.models import ApiKey, Client
from otp_service.simulation import demo
from servers.models import Host, Server
from tests.simulation.demo_runs import DemoRuns

AT_ONCE = 4


@pytest.mark.django_db(transaction=True)
def test_starts_at_the_same_moment_do_not_double_the_demo(settings: Settings, tmp_path: Path, now: dt.datetime) -> None:
    runs = DemoRuns.local(settings, tmp_path)
    together = threading.Barrier(AT_ONCE)

    def start(seed: int) -> demo.Prepared:
        together.wait(timeout=10)
        try:
            return demo.prepare(simulator_port=8900, access_file=runs.access_file, now=now, rng=random.Random(seed))
        finally:
            connection.close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = list(pool.map(start, range(AT_ONCE)))

    assert sorted(prepared.servers for prepared in done) == [0, 0, 0, 69]
    assert (Host.objects.count(), Server.objects.count()) == (12, 69)
    assert (Client.objects.count(), ApiKey.objects.count()) == (1, 1)
    assert api_keys.caller(runs.access["api_key"], now=utc_now()).client_id == Client.objects.get().pk
