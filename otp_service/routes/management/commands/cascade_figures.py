"""`manage.py cascade_figures`: what the cascade did in a window of time."""

from __future__ import annotations

import json
import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error

from otp_service.core.clock import utc_now
from otp_service.routes import cascade_figures, cascade_report
from otp_service.routes.management.result_files import writable

_AGO = re.compile(r"([1-9][0-9]{0,4})([mhd])", re.ASCII)
_YEARS = (2000, 9000)
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}

#: A moment, given now.
Moment = Callable[[datetime], datetime]


class Command(BaseCommand):
    help = "Tells by route and by lane what the cascade did with the messages accepted in a window of time."

    def add_arguments(self, parser: CommandParser) -> None:
        when = "as 24h, 30m or 7d before now, or as 2026-09-01T12:00 (UTC unless it says otherwise)"
        parser.add_argument("--since", type=_moment, default=_moment("24h"), help=f"{when} (24h)")
        parser.add_argument("--until", type=_moment, default=_now, help=f"{when} (now)")
        parser.add_argument("--json", type=writable, metavar="FILE", help="write the figures there too")

    def handle(self, *_args: Any, **options: Any) -> None:
        now = utc_now()
        since, until = options["since"](now), options["until"](now)
        if since >= until:
            raise CommandError("--since must be before --until.")
        try:
            figures = cascade_figures.read(since, until, now=now)
        except Error as error:
            raise CommandError(f"The figures could not be read: {error}") from error
        self.stdout.write(cascade_report.report(figures))
        if options["json"]:
            options["json"].write_text(json.dumps(asdict(figures), indent=2, default=str) + "\n")


def _now(now: datetime) -> datetime:
    return now


def _moment(text: str) -> Moment:
    if ago := _AGO.fullmatch(text):
        return lambda now: now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    at: datetime | None
    try:
        at = datetime.fromisoformat(text)
        at = at.replace(tzinfo=at.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        at = None
    if at is None or not _YEARS[0] <= at.year <= _YEARS[1]:
        raise ArgumentTypeError(f"{text!r}: write it as 24h, 30m or 7d, or as 2026-09-01T12:00")
    moment = at
    return lambda _: moment
