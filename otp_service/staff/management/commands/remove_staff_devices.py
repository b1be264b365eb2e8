"""For who has lost the phone, and the recovery codes too."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser

from otp_service.staff import devices


class Command(BaseCommand):
    help = "Takes a person's authenticator app and recovery codes away: the next log-in sets up another app."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")

    def handle(self, *args: Any, **options: Any) -> None:
        user = get_user_model().objects.filter(username=options["username"]).first()
        if user is None:
            raise CommandError("There is no user of this name.")
        self.stdout.write(f"{devices.remove_all(user)} devices removed")
