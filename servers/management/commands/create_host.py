"""A new relay host and the secret that it shares with us."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from servers.creation import CreationRefused, create_host
from servers.hosts import webhook_path
from servers.rules import RelayProtocol


class Command(BaseCommand):
    help = "Makes a relay host and prints its secret, once: it cannot be shown again. BlueBubbles takes it as password."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("number", type=int, help="names the host in the addresses of its webhooks")
        parser.add_argument("base_url", help="where it listens: http(s)://…")
        parser.add_argument("--name", default="")
        parser.add_argument(
            "--protocol", choices=[protocol.value for protocol in RelayProtocol], default=RelayProtocol.NATIVE.value
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            host = create_host(
                options["number"],
                options["base_url"],
                name=options["name"],
                protocol=RelayProtocol(options["protocol"]),
            )
        except CreationRefused as refusal:
            raise CommandError(refusal.detail) from refusal
        self.stdout.write(f"secret    {host.secret}")
        self.stdout.write(f"webhooks  {webhook_path(host)} (on this service's address)")
