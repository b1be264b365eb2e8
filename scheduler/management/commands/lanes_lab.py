"""`manage.py lanes_lab`: what five ways of sharing slots do to otp, measured with the product's own dispatcher."""

from __future__ import annotations

import json
import math
import os
from argparse import SUPPRESS, ArgumentTypeError
from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from otp_service.core.aligned import aligned
from scheduler.lab import picture, report, sizing
from scheduler.lab.cell import Cell, run_cell
from scheduler.lab.run import Bench, CellError, run_all
from scheduler.lab.scenarios import FULL, SMALL, Scenario, Timing
from scheduler.lab.schemes import Scheme, dispatchers
from scheduler.lab.shapes import Verdict, verdicts

_SECONDS = Timing().seconds
_SECONDS_RANGE = (5.0, 600.0)
_RATES = (0.0, 1_000_000.0)  # a second
_MOST_AT_ONCE = 1_000
_INTERRUPTED = 130  # what shells report for Ctrl-C
#: Peak rates of the service at full size, a second.
_OTP_PER_S, _PROMO_PER_S = 200.0, 6_556.0

E = TypeVar("E", bound=StrEnum)


class Command(BaseCommand):
    help = (
        "Runs FIFO, A (priority), B (reserved), C (floor and borrowing) and D (bulkheads) under healthy and slow "
        "providers, in real time, on databases of its own; tells how long otp waited for their first attempt."
    )
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--full", action="store_true", help="1,200 slots, 500,000 promo, push hung; D only")
        parser.add_argument("--schemes", type=_some_of(Scheme), help=f"of {','.join(Scheme)} (all)")
        parser.add_argument("--scenarios", type=_some_of(Scenario), help=f"of {','.join(Scenario)} (all)")
        parser.add_argument("--runs", type=_at_least_one, default=3, help="of each cell (3)")
        parser.add_argument(
            "--seconds", type=_number(*_SECONDS_RANGE), default=_SECONDS, help=f"that a run takes ({_SECONDS:g})"
        )
        parser.add_argument("--jobs", type=_at_least_one, help="runs at once (two a core; with --full one)")
        parser.add_argument("--json", type=_writable, metavar="FILE", help="write the figures there too")
        parser.add_argument("--chart", type=_writable, metavar="FILE", help="draw the p99 waits there, as an SVG")
        parser.add_argument("--sizing", action="store_true", help="measure nothing: how many slots rates need")
        parser.add_argument(
            "--otp-rate", type=_number(*_RATES), default=_OTP_PER_S, help="otp a second, for --sizing (200)"
        )
        parser.add_argument(
            "--promo-rate", type=_number(*_RATES), default=_PROMO_PER_S, help="promo a second, likewise (6556)"
        )
        parser.add_argument("--cell", type=Cell.read, help=SUPPRESS)  # one run, in its own process

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["cell"]:
            self._one_cell(options["cell"])
        elif options["sizing"]:
            self._size(options["otp_rate"], options["promo_rate"])
        else:
            self._measure(options)

    def _one_cell(self, cell: Cell) -> None:
        try:
            self.stdout.write(json.dumps(asdict(run_cell(cell))))
        except ValueError as error:
            raise CommandError(str(error)) from error

    def _size(self, otp_rate: float, promo_rate: float) -> None:
        [(_, sizes)] = dispatchers(Scheme.D, FULL)
        needs = sizing.needs(otp_rate=otp_rate, promo_rate=promo_rate, sizes=sizes)
        self.stdout.write(f"floor {sizes.floor}, shared {sizes.shared:,}, of which promo leaves {sizes.reserve}\n\n")
        self.stdout.write(aligned(sizing.sizing_rows(needs), word_columns=sizing.WORD_COLUMNS))

    def _measure(self, options: dict[str, Any]) -> None:
        scale, timing = FULL if options["full"] else SMALL, Timing(options["seconds"])
        bench = Bench(settings.DATABASE_URL, options["jobs"] or _jobs(full=options["full"]), self._say)
        runs = self._run(_cells(options), bench)
        cells = report.pooled(runs)
        table = aligned(report.result_rows(cells), word_columns=report.WORD_COLUMNS)
        self.stdout.write(f"\n{table}\n\n")
        if options["json"]:
            options["json"].write_text(json.dumps(report.as_json(runs, scale, timing), indent=2) + "\n")
        if options["chart"]:
            options["chart"].write_text(picture.svg(cells))
        self._judge(verdicts(cells, scale), is_default=_is_default(options))

    def _run(self, cells: list[Cell], bench: Bench) -> report.Runs:
        self._say(f"{len(cells)} runs of {cells[0].seconds:g} s, {bench.jobs} at once")
        try:
            return run_all(cells, bench)
        except KeyboardInterrupt:
            raise CommandError("stopped; the lab's databases are dropped", returncode=_INTERRUPTED) from None
        except psycopg.Error as error:
            raise CommandError(
                f"The lab makes databases of its own on the server of DATABASE_URL, and could not: {error}"
            ) from error
        except CellError as error:
            raise CommandError(str(error)) from error

    def _judge(self, found: list[Verdict], *, is_default: bool) -> None:
        for verdict in found:
            self.stdout.write(str(verdict))
        missing = sum(not verdict.shows for verdict in found)
        if missing and is_default:
            raise CommandError(f"{missing} of {len(found)} expected shapes do not show.")

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _cells(options: dict[str, Any]) -> list[Cell]:
    """Every run, one of each cell after the other: what disturbs the machine for a while disturbs all alike."""
    full, runs = options["full"], int(options["runs"])
    schemes = options["schemes"] or ([Scheme.D] if full else list(Scheme))
    scenarios = options["scenarios"] or ([Scenario.PUSH_HANGS] if full else list(Scenario))
    once = [Cell(scheme, scenario, full, options["seconds"]) for scenario in scenarios for scheme in schemes]
    return once * runs


def _is_default(options: dict[str, Any]) -> bool:
    """Whether this is the set-up whose shapes are known."""
    chosen = any(options[name] for name in ("schemes", "scenarios"))
    return not chosen and options["seconds"] == _SECONDS


def _jobs(*, full: bool) -> int:
    return 1 if full else 2 * (os.cpu_count() or 1)


def _some_of(kind: type[E]) -> Callable[[str], list[E]]:
    by_name = {member.lower(): member for member in kind}

    def read(text: str) -> list[E]:
        names = [name.strip().lower() for name in text.split(",")]
        if unknown := [name for name in names if name not in by_name]:
            raise ArgumentTypeError(f"{', '.join(map(repr, unknown))}: write some of {','.join(kind)}")
        return list(dict.fromkeys(by_name[name] for name in names))

    return read


def _number(low: float, high: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise ArgumentTypeError(f"{text!r}: write a number from {low:g} to {high:,.0f}")
        return value

    return read


def _at_least_one(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= _MOST_AT_ONCE):
        raise ArgumentTypeError(f"{text!r}: write a whole number from 1 to {_MOST_AT_ONCE}")
    return int(text)


def _writable(text: str) -> Path:
    """Before anything is measured: a result that cannot be kept is not worth the wait."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ArgumentTypeError(f"{text!r}: a file cannot be written there")
    return path
