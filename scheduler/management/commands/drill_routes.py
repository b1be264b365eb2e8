"""`manage.py drill_routes`: what becomes of messages while providers, PostgreSQL or Redis fail, as a journal."""

from __future__ import annotations

import json
import os
from argparse import SUPPRESS, ArgumentTypeError
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from scheduler.drill import lane, report
from scheduler.drill.children import DrillError
from scheduler.drill.failures import FAILURES, Failure
from scheduler.drill.run import Bench, run_all

_MOST_AT_ONCE = 20
_JOBS = 3
_INTERRUPTED = 130  # what shells report for Ctrl-C


class Command(BaseCommand):
    help = (
        "Sends otp and promo through the product's own web process and dispatcher to simulated providers, lets one "
        "thing after another fail, and tells what became of the messages. On databases of its own; takes two minutes."
    )
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--list", action="store_true", help="name the failures, and run none")
        parser.add_argument("--only", type=_some, metavar="NAME[,NAME]", help="run these (all)")
        parser.add_argument("--jobs", type=_jobs, default=_JOBS, help=f"failures at once ({_JOBS})")
        parser.add_argument("--json", type=_writable, metavar="FILE", help="write the journals there too")
        parser.add_argument("--dispatch", type=lane.read, help=SUPPRESS)  # one run's dispatcher, in its own process

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["dispatch"] is not None:
            self._dispatch(options["dispatch"])
        elif options["list"]:
            width = max(map(len, FAILURES))
            self.stdout.writelines(f"{name:<{width}}  {failure.words}\n" for name, failure in FAILURES.items())
        else:
            self._drill(options)

    def _dispatch(self, rows: list[lane.RouteRow]) -> None:
        try:
            lane.run(rows, self._say)
        except ValueError as error:
            raise CommandError(str(error)) from error

    def _drill(self, options: dict[str, Any]) -> None:
        bench = Bench(settings.DATABASE_URL, settings.REDIS_URL, options["jobs"], self._say)
        pages = self._run(options["only"] or list(FAILURES.values()), bench)
        self.stdout.write(f"\n{report.text(pages)}\n")
        if options["json"]:
            options["json"].write_text(json.dumps(report.as_json(pages), indent=2) + "\n")
        broken = [page.name for page in pages if not all(verdict.holds for verdict in page.verdicts)]
        if broken:
            raise CommandError(f"A condition did not hold in: {', '.join(broken)}.")

    def _run(self, failures: list[Failure], bench: Bench) -> list[report.Page]:
        self._say(f"{len(failures)} failure{'s'[: len(failures) > 1]}, {bench.jobs} at once")
        try:
            return run_all(failures, bench)
        except KeyboardInterrupt:
            raise CommandError("stopped; the drill's databases are dropped", returncode=_INTERRUPTED) from None
        except psycopg.Error as error:
            raise CommandError(
                f"The drill makes databases of its own on the server of DATABASE_URL, and could not: {error}"
            ) from error
        except DrillError as error:
            raise CommandError(str(error)) from error

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _some(text: str) -> list[Failure]:
    names = [name.strip().lower() for name in text.split(",")]
    if unknown := [name for name in names if name not in FAILURES]:
        raise ArgumentTypeError(f"{', '.join(map(repr, unknown))}: write some of {','.join(FAILURES)}")
    return [FAILURES[name] for name in dict.fromkeys(names)]


def _jobs(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= _MOST_AT_ONCE):
        raise ArgumentTypeError(f"{text!r}: write a whole number from 1 to {_MOST_AT_ONCE}")
    return int(text)


def _writable(text: str) -> Path:
    """Before anything is run: a journal that cannot be kept is not worth the wait."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ArgumentTypeError(f"{text!r}: a file cannot be written there")
    return path
