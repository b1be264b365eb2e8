"""`make bench`: every benchmark, or those that ARGS names; the figures are kept in `var/bench.json`."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from otp_service.core.clock import utc_now
from otp_service.embedded.servers import EmbeddedServers
from tests.benchmarks import databases, machine, table
from tests.benchmarks.table import Row

#: By name, the module whose `run()` returns its figures.
BENCHMARKS: Mapping[str, str] = {
    "dispatcher": "dispatcher",
    "http": "http_peer",
    "backlog": "backlog",
    "intake": "intake",
    "campaign": "campaign",
    "webhooks": "webhooks",
    "sweep": "sweep",
    "otp": "otp_wait",
}
ROWS = (
    Row("dispatcher : pgbench, one row at a time", "dispatcher_per_s", "pgbench_one_row_per_s", "messages/s", 2),
    Row("dispatcher : a Celery task for each", "dispatcher_per_s", "celery_task_per_s", "messages/s", 10),
    Row("dispatcher over HTTP : bare aiohttp", "dispatcher_over_http_per_s", "bare_aiohttp_per_s", "calls/s", 0.6),
    Row("otp wait, p99, push hung : the limit", "otp_wait_p99_ms", "otp_wait_p99_limit_ms", "ms", 1, at_most=True),
    Row("otp wait, longest, push hung : the limit", "otp_wait_max_ms", "otp_wait_max_limit_ms", "ms", 1, at_most=True),
    Row("claim, long queue : short queue", "claim_long_queue_ms", "claim_short_queue_ms", "ms", 1.3, at_most=True),
    Row("intake : a bare view that inserts a row", "intake_per_s", "bare_view_per_s", "requests/s", 0.6),
    Row("campaign : raw COPY", "campaign_rows_per_s", "copy_rows_per_s", "rows/s", 0.3),
    Row("campaign, peak memory : the limit", "campaign_memory_mb", "campaign_memory_limit_mb", "MB", 1, at_most=True),
    Row("single events : a bare view", "webhook_single_events_per_s", "webhook_bare_view_per_s", "events/s", 0.25),
    Row(
        "listed events : single events",
        "webhook_listed_events_per_s",
        "webhook_single_events_per_s",
        "events/s",
        10,
    ),
    Row("sweep, large fleet : small fleet", "sweep_large_fleet_s", "sweep_small_fleet_s", "s", 1.3, at_most=True),
)
KEPT = Path("var/bench.json")
_DATABASE = "otp_bench"


def main(wanted: Sequence[str]) -> int:
    """Run them on one server of its own; 2 when one of the names is none of theirs."""
    if unknown := [name for name in wanted if name not in BENCHMARKS]:
        print(f"{', '.join(unknown)}: there is only {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    figures: dict[str, float] = {}
    with durable_servers() as servers:
        _set_up(servers.env)
        try:
            for name in wanted or BENCHMARKS:
                _begin_anew()
                found = import_module(f"tests.benchmarks.{BENCHMARKS[name]}").run()
                if found:
                    keep(name, found, KEPT)
                figures |= found
        finally:
            print("\n" + "\n".join(table.lines(ROWS, figures)) + f"\nkept in {KEPT}")
    return 0


@contextmanager
def durable_servers() -> Iterator[EmbeddedServers]:
    """Servers of this run, which write each commit to the disk as in production; nothing is left of them."""
    state_dir = Path(tempfile.mkdtemp(prefix="otp-bench-"))
    servers = EmbeddedServers(state_dir)
    try:
        with servers:
            yield servers
    finally:
        servers.remove()
        shutil.rmtree(state_dir, ignore_errors=True)


def _set_up(env: Mapping[str, str]) -> None:
    os.environ |= {**env, "SEND_INTERVAL_MINUTES": "0.00001-0.00002", "LOG_LEVEL": "WARNING", "SIMULATED_ROUTES": "on"}
    os.environ["DATABASE_URL"] = databases.make_empty(_DATABASE)
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "otp_service.settings"
    django.setup()


def _begin_anew() -> None:
    """No benchmark meets the rows of another."""
    from django.db import connections

    connections.close_all()
    databases.make_empty(_DATABASE)


def keep(name: str, figures: Mapping[str, float], path: Path) -> None:
    """Write one benchmark's figures beside those of the others, which may be of an earlier run; whole or not at all."""
    known = json.loads(path.read_text()) if path.exists() else {}
    known[name] = {"at": utc_now().isoformat(timespec="seconds"), "machine": machine.facts(), "figures": figures}
    path.parent.mkdir(exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(known, indent=2) + "\n")
    beside.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
