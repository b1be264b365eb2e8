"""The sweep over cooldowns that are over: the same 10,000 among 1,000,000 servers and among 20,000.

What a sweep costs is to follow what is due, not the size of the fleet. Both fleets stand on one server and take
turns; before each run the servers that are due are put back as they were. The best run of each counts, since what
else the machine does only ever makes one slower; where it does much else, the median says how far that is to be
believed.
"""

from __future__ import annotations

import datetime as dt
import random
import statistics
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.benchmarks import databases

DUE = 10_000
SMALL, LARGE = 20_000, 1_000_000
PER_HOST = 100
RUNS = 5
LIMIT = 1.3  # times as long
NOW = dt.datetime(2026, 9, 1, 12, 0, 0, tzinfo=dt.UTC)

#: What tells servers apart. The n-th due one is the same in both fleets: of 20, 14 have proved that they live, 3
#: had no warm-up, 2 are extended, 1 has used that up, which is one of 200's third time in a row.
_EACH = {
    "uuid": "gen_random_uuid()",
    "region": "(ARRAY['es', 'zp', 'vj', 'pt'])[1 + number %% 4]",
    "unit": "number",
    "host_id": "first_host.id + number / %(per_host)s",
    "handle": "'bench ' || number",
    "next_send_date": "%(now)s + (random() - 0.5) * interval '20 min'",
    "tie": "random()",
    "failed_in_row": "CASE WHEN is_in THEN 2 ELSE 0 END",
    "cooldown": "is_in",
    "cooldown_times": "CASE WHEN is_in THEN 1 ELSE 0 END",
    "cooldown_reason": "CASE WHEN is_in THEN 'failed in row' ELSE '' END",
    "cooldown_start_date": "CASE WHEN is_in THEN %(now)s - interval '100 min' END",
    "cooldown_end_date": """CASE WHEN is_due THEN %(now)s - nth %% 600 * interval '1 s'
                                 WHEN is_in THEN %(now)s + (0.01 + random()) * interval '14 h' END""",
    "cooldown_warmup_at": "CASE WHEN is_due AND nth %% 20 NOT IN (14, 15, 16) THEN %(now)s - interval '70 min' END",
    "cooldown_warmup_sent_date": (
        "CASE WHEN is_due AND nth %% 20 NOT IN (14, 15, 16) THEN %(now)s - interval '65 min' END"
    ),
    "cooldown_warmup_uuid": "CASE WHEN is_due AND nth %% 20 NOT IN (14, 15, 16) THEN gen_random_uuid() END",
    "cooldown_warmup_delivered": "is_due AND nth %% 20 < 14",
    "cooldown_extensions": "CASE WHEN is_due AND nth %% 20 = 19 THEN 2 ELSE 0 END",
    "fail_open_streak": "CASE WHEN is_due AND nth %% 200 = 19 THEN 2 ELSE 0 END",
}
_NUMBERED = """
SELECT number, number / %(every)s AS nth, number %% %(every)s = 0 AS is_due,
  number %% %(every)s = 0 OR number %% 20 = 1 AS is_in
FROM generate_series(1, %(fleet)s) AS number
"""


#: A million rows take longer than the service allows a statement.
_NO_LIMIT = "SET statement_timeout = 0"


def run() -> dict[str, float]:
    """Measure both; returns the seconds of each, and the ratio."""
    fleets = {"otp_bench_small": SMALL, "otp_bench_large": LARGE}
    for name, fleet in fleets.items():
        databases.make_empty(name)
        with databases.using(name):
            _fill(fleet)
    seconds: dict[str, list[float]] = {name: [] for name in fleets}
    for _ in range(RUNS):
        for name, fleet in fleets.items():
            with databases.using(name):
                seconds[name].append(_one_run(fleet))
    small, large = (min(runs) for runs in seconds.values())
    median = statistics.median(b / a for a, b in zip(*seconds.values(), strict=True))
    _report(small, large, median)
    return {
        "sweep_small_fleet_s": small,
        "sweep_large_fleet_s": large,
        "sweep_ratio": large / small,
        "sweep_ratio_median": median,
    }


