"""A new server: one iMessage account on a relay host."""

from __future__ import annotations

from itertools import chain
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from otp_service.core.clock import utc_now
from servers.creation import CreationRefused, create_server


class Command(BaseCommand):
    help = "Makes an active server on a host that there is. It may send at once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("region", help="the pool that it is in, as in POOLS_BY_PREFIX")
        parser.add_argument("unit", type=int, help="its number on the host; once per host and once per region")
        parser.add_argument("host_number", type=int)
        parser.add_argument("handle", help="what its messages come from: a number with +, or an e-mail address")
        parser.add_argument("--name", default="")

    def handle(self, *args: Any, **options: Any) -> None:
        region = options["region"]
        try:
            server = create_server(
                region,
                options["unit"],
                options["host_number"],
                options["handle"],
                now=utc_now(),
                name=options["name"],
            )
        except CreationRefused as refusal:
            raise CommandError(refusal.detail) from refusal
        self.stdout.write(f"{server} on host {server.host.number}: {server.uuid}")
        if region not in chain.from_iterable(settings.POOLS_BY_PREFIX.values()):
            self.stderr.write(f"Warning: no number is served by the pool {region}: POOLS_BY_PREFIX does not name it.")
