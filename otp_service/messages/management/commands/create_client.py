"""A new client and its first key."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from otp_service.core.clock import utc_now
from otp_service.messages import api_keys
from otp_service.messages.api_keys import Scope
from otp_service.messages.models import Client


class Command(BaseCommand):
    help = "Makes a client and prints its first API key, once: it cannot be shown again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument(
            "--scope",
            action="append",
            choices=[scope.value for scope in Scope],
            help="may be repeated; messages if none",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        now = utc_now()
        if Client.objects.filter(name=options["name"]).exists():
            raise CommandError(f"There is a client {options['name']}: create_api_key makes another key for it.")
        with transaction.atomic():
            client = Client.objects.create(name=options["name"], created_at=now)
            scopes = map(Scope, options["scope"] or [Scope.MESSAGES])
            _, text = api_keys.issue(client, scopes, now=now, by=api_keys.COMMAND_LINE)
        self.stdout.write(text)
