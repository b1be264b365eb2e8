"""`manage.py simulate_relay`: plays the relay hosts of the database whose address is this port."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connections

from otp_service.core.ports import port
from otp_service.core.signing import SecretError, sign
from otp_service.simulation.fleet import SimulatedHost, SimulatedUnit
from otp_service.simulation.relay import RelaySimulator
from servers.models import Host

REREAD_EVERY = timedelta(seconds=3)

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    """Plays until SIGTERM or SIGINT."""

    help = "Plays the relay hosts whose base_url is http://<host>:<port>/hosts/<number>, over real HTTP."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=port, required=True, help="the port to listen on")
        parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
        parser.add_argument("--webhook-base", default="http://127.0.0.1:8000", help="where webhooks are posted")
        parser.add_argument("--seed", type=int, default=1, help="makes the draws of a run repeatable")
        parser.add_argument("--ledger", type=Path, help="a file that keeps what left and what never will")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            simulator = RelaySimulator(
                webhook_base=options["webhook_base"],
                seed=options["seed"],
                listen_on=options["host"],
                port=options["port"],
                ledger_path=options["ledger"],
            )
        except OSError as error:
            raise CommandError(f"Cannot use the ledger {options['ledger']}: {error.strerror}") from error
        try:
            asyncio.run(_play(simulator, options["port"]))
        except OSError as error:
            raise CommandError(f"Cannot listen on {options['host']}:{options['port']}: {error.strerror}") from error


def hosts_at(port: int) -> list[SimulatedHost]:
    """The hosts of the database that are to be played on this port."""
    # Disabled ones too: a machine does not go away, nor forget what it sent, because we stop using it.
    hosts = Host.objects.filter(protocol=Host.Protocol.NATIVE).prefetch_related("servers")
    return [_simulated(host) for host in hosts if _is_at(host, port) and _can_sign(host)]


def _simulated(host: Host) -> SimulatedHost:
    units = tuple(
        SimulatedUnit(server.unit, handle=server.handle, signed_in=server.signed_in) for server in host.servers.all()
    )
    return SimulatedHost(host.number, host.secret, units)


def _is_at(host: Host, port: int) -> bool:
    try:
        address = urlsplit(host.base_url)
        return address.port == port and address.path.rstrip("/") == f"/hosts/{host.number}"
    except ValueError:
        return False


def _can_sign(host: Host) -> bool:
    try:
        sign(host.secret, "check", 0, b"")
    except SecretError as error:
        logger.warning("%s is not played: %s", host, error)
        return False
    return True


async def _play(simulator: RelaySimulator, port: int) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with simulator:
        logger.info("simulating relay hosts on port %d", port)
        while not stopped.is_set():
            await _reread(simulator, port)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), REREAD_EVERY.total_seconds())


async def _reread(simulator: RelaySimulator, port: int) -> None:
    """Take over new hosts and units. With the database away, those that are known play on."""
    try:
        hosts = await asyncio.to_thread(_read_and_close, port)
    except DatabaseError:
        logger.warning("the database did not answer: the known hosts play on")
        return
    simulator.play(hosts)


def _read_and_close(port: int) -> list[SimulatedHost]:
    try:
        return hosts_at(port)
    finally:
        connections.close_all()  # the thread's own: a connection kept for seconds would only go stale
