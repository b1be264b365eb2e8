"""`manage.py smoke`: proves on this machine that a code posted over HTTP is delivered, once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from django.core.management.base import BaseCommand, CommandError, CommandParser

from otp_service.embedded import EmbeddedServerError, StartCancelledError, default_state_dir
from otp_service.simulation.demo_file import DemoAccess
from scheduler import local_stack, loopback
from scheduler.local_stack import LocalStack, LocalStackError
from scheduler.management.commands.up import add_stack_arguments, stack_options
from scheduler.supervisor import Log, StopSignals

_TEXT = "Your code is 271 828"
_FAILED_FOR_GOOD = frozenset({"failed", "expired", "cancelled"})
_INTERRUPTED = 130  # what shells report for Ctrl-C


class SmokeError(Exception):
    """Why the code did not arrive, in one sentence."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a message stands, from the answer of the API."""

    status: str
    reason: str
    attempt_ids: frozenset[str]

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Progress:
        attempts = frozenset(str(attempt["id"]) for attempt in body.get("attempts") or [])
        return cls(str(body.get("status") or "unknown"), str(body.get("reason") or ""), attempts)

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.status}{reason}; attempts: {len(self.attempt_ids)}"


class Command(BaseCommand):
    """As `up`, by itself: start, post, wait for the delivery, count the copies, stop."""

    help = "Starts the whole service, sends one code over HTTP, and succeeds only if exactly one copy was delivered."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        add_stack_arguments(parser, port=0)
        parser.add_argument("--timeout", type=float, default=60.0, help="seconds from start to delivery (default: 60)")

    def handle(self, *_args: Any, **options: Any) -> None:
        log_path = default_state_dir() / "smoke.log"
        try:
            log_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with ExitStack() as resources:
                log_file = resources.enter_context(log_path.open("w"))
                signals = resources.enter_context(StopSignals())
                self._run(options, Log(log_file, local_stack.NAMES, colour=False), signals)
        except StartCancelledError as error:
            raise CommandError("stopped", returncode=_INTERRUPTED) from error
        except (EmbeddedServerError, LocalStackError, SmokeError, OSError) as error:
            raise CommandError(f"{error}\nThe log is in {log_path}.") from error

    def _run(self, options: dict[str, Any], log: Log, signals: StopSignals) -> None:
        wanted = stack_options(options)
        with local_stack.running(wanted, log=log, signals=signals, say=self._say) as stack:
            probe = SmokeProbe(stack, signals, deadline=time.monotonic() + options["timeout"])
            self._say(f"waiting for http://{loopback.ADDRESS}:{wanted.port}/health/ready")
            probe.wait_until_servers_may_send()
            access = probe.demo_access()
            message_id = probe.post(access)
            self._say(f"posted {message_id}")
            progress = probe.wait_until_delivered(access, message_id)
            self._say(str(progress))
            self._say(probe.count_copies(access, progress))
            self._say("stopping")
        self._say("a code was delivered")

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


class SmokeProbe:
    """The steps of the proof; each raises SmokeError, or StartCancelledError after a request to stop."""

    def __init__(self, stack: LocalStack, signals: StopSignals, *, deadline: float) -> None:
        self._stack = stack
        self._signals = signals
        self._deadline = deadline

    def wait_until_servers_may_send(self) -> None:
        """Hosts are given a moment to come online; where there is no server at all, that is said at once."""
        if not self._holds(lambda: self._stack.readiness().ready):
            raise SmokeError(f"The service did not get ready in time: {self._stack.readiness().detail}")
        self._holds(self._hosts_are_online_or_missing, within=local_stack.HOSTS_ONLINE_WITHIN)
        readiness = self._stack.readiness()
        if readiness.servers_that_may_send == 0:
            raise SmokeError(f"No server may send: {readiness.why_none}.")

    def demo_access(self) -> DemoAccess:
        """The key to post with."""
        access = self._stack.demo_access()
        if access is None:
            raise SmokeError("There is no demo key: run it once without --no-demo-data.")
        return access

    def post(self, access: DemoAccess) -> str:
        """Post a code and return the id of the message."""
        body = {"to": access.to, "text": _TEXT, "lane": "otp"}
        answer = self._call(self._stack.options.port, "POST", "/api/v1/messages/", key=access.api_key, body=body)
        if answer.status != HTTPStatus.ACCEPTED or "id" not in answer.body:
            raise SmokeError(f"The API refused the message: {answer.status} {dict(answer.body)}")
        return str(answer.body["id"])

    def wait_until_delivered(self, access: DemoAccess, message_id: str) -> Progress:
        """Follow the message to its end."""
        progress = Progress("unknown", "", frozenset())

        def has_ended() -> bool:
            nonlocal progress
            path = f"/api/v1/messages/{message_id}/"
            try:
                answer = loopback.call(self._stack.options.port, "GET", path, key=access.api_key)
            except loopback.NoAnswerError:
                return False  # a web process that crashed is started again
            progress = Progress.read(answer.body)
            return progress.status == "delivered" or progress.status in _FAILED_FOR_GOOD

        in_time = self._holds(has_ended)
        if progress.status == "delivered":
            return progress
        readiness = self._stack.readiness()
        raise SmokeError(
            f"The code was not delivered{'' if in_time else ' in time'}: {progress}. "
            f"Servers that may send: {readiness.servers_that_may_send}; held back: {readiness.reasons}."
        )

    def count_copies(self, access: DemoAccess, progress: Progress) -> str:
        """Ask the simulated phones how many copies they got, and say it."""
        port = self._stack.options.simulator_port
        if port is None:
            return "no simulator: copies not counted"
        sends = self._call(port, "GET", f"/control/ledger?to={quote(access.to)}").body.get("sends") or []
        copies = sum(str(send["attempt_id"]) in progress.attempt_ids for send in sends)
        if copies != 1:
            raise SmokeError(f"{copies} copies of the code were sent instead of one.")
        return "one copy was sent"

    def _call(
        self, port: int, method: str, path: str, *, key: str | None = None, body: Mapping[str, Any] | None = None
    ) -> loopback.Answer:
        try:
            return loopback.call(port, method, path, key=key, body=body)
        except loopback.NoAnswerError as error:
            raise SmokeError(str(error)) from error

    def _hosts_are_online_or_missing(self) -> bool:
        readiness = self._stack.readiness()
        return readiness.servers_that_may_send > 0 or not readiness.why_not

    def _holds(self, condition: Callable[[], bool], *, within: timedelta = timedelta.max) -> bool:
        left = timedelta(seconds=max(0.0, self._deadline - time.monotonic()))
        holds = self._stack.supervisor.run_until(condition, within=min(left, within))
        if self._signals.requested:
            raise StartCancelledError("stopped")
        return holds
