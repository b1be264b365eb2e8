"""`manage.py reconcile_routes`: our attempts of a day beside what their providers say of them."""

from __future__ import annotations

import json
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error

from otp_service.core.clock import utc_now
from otp_service.core.errors import ServiceError
from otp_service.routes import reconcile, reconcile_report
from otp_service.routes.management.result_files import writable
from otp_service.routes.price_files import UnreadableFile
from otp_service.routes.reconcile_rules import Tally

_PROGRESS_EVERY = 2.0  # seconds
_INTERRUPTED = 130  # what shells report for Ctrl-C
_YEARS = (2000, 9000)


class Command(BaseCommand):
    help = (
        "Compares the attempts of a day with their providers: asks about each, or reads a file of call records or "
        "prices. Reports what differs, and changes nothing but what an answer says of an attempt's state."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--day", type=_day, help="of the attempts, UTC, as 2026-09-01 (yesterday)")
        parser.add_argument("--route", default="", help="one route, by its name (all whose providers can be asked)")
        parser.add_argument(
            "--file",
            type=Path,
            metavar="CSV",
            help="what the provider of --route exported: a header with id (its own, or the uuid of our attempt) "
            "and any of state, parts, cost, currency",
        )
        parser.add_argument("--json", type=writable, metavar="FILE", help="write the findings there too")

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["file"] and not options["route"]:
            raise CommandError("--file needs --route: ids are a provider's own.")
        day = options["day"] or utc_now().date() - timedelta(days=1)
        self._said_at = 0.0
        found: dict[str, Tally] = {}
        fault = self._follow(_work(options, day), found)
        tallies = list(found.values())
        if tallies or not fault:
            self.stdout.write(reconcile_report.report(tallies, day))
            if options["json"]:
                options["json"].write_text(json.dumps(reconcile_report.document(tallies, day), indent=2) + "\n")
        if fault:
            raise fault

    def _follow(self, work: Iterator[Tally], found: dict[str, Tally]) -> CommandError | None:
        """Collect what is found until the work ends; returns why it ended early, if it did."""
        try:
            for tally in work:
                found[tally.route] = tally
                self._show(tally)
        except KeyboardInterrupt:
            return CommandError("stopped; what was found so far is above", returncode=_INTERRUPTED)
        except ServiceError as error:
            return CommandError(error.detail)
        except UnreadableFile as error:
            return CommandError(str(error))
        except Error as error:
            return CommandError(f"The database could not be read: {error}")
        return None

    def _show(self, tally: Tally) -> None:
        if time.monotonic() - self._said_at < _PROGRESS_EVERY:
            return
        self._said_at = time.monotonic()
        of = f" of {tally.attempts:,}" if tally.attempts else ""
        self.stderr.write(f"{tally.route}: {tally.compared + tally.unanswered:,}{of}")


def _work(options: dict[str, Any], day: date) -> Iterator[Tally]:
    if options["file"]:
        yield from reconcile.by_file(options["route"], day, options["file"])
        return
    for spec in reconcile.queryable(options["route"]):
        yield from reconcile.by_questions(spec, day, clock=utc_now)


def _day(text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if not _YEARS[0] <= day.year <= _YEARS[1]:
        raise ArgumentTypeError(f"{text!r}: write a day as 2026-09-01")
    return day