def _report(small: float, large: float, median: float) -> None:
    print(f"\n{f'{DUE:,} due among {SMALL:,} servers':<40}{small:>8.2f} s")
    print(f"{f'{DUE:,} due among {LARGE:,} servers':<40}{large:>8.2f} s")
    verdict = "within" if large / small <= LIMIT else "OVER"
    print(f"{'ratio of the best runs':<40}{large / small:>8.2f}   {verdict} the limit of {LIMIT}")
    print(f"{'median ratio of neighbouring runs':<40}{median:>8.2f}\n")


def _fill(fleet: int) -> None:
    from django.core.management import call_command
    from django.db import connection

    from tests.factories import HostFactory, ServerFactory

    print(f"loading {fleet:,} servers …", flush=True)
    call_command("migrate", verbosity=0)
    pattern = ServerFactory.create(host=HostFactory.create(number=1), unit=0)
    parameters: dict[str, Any] = {"now": NOW, "fleet": fleet, "every": fleet // DUE, "per_host": PER_HOST}
    _copy(pattern.host, {"number": "number"}, "generate_series(2, %(fleet)s / %(per_host)s + 1) AS number", parameters)
    first_host = "(SELECT min(id) AS id FROM servers_host) AS first_host"
    _copy(pattern, _EACH, f"({_NUMBERED}) AS numbered, {first_host}", parameters)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE bench_due AS SELECT * FROM servers_server WHERE cooldown_end_date <= %s", [NOW])


def _copy(pattern: Any, each: Mapping[str, str], rows: str, parameters: Mapping[str, Any]) -> None:
    """Insert a copy of `pattern` for each of `rows`, with the columns of `each` of its own."""
    from django.db import connection

    table = pattern._meta.db_table
    names = [field.column for field in pattern._meta.concrete_fields if field.column not in {*each, "id"}]
    copied = ", ".join(names)
    with connection.cursor() as cursor:
        cursor.execute(_NO_LIMIT)
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(each)}, {copied}) SELECT {', '.join(each.values())}, {copied} "
            f"FROM {rows}, (SELECT {copied} FROM {table} WHERE id = {pattern.pk}) AS pattern",
            parameters,
        )


def _one_run(fleet: int) -> float:
    from servers.cooldown import check_cooldown_servers

    _put_back()
    rng = random.Random(1)
    started = time.perf_counter()
    done = check_cooldown_servers(now=NOW, rng=rng)
    elapsed = time.perf_counter() - started
    print(f"{done:,} of {fleet:,} in {elapsed:.2f} s: {_outcomes()}", flush=True)
    if done != DUE:
        raise RuntimeError(f"{done:,} servers were looked at, {DUE:,} were due")
    return elapsed


def _put_back() -> None:
    """The servers that are due as they were, and no traces of a run: neither rows nor dead ones."""
    from django.db import connection

    from otp_service.events.models import Event
    from servers.models import Server, ServerStatusHistory

    traces = ", ".join(model._meta.db_table for model in (ServerStatusHistory, Event))
    names = [field.column for field in Server._meta.concrete_fields if field.column != "id"]
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {traces}")
        cursor.execute(
            f"UPDATE servers_server AS server SET {', '.join(f'{name} = due.{name}' for name in names)} "
            "FROM bench_due AS due WHERE due.id = server.id"
        )
        cursor.execute(_NO_LIMIT)
        cursor.execute("VACUUM (ANALYZE) servers_server")
        cursor.execute("RESET statement_timeout")


def _outcomes() -> dict[str, int]:
    from servers.models import ServerStatusHistory
    from servers.rules import EVENT_LABELS, Event

    events = Counter(ServerStatusHistory.objects.values_list("event", flat=True))
    return {EVENT_LABELS[Event(event)]: count for event, count in sorted(events.items())}
