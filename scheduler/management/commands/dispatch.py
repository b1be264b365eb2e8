"""`manage.py dispatch`: run a dispatcher."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from scheduler.dispatcher import DispatcherOptions, run


class Command(BaseCommand):
    help = "Claims messages and hands them to relay hosts, until SIGTERM. Run as many as you like, anywhere."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--floor", type=int, default=60, help="calls in flight that only otp may use (60)")
        parser.add_argument("--shared", type=int, default=1140, help="calls in flight that every lane may use (1140)")
        parser.add_argument("--reserve", type=int, default=342, help="shared calls that only otp may borrow (342)")

    def handle(self, *_args: Any, **options: Any) -> None:
        floor, shared, reserve = options["floor"], options["shared"], options["reserve"]
        if floor < 0 or not 0 <= reserve < shared:
            raise CommandError("--floor must be 0 or more, and --reserve 0 or more and below --shared")
        run(DispatcherOptions(floor, shared, reserve))
