"""The dispatcher against pgbench on the same server, and against a Celery task for each message.

They have the same work at heart: take a message that waits, so that nobody else takes it, and write what became of
it. pgbench takes one row at a time with SKIP LOCKED, and marks it. The dispatcher, one process of the product with
1,200 slots, also decides the route, decrypts, writes an attempt before the call, makes a call of 150 ms to a simulated
provider, and settles. Every commit is on the disk on both sides.
"""

from __future__ import annotations

import os

from tests.benchmarks import celery_task, databases, dispatching, pgbench, waiting

#: Messages that wait, in all; BENCH_DISPATCHER_ROWS for a quicker run.
ROWS = int(os.environ.get("BENCH_DISPATCHER_ROWS", "1000000"))
PGBENCH_SECONDS = 5


def run() -> dict[str, float]:
    """Measure all three; returns what each does in a second."""
    name = "otp_bench_dispatcher"
    with databases.migrated(name) as address, databases.using(name):
        waiting.fill(ROWS)
        pgbench.fill(address, ROWS)
        before = pgbench.rate(address, PGBENCH_SECONDS)
        print(f"dispatcher, {dispatching.SLOTS:,} slots of {waiting.CALL_MS} ms, {dispatching.SECONDS} s …", flush=True)
        dispatcher = dispatching.rate(["manage.py", "dispatch", *_arguments()], address)
        after = pgbench.rate(address, PGBENCH_SECONDS)
    return {
        "dispatcher_per_s": dispatcher,
        "dispatcher_rows": ROWS,
        "pgbench_one_row_per_s": (before + after) / 2,
        "celery_task_per_s": celery_task.rate(),
    }


def _arguments() -> list[str]:
    return [part for name, size in dispatching.SIZES.items() for part in (f"--{name.replace('_', '-')}", str(size))]
