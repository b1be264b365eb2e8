"""The whole service on one machine: which processes there are, in which order they start, when they are ready."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from otp_service.embedded import EmbeddedServers, processes
from otp_service.simulation.demo_file import DemoAccess, read_access
from scheduler import loopback
from scheduler.supervisor import Child, Log, StopSignals, Supervisor

DEFAULT_PORT = 8000
PROJECT_DIR = Path(__file__).resolve().parents[1]
#: A machine with two busy cores needs some of this for its first start.
READY_WITHIN = timedelta(seconds=60)
#: A host counts as online once it was heard of.
HOSTS_ONLINE_WITHIN = timedelta(seconds=20)

#: For the work in hand after a request to stop: below the supervisor's grace, so that nothing is killed in it.
_WORK_GRACE_S = 8
#: Celery's, about pickled tasks, which are not accepted anyway; the beginning is enough to name it.
_ROOT_WARNING = "You're running the worker with superuser privileges"
_LAST_WAVE = 1  # the simulator answers the calls of those that finish their work in wave 0
#: For the log: itself, then everything that may write into it.
NAMES = ("up", "migrate", "demo_data", "web", "worker", "beat", "dispatcher", "simulator")


class LocalStackError(Exception):
    """The local service cannot be started; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Options:
    """What of the service is wanted. `simulator_port` is None for none."""

    port: int
    simulator_port: int | None
    demo_data: bool

    @property
    def ports(self) -> Mapping[str, int]:
        """Option → the port that it chooses."""
        simulator = {} if self.simulator_port is None else {"--simulator-port": self.simulator_port}
        return {"--port": self.port, **simulator}


@dataclass(frozen=True, slots=True)
class Readiness:
    """What `/health/ready` says."""

    ready: bool = False
    servers_that_may_send: int = 0
    #: Reason → how many servers may not send for it.
    why_not: Mapping[str, int] = field(default_factory=dict)
    detail: str = "the web process does not answer"

    @property
    def reasons(self) -> str:
        """`why_not` in words."""
        return ", ".join(f"{reason}: {count}" for reason, count in self.why_not.items()) or "nothing"

    @property
    def why_none(self) -> str:
        """What to say when no server may send."""
        return f"all are held back ({self.reasons})" if self.why_not else "there is no server at all"


@dataclass(frozen=True, slots=True)
class LocalStack:
    """The service as it runs."""

    options: Options
    supervisor: Supervisor
    state_dir: Path
    #: Of its processes; with secrets.
    env: Mapping[str, str] = field(default_factory=dict, repr=False)

    def readiness(self) -> Readiness:
        """What the service says of itself now."""
        try:
            answer = loopback.call(self.options.port, "GET", "/health/ready")
        except loopback.NoAnswerError:
            return Readiness()
        return Readiness(
            ready=answer.status == 200,
            servers_that_may_send=int(answer.body.get("servers_that_may_send") or 0),
            why_not=dict(answer.body.get("why_not") or {}),
            detail=f"/health/ready answers {answer.status}: {json.dumps(answer.body)}",
        )

    def demo_access(self) -> DemoAccess | None:
        """The demo's key and log-in, if there is a demo."""
        return read_access(self.state_dir / "demo.json")


@contextmanager
def running(options: Options, *, log: Log, signals: StopSignals, say: Callable[[str], None]) -> Iterator[LocalStack]:
    """Start everything, and stop what was started at the end.

    Raises LocalStackError and EmbeddedServerError. Returns as soon as the processes are started; they need a
    moment to get ready. After a request to stop, what was not started yet stays so.
    """
    servers = EmbeddedServers(report=say, cancelled=lambda: signals.requested)
    supervisor = Supervisor(log, signals, servers.record, cwd=PROJECT_DIR)
    try:
        servers.claim()
        refuse_taken_ports(options.ports)
        servers.start()
        for server in servers.servers:
            supervisor.watch(server)
        env = child_environment(servers.env)
        _run_to_end(migration(env), supervisor, signals, say)
        for child in children(options, env, servers.state_dir):
            if not signals.requested:
                supervisor.start(child)
        if options.demo_data:
            _run_to_end(demo_data(options, env), supervisor, signals, say)  # while the others get ready
        yield LocalStack(options, supervisor, servers.state_dir, env)
    finally:
        supervisor.stop()
        servers.stop(hurried=lambda: signals.at_once)


