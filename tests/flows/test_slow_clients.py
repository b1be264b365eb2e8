"""A client that is slow, on purpose or not, takes nothing from the others."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from otp_service.core.clock import utc_now
from otp_service.messages import api_keys
from tests.deadline import eventually
from tests.factories import ClientFactory
from tests.flows.processes import Processes
from tests.http import call

MANY = 60  # over the number of threads, many times

HALF_A_BODY = b"POST /webhooks/relay/1/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"
HALF_A_HEADER = b"POST /webhooks/relay/1/ HTTP/1.1\r\nHost: 127."


@pytest.fixture
def service(quiet_end: None, tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path, WEB_THREADS="4") as processes:
        processes.start(processes.web)
        yield processes


def test_slow_clients_hold_up_nobody(service: Processes) -> None:
    with ExitStack() as connections:
        for sent in (HALF_A_BODY, HALF_A_HEADER):
            for _ in range(MANY):
                slow = connections.enter_context(socket.create_connection(("127.0.0.1", service.port)))
                slow.sendall(sent)
        for _ in range(20):
            assert call("GET", f"{service.base}/health/live").status == 200


def test_a_body_in_chunks_is_read_whole(service: Processes) -> None:
    _, key = api_keys.create(ClientFactory.create(), [api_keys.Scope.MESSAGES], now=utc_now())
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=10)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    chunks = iter([b'{"to": "+34600000000", ', b'"text": "Your code is 123456"}'])
    connection.request("POST", "/api/v1/messages/", chunks, headers, encode_chunked=True)
    assert connection.getresponse().status == 202
    connection.close()


def test_a_body_that_ends_early_is_not_acted_upon(service: Processes) -> None:
    _, key = api_keys.create(ClientFactory.create(), [api_keys.Scope.MESSAGES], now=utc_now())
    head = f"POST /api/v1/messages/ HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as torn:
        torn.sendall(head.encode() + b"Content-Type: application/json\r\nContent-Length: 500\r\n\r\n")
        torn.sendall(b'{"to": "+34600000000", "text": "Your code is 123456"}')
        torn.shutdown(socket.SHUT_WR)
        assert torn.recv(1000) == b""


def test_sigterm_ends_it_in_order(service: Processes) -> None:
    assert service.web.end() == 0
    eventually(lambda: not _listens(service.port))


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
