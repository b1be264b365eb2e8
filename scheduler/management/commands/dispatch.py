"""`manage.py dispatch`: run a dispatcher."""

from __future__ import annotations

import platform
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from otp_service.messages.rules import Lane
from scheduler.dispatcher import DispatcherOptions, run
from scheduler.rules import SlotSizes

#: Shares of the shared slots: what is left to otp, and what transactional leaves to promo.
_RESERVE, _PROMO_FLOOR = 0.3, 0.02
_MOST_SLOTS = 20_000  # of one process; one core makes a few thousand calls a second


class Command(BaseCommand):
    help = "Claims messages and hands them to their routes, until SIGTERM. Run as many as you like, anywhere."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--floor", type=int, default=60, help="calls in flight that only otp may use (60)")
        parser.add_argument("--shared", type=int, default=1140, help="calls in flight that every lane may use (1140)")
        parser.add_argument("--reserve", type=int, help="shared calls that only otp may borrow (30 %% of them)")
        parser.add_argument(
            "--promo-floor", type=int, help="shared calls that transactional leaves to promo (2 %% of them)"
        )
        parser.add_argument(
            "--lanes", nargs="+", choices=[lane.value for lane in Lane], default=[lane.value for lane in Lane]
        )
        parser.add_argument("--name", default=platform.node(), help="what people know it by (the machine's name)")

    def handle(self, *_args: Any, **options: Any) -> None:
        lanes = tuple(lane for lane in Lane if lane.value in options["lanes"])
        run(DispatcherOptions(_sizes(options), lanes, options["name"]))


def _sizes(options: dict[str, Any]) -> SlotSizes:
    shared = options["shared"]
    reserve = int(shared * _RESERVE) if options["reserve"] is None else options["reserve"]
    promo_floor = int(shared * _PROMO_FLOOR) if options["promo_floor"] is None else options["promo_floor"]
    sizes = SlotSizes(options["floor"], shared, reserve, promo_floor)
    if sizes.floor + sizes.shared > _MOST_SLOTS:
        raise CommandError(f"--floor and --shared together must be at most {_MOST_SLOTS}: run more dispatchers")
    if min(sizes.floor, sizes.reserve, sizes.promo_floor) < 0:
        raise CommandError("--floor, --reserve and --promo-floor must be 0 or more")
    if reserve + promo_floor >= shared:
        raise CommandError("--reserve and --promo-floor together must be below --shared")
    return sizes
