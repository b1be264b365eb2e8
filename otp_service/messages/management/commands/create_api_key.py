"""Another key for a client: the new one is taken into use, then the old one revoked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from otp_service.core.clock import utc_now
from otp_service.messages import api_keys
from otp_service.messages.api_keys import Scope
from otp_service.messages.models import Client


class Command(BaseCommand):
    help = "Prints another API key of a client, once: it cannot be shown again. Its earlier keys stay valid."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument(
            "--scope",
            action="append",
            choices=[scope.value for scope in Scope],
            help="may be repeated; messages if none",
        )
        parser.add_argument("--days", type=int, help="how long it is valid; for ever if not given")

    def handle(self, *args: Any, **options: Any) -> None:
        now = utc_now()
        client = Client.objects.filter(name=options["name"]).first()
        if client is None:
            raise CommandError(f"There is no client {options['name']}: create_client makes one.")
        expires_at = now + timedelta(days=options["days"]) if options["days"] is not None else None
        scopes = map(Scope, options["scope"] or [Scope.MESSAGES])
        _, text = api_keys.issue(client, scopes, now=now, expires_at=expires_at, by=api_keys.COMMAND_LINE)
        self.stdout.write(text)
