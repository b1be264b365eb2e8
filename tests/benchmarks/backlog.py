"""What a long queue costs: to claim 200 messages where 5,000,000 wait, and where 50,000 do.

Both queues stand on one server and take turns. A claim is that of the product, with its planner settings: pick, decide
the routes, write the attempts, commit.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack

from tests.benchmarks import databases, waiting

#: Messages that wait in the long queue; BENCH_BACKLOG_ROWS for a quicker run.
LONG = int(os.environ.get("BENCH_BACKLOG_ROWS", "5000000"))
SHORT = 50_000
BATCH = 200
TURNS, CLAIMS = 8, 10  # claims of one turn


def run() -> dict[str, float]:
    """Measure both; returns the median of a claim, in milliseconds."""
    queues = {"otp_bench_short": SHORT, "otp_bench_long": LONG}
    seconds: dict[str, list[float]] = {name: [] for name in queues}
    with ExitStack() as stack:
        flows: dict[str, Sequence[int]] = {}
        for name, rows in queues.items():
            stack.enter_context(databases.migrated(name))
            with databases.using(name):
                flows[name] = waiting.fill(rows)
        print(f"{TURNS * CLAIMS} claims of {BATCH} in each …", flush=True)
        for _ in range(TURNS):
            for name in queues:
                with databases.using(name):
                    seconds[name] += _turn(flows[name])
    short, long = (1000 * statistics.median(each) for each in seconds.values())
    return {"claim_short_queue_ms": short, "claim_long_queue_ms": long, "long_queue_rows": LONG}


def _turn(flows: Sequence[int]) -> list[float]:
    """Seconds of each claim; the first one, which plans and warms up, is not counted."""
    from django.db import connection

    from otp_service.core.clock import utc_now
    from otp_service.messages.rules import Lane
    from otp_service.routes import claim, table
    from otp_service.routes.choose import Ways
    from scheduler.dispatcher import _PLANNER_OPTIONS

    with connection.cursor() as cursor:
        for option in _PLANNER_OPTIONS.split("-c ")[1:]:
            cursor.execute(f"SET {option}")
    spec = table.load()[waiting.ROUTE]
    ways = Ways(dict.fromkeys(flows, (spec,)), {spec.name: dict.fromkeys(Lane, BATCH)})
    plan = [(flow, BATCH // len(flows)) for flow in flows]
    taken = []
    for _ in range(CLAIMS + 1):
        begin = time.perf_counter()
        batch = claim.claim(plan, ways, now=utc_now())
        taken.append(time.perf_counter() - begin)
        assert len(batch.claimed) == BATCH
    return taken[1:]
