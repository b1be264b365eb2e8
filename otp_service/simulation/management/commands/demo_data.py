"""`manage.py demo_data`: fills an empty database with a fleet for the simulator to play."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from otp_service.core.clock import rng, utc_now
from otp_service.core.ports import port
from otp_service.simulation.demo import DemoRefused, Prepared, prepare
from otp_service.simulation.demo_file import DEFAULT_SIMULATOR_PORT


class Command(BaseCommand):
    """Says what it did; the key and the password stand in demo.json of the state folder, and nowhere else."""

    help = "Fills a database without hosts with demo hosts, servers, groups, a client and an administrator."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--simulator-port",
            type=port,
            help=f"where the demo's hosts are played (first {DEFAULT_SIMULATOR_PORT}, then where they were)",
        )
        parser.add_argument("--force", action="store_true", help="fill a database that is not an embedded one too")

    def handle(self, *_args: Any, **options: Any) -> None:
        if not (settings.EMBEDDED or options["force"]):
            raise CommandError(
                "This is not a local run (OTP_EMBEDDED is not set), and demo data has no place in a real database. "
                "If that is what you want, say --force."
            )
        access_file = settings.STATE_DIR / "demo.json"
        try:
            done = prepare(simulator_port=options["simulator_port"], access_file=access_file, now=utc_now(), rng=rng)
        except DemoRefused as refusal:
            raise CommandError(refusal.detail) from refusal
        except OSError as error:
            raise CommandError(f"{access_file} cannot be written: {error.strerror}") from error
        for line in _report(done):
            self.stdout.write(line)
        if done.new_access:
            self.stdout.write(f"log-in and API key: {access_file}")


def _report(done: Prepared) -> list[str]:
    if done.servers:
        return [f"made a demo fleet: {done.servers} servers on {done.hosts} hosts"]
    if done.moved_hosts:
        return [f"data is there; {done.moved_hosts} demo hosts have a new port"]
    return ["data is there"]
