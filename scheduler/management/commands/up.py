"""`manage.py up`: the whole service on this machine, until Ctrl-C."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from otp_service.core.ports import port_or_any
from otp_service.embedded import EmbeddedServerError, StartCancelledError
from otp_service.simulation.demo_file import DEFAULT_SIMULATOR_PORT, DemoAccess
from scheduler import local_stack
from scheduler.local_stack import LocalStack, LocalStackError, Options
from scheduler.loopback import ADDRESS
from scheduler.supervisor import Log, StopSignals, reader_is_gone, wants_colour

_DEMO_TEXT = "Your code is 493 021"
#: Where the settings put the manage API by default; this command does without them.
MANAGE_API_PREFIX = "api/v1/4fa5e0fd/servers/"


class Command(BaseCommand):
    """Starts and watches; it reads no database itself, as its own settings were loaded before there was one."""

    help = "Starts the whole service on this machine, with servers of its own if none are configured; Ctrl-C ends it."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        add_stack_arguments(parser, port=local_stack.DEFAULT_PORT)

    def handle(self, *_args: Any, **options: Any) -> None:
        wanted = stack_options(options)
        log = Log(sys.stdout, local_stack.NAMES, colour=wants_colour(sys.stdout))
        try:
            with StopSignals() as signals:
                _run(wanted, log, signals)
        except StartCancelledError:
            log.line("stopped")
        except (EmbeddedServerError, LocalStackError) as error:
            raise CommandError(str(error)) from error


def add_stack_arguments(parser: CommandParser, *, port: int) -> None:
    """The options that `up` and `smoke` share. Port 0 means any free one."""
    parser.add_argument("--port", type=port_or_any, default=port, help=f"of the API and the admin (default: {port})")
    parser.add_argument(
        "--simulator-port",
        type=port_or_any,
        default=DEFAULT_SIMULATOR_PORT,
        help=f"of the simulated relay hosts (default: {DEFAULT_SIMULATOR_PORT})",
    )
    parser.add_argument("--no-simulator", action="store_true", help="do not play relay hosts")
    parser.add_argument("--no-demo-data", action="store_true", help="do not fill an empty database")


def stack_options(options: dict[str, Any]) -> Options:
    """What the command line asks for."""
    return Options(
        port=options["port"] or local_stack.free_port(),
        simulator_port=None if options["no_simulator"] else options["simulator_port"] or local_stack.free_port(),
        demo_data=not options["no_demo_data"],
    )


def banner(options: Options, access: DemoAccess | None, env: Mapping[str, str]) -> str:
    """Where everything is, and what to paste to see a code delivered and the groups; `env` is of the processes."""
    base = f"http://{ADDRESS}:{options.port}"
    places = f"\n  Admin  {base}/admin/\n  Docs   {base}/api/docs/\n"
    if options.simulator_port is not None:
        places += f"  Ledger http://{ADDRESS}:{options.simulator_port}/control/ledger (what the simulated phones got)\n"
    if access is None:
        return (
            f"{places}\n  There is no demo account: `manage.py createsuperuser` makes a log-in for the admin,\n"
            "  `manage.py create_client` a client with an API key.\n"
            f"{_manage(base, env)}"
        )
    key = f"-H 'Authorization: Bearer {access.api_key}'"
    body = json.dumps({"to": access.to, "text": _DEMO_TEXT, "lane": "otp"})
    return (
        f"{places}"
        f"  Log-in {access.username} / {access.password}\n"
        f"  Key    {access.api_key}\n\n"
        f"  Send a code:\n"
        f"    curl -sS -X POST {base}/api/v1/messages/ {key} \\\n"
        f"      -H 'Content-Type: application/json' -d '{body}'\n"
        f"  See what became of it (the newest message):\n"
        f"    curl -sS '{base}/api/v1/messages/?limit=1' {key}\n"
        f"{_manage(base, env)}"
    )


def _manage(base: str, env: Mapping[str, str]) -> str:
    """What to paste to see the groups of servers; nothing where the manage API has no key."""
    key = env.get("MANAGE_SERVERS_API_AUTH_KEY")
    if not key:
        return ""
    address = f"{base}/{env.get('MANAGE_API_PREFIX') or MANAGE_API_PREFIX}groups/"
    return (
        f"  See the groups of servers, by the manage API:\n"
        f"    curl -sS {address} -H {shlex.quote(f'Authorization: {key}')}\n"
    )


def _run(options: Options, log: Log, signals: StopSignals) -> None:
    with local_stack.running(options, log=log, signals=signals, say=log.line) as stack:
        _wait_until_ready(stack, log)
        if not signals.requested:
            log.line("running; Ctrl-C stops everything" + banner(options, stack.demo_access(), stack.env))
        stack.supervisor.run_until(lambda: reader_is_gone(sys.stdout))
        log.line("stopping")
    log.line("stopped")


def _wait_until_ready(stack: LocalStack, log: Log) -> None:
    log.line("waiting until the service is ready")
    ready = stack.supervisor.run_until(lambda: stack.readiness().ready, within=local_stack.READY_WITHIN)
    if not ready:
        log.line(f"not ready after {local_stack.READY_WITHIN.total_seconds():.0f} s: {stack.readiness().detail}")
        return
    if stack.options.simulator_port is None:
        return
    can_send = stack.supervisor.run_until(
        lambda: stack.readiness().servers_that_may_send > 0, within=local_stack.HOSTS_ONLINE_WITHIN
    )
    if not can_send:
        log.line(f"warning: no server may send yet: {stack.readiness().why_none}")
