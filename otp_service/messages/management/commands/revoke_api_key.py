"""The end of a key."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from otp_service.core.clock import utc_now
from otp_service.messages import api_keys


class Command(BaseCommand):
    help = "Revokes an API key at once, by its prefix: the twelve characters between the underscores."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("prefix")

    def handle(self, *args: Any, **options: Any) -> None:
        if not api_keys.revoke(options["prefix"], now=utc_now()):
            raise CommandError("There is no such key, or it was revoked before.")
        self.stdout.write("Revoked.")