def refuse_taken_ports(ports: Mapping[str, int]) -> None:
    """Raises LocalStackError, naming the port and the option that chooses another."""
    if len(set(ports.values())) < len(ports):
        raise LocalStackError(f"{' and '.join(ports)} must differ.")
    for option, port in ports.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers themselves do
            try:
                probe.bind((loopback.ADDRESS, port))
            except OSError as error:
                raise LocalStackError(
                    f"Port {port} cannot be used ({error.strerror}): stop what listens there, "
                    f"or choose another with {option}."
                ) from error


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((loopback.ADDRESS, 0))
        port: int = probe.getsockname()[1]
        return port


def child_environment(given: Mapping[str, str]) -> dict[str, str]:
    """Ours, with the servers' addresses, the secrets, and nothing that changes what the commands below mean."""
    inherited = {name: value for name, value in os.environ.items() if name != "GUNICORN_CMD_ARGS"}
    defaults = {"SHUTDOWN_GRACE_S": str(_WORK_GRACE_S)}
    fixed = {"DJANGO_SETTINGS_MODULE": "otp_service.settings", "PYTHONUNBUFFERED": "1"}
    return {**defaults, **inherited, **given, **fixed}


def migration(env: Mapping[str, str]) -> Child:
    """Runs to its end before anything else."""
    return Child("migrate", _manage("migrate", "--verbosity", "0"), env)


def demo_data(options: Options, env: Mapping[str, str]) -> Child:
    """Fills an empty database, and tells the demo's hosts where they are played this time."""
    port = [] if options.simulator_port is None else ["--simulator-port", str(options.simulator_port)]
    return Child("demo_data", _manage("demo_data", *port), env)


def children(options: Options, env: Mapping[str, str], state_dir: Path) -> list[Child]:
    """The processes of the service, as they would run on machines of their own."""
    celery = [sys.executable, "-W", f"ignore:{_ROOT_WARNING}", "-m", "celery", "--quiet", "--app", "otp_service"]
    worker = [*celery, "worker", "--concurrency", "2", "--without-gossip", "--without-mingle", "--loglevel", "WARNING"]
    parts = [
        Child("web", _web(options.port), env),
        Child("worker", worker, env),
        Child("beat", [*celery, "beat", "--loglevel", "WARNING"], env),
        Child("dispatcher", _manage("dispatch"), env),
    ]
    if options.simulator_port is not None:
        webhooks = ["--webhook-base", f"http://{loopback.ADDRESS}:{options.port}"]
        ledger = ["--ledger", str(state_dir / "simulator_ledger.jsonl")]  # a restart must not forget what was sent
        simulator = _manage("simulate_relay", "--port", str(options.simulator_port), *webhooks, *ledger)
        parts.append(Child("simulator", simulator, env, wave=_LAST_WAVE))
    return parts


def _web(port: int) -> list[str]:
    return [sys.executable, "-m", "otp_service.serve", "--listen", f"{loopback.ADDRESS}:{port}"]


def _manage(*arguments: str) -> list[str]:
    return [sys.executable, str(PROJECT_DIR / "manage.py"), *arguments]


def _run_to_end(child: Child, supervisor: Supervisor, signals: StopSignals, say: Callable[[str], None]) -> None:
    if signals.requested:
        return
    say(f"running {child.name}")
    returncode = supervisor.run_to_end(child)
    if returncode and not signals.requested:
        raise LocalStackError(
            f"{child.name} failed: {processes.exit_reason(returncode)}; its own words are in the log."
        )
