"""`manage.py smoke` ends with one clear reason; a small HTTP server plays the service and the simulator."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from otp_service.simulation.demo_file import DemoAccess
from scheduler import local_stack
from scheduler.local_stack import LocalStack, Options
from scheduler.management.commands.smoke import Progress, SmokeError, SmokeProbe
from tests.scheduler.conftest import Stage

_ACCESS = DemoAccess(username="admin", password="not used", api_key="otp_key", to="+34600000001")
_ATTEMPT = "2e6978fb-7c68-4ff2-8b41-1c2adf8d482b"
_DELIVERED = {"id": "m1", "status": "delivered", "reason": None, "attempts": [{"id": _ATTEMPT}]}
_COPY = {"to": _ACCESS.to, "attempt_id": _ATTEMPT, "unit": 1, "host": 1, "at": "2026-09-01T12:00:00Z"}
_OTHER = {**_COPY, "attempt_id": "00000000-0000-0000-0000-000000000000"}


@dataclass
class Service:
    """Answers by path, and the requests that came."""

    answers: dict[str, tuple[int, Mapping[str, Any]]] = field(
        default_factory=lambda: {
            "/health/ready": (200, {"servers_that_may_send": 2, "why_not": {}}),
            "/api/v1/messages/": (202, {"id": "m1", "status": "queued"}),
            "/api/v1/messages/m1/": (200, _DELIVERED),
            "/control/ledger": (200, {"sends": [_OTHER, _COPY]}),
        }
    )
    seen: list[tuple[str, str | None]] = field(default_factory=list)
    port: int = 0


@pytest.fixture
def service() -> Iterator[Service]:
    """Listens on a free port."""
    played = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            played.seen.append((self.path, self.headers["Authorization"]))
            status, body = played.answers[self.path.partition("?")[0]]
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_args: object) -> None:
            """Not into the tests' output."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        played.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield played
        server.shutdown()
        thread.join()


@pytest.fixture
def stack(stage: Stage, service: Service, monkeypatch: pytest.MonkeyPatch) -> LocalStack:
    """Both ports lead to `service`."""
    monkeypatch.setattr(local_stack, "HOSTS_ONLINE_WITHIN", timedelta(seconds=0.5))
    options = Options(port=service.port, simulator_port=service.port, demo_data=True)
    return LocalStack(options, stage.supervisor, stage.cwd)


@pytest.fixture
def probe(stack: LocalStack, stage: Stage) -> SmokeProbe:
    """Patient enough for a busy machine."""
    return SmokeProbe(stack, stage.signals, deadline=time.monotonic() + 60)


@pytest.fixture
def impatient_probe(stack: LocalStack, stage: Stage) -> SmokeProbe:
    """Asks once."""
    return SmokeProbe(stack, stage.signals, deadline=time.monotonic())


def test_a_code_that_arrives_once_is_a_success(probe: SmokeProbe, service: Service) -> None:
    probe.wait_until_servers_may_send()
    assert probe.post(_ACCESS) == "m1"
    progress = probe.wait_until_delivered(_ACCESS, "m1")
    assert probe.count_copies(_ACCESS, progress) == "one copy was sent"
    assert ("/api/v1/messages/", "Bearer otp_key") in service.seen
    assert ("/control/ledger?to=%2B34600000001", None) in service.seen


def test_a_fleet_without_servers_is_said_before_the_time_is_up(probe: SmokeProbe, service: Service) -> None:
    service.answers["/health/ready"] = (200, {"servers_that_may_send": 0, "why_not": {}})
    with pytest.raises(SmokeError, match=r"^No server may send: there is no server at all\.$"):
        probe.wait_until_servers_may_send()
    assert len(service.seen) <= 3  # it did not ask until the hosts' time was up


def test_what_holds_the_servers_is_named(probe: SmokeProbe, service: Service) -> None:
    why_not = {"host_offline": 3, "cooldown": 1}
    service.answers["/health/ready"] = (200, {"servers_that_may_send": 0, "why_not": why_not})
    with pytest.raises(SmokeError, match=r"^No server may send: all are held back \(host_offline: 3, cooldown: 1\)\.$"):
        probe.wait_until_servers_may_send()


def test_a_service_that_does_not_get_ready_is_quoted(impatient_probe: SmokeProbe, service: Service) -> None:
    service.answers["/health/ready"] = (503, {"detail": "The database does not answer."})
    with pytest.raises(SmokeError, match=r"answers 503: .*The database does not answer\."):
        impatient_probe.wait_until_servers_may_send()


def test_a_missing_demo_key_is_named(probe: SmokeProbe) -> None:
    with pytest.raises(SmokeError, match="no demo key"):
        probe.demo_access()


def test_a_refusal_of_the_api_is_quoted(probe: SmokeProbe, service: Service) -> None:
    service.answers["/api/v1/messages/"] = (401, {"code": "unauthorized"})
    with pytest.raises(SmokeError, match=r"401.*unauthorized"):
        probe.post(_ACCESS)


def test_a_failed_message_is_told_at_once_with_its_reason(probe: SmokeProbe, service: Service) -> None:
    service.answers["/api/v1/messages/m1/"] = (200, {**_DELIVERED, "status": "failed", "reason": "no_route"})
    with pytest.raises(SmokeError, match=r"was not delivered: failed \(no_route\); attempts: 1"):
        probe.wait_until_delivered(_ACCESS, "m1")


def test_a_message_that_takes_too_long_is_told_with_its_status(impatient_probe: SmokeProbe, service: Service) -> None:
    service.answers["/api/v1/messages/m1/"] = (200, {**_DELIVERED, "status": "queued", "attempts": []})
    with pytest.raises(
        SmokeError,
        match=r"was not delivered in time: queued; attempts: 0\. Servers that may send: 2; held back: nothing\.",
    ):
        impatient_probe.wait_until_delivered(_ACCESS, "m1")


@pytest.mark.parametrize("sends", [[], [_OTHER], [_COPY, _COPY]], ids=["none", "another message's", "two"])
def test_another_number_of_copies_than_one_is_a_failure(
    probe: SmokeProbe, service: Service, sends: list[dict[str, object]]
) -> None:
    service.answers["/control/ledger"] = (200, {"sends": sends})
    copies = sum(send is _COPY for send in sends)
    with pytest.raises(SmokeError, match=f"{copies} copies"):
        probe.count_copies(_ACCESS, Progress("delivered", "", frozenset({_ATTEMPT})))
