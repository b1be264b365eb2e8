"""Fifty requests with one key, at the same time, over real connections."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import pytest

from otp_service.messages.models import Flow, IdempotencyKey, Message, Ready
from tests.flows.conftest import Api
from tests.http import Answer

REQUESTS = 50
BODY: dict[str, Any] = {"to": "+34600000000", "text": "Your code is 123456", "lane": "otp"}


def at_once(api: Api, keys: list[str]) -> list[Answer]:
    """One request per key, each over a connection that stands already; all are sent when every thread is ready."""
    barrier = threading.Barrier(len(keys))
    address = urllib.parse.urlsplit(api.base).netloc

    def post(line: http.client.HTTPConnection, key: str) -> Answer:
        headers = {"Authorization": f"Bearer {api.key}", "Content-Type": "application/json", "Idempotency-Key": key}
        barrier.wait(20)
        line.request("POST", "/api/v1/messages/", json.dumps(BODY), headers)
        response = line.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read().decode())

    with ExitStack() as lines:
        opened = [lines.enter_context(closing(http.client.HTTPConnection(address, timeout=60))) for _ in keys]
        for line in opened:
            line.connect()  # one after the other: the server's backlog is short
        with ThreadPoolExecutor(len(keys)) as pool:
            return list(pool.map(post, opened, keys))


@pytest.mark.usefixtures("transactional_db")
def test_one_key_makes_one_message_and_fifty_equal_answers(api: Api) -> None:
    answers = at_once(api, ["k"] * REQUESTS)
    assert {answer.status for answer in answers} == {202}
    assert len({answer.body for answer in answers}) == 1
    assert len([answer for answer in answers if "Idempotent-Replayed" not in answer.headers]) == 1
    assert [model.objects.count() for model in (Message, Ready, IdempotencyKey, Flow)] == [1, 1, 1, 1]


@pytest.mark.usefixtures("transactional_db")
def test_fifty_first_messages_of_a_kind_share_one_flow(api: Api) -> None:
    answers = at_once(api, [str(number) for number in range(REQUESTS)])
    assert {answer.status for answer in answers} == {202}
    assert [model.objects.count() for model in (Message, Ready, IdempotencyKey, Flow)] == [50, 50, 50, 1]
