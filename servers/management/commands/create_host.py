"""A new relay host and the secret that it shares with us."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from servers.creation import CreationRefused, create_host


class Command(BaseCommand):
    help = "Makes a relay host and prints its signing secret, once: it cannot be shown again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("number", type=int, help="names the host in the addresses of its webhooks")
        parser.add_argument("base_url", help="where it listens: http(s)://…")
        parser.add_argument("--name", default="")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            host = create_host(options["number"], options["base_url"], name=options["name"])
        except CreationRefused as refusal:
            raise CommandError(refusal.detail) from refusal
        self.stdout.write(f"secret    {host.secret}")
        self.stdout.write(f"webhooks  {reverse('relay-webhook', args=[host.number])} (on this service's address)")
