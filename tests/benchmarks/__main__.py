"""`make bench`: every benchmark, or those that ARGS names; the figures are kept in `var/bench.json`."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from otp_service.embedded import temporary_servers
from tests.benchmarks import databases, dispatcher, sweep

BENCHMARKS: Mapping[str, Callable[[], dict[str, float]]] = {"dispatcher": dispatcher.run, "sweep": sweep.run}
KEPT = Path("var/bench.json")


def main(wanted: Sequence[str]) -> int:
    """Run them on one server of its own; 2 when one of the names is none of theirs."""
    if unknown := [name for name in wanted if name not in BENCHMARKS]:
        print(f"{', '.join(unknown)}: there is only {' and '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    with temporary_servers() as servers:
        _set_up(servers.env)
        for name in wanted or BENCHMARKS:
            _keep(BENCHMARKS[name]())
    return 0


def _set_up(env: Mapping[str, str]) -> None:
    os.environ |= {**env, "SEND_INTERVAL_MINUTES": "0.00001-0.00002", "LOG_LEVEL": "WARNING"}
    os.environ["DATABASE_URL"] = databases.make_empty("otp_bench")
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "otp_service.settings"
    django.setup()


def _keep(figures: Mapping[str, float]) -> None:
    """Beside those of the other benchmarks, which may be of an earlier run."""
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    machine = {"cores": os.cpu_count(), "python": platform.python_version()}
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps({**known, **figures, **machine}, indent=2) + "\n")
    print(f"kept in {KEPT}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
