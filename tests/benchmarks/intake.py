"""`POST /messages/` against a bare view that inserts one row, under the same server, by turns.

Intake also checks a key, reads and checks the message, encrypts it, hashes the recipient, and writes three tables.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

from tests.benchmarks import web
from tests.benchmarks.web import BARE, Post

SECONDS = 4
ROUNDS = 3
BAR = 0.6


def run() -> dict[str, float]:
    """Measure both; returns requests a second of each, and the ratio."""
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    posts = _messages(_key())
    with web.served() as port:
        rounds = [
            (web.rate(port, itertools.repeat(BARE), SECONDS, status=200), web.rate(port, posts, SECONDS, status=202))
            for _ in range(ROUNDS)
        ]
    # What else the machine does only ever makes one slower.
    bare, intake = (max(rates) for rates in zip(*rounds, strict=True))
    web.report(
        [("bare view, one row", bare, "requests/s"), ("POST /messages/", intake, "requests/s")],
        [("ratio", intake / bare, BAR)],
    )
    return {"bare_view_per_s": bare, "intake_per_s": intake, "intake_ratio": intake / bare}


def _key() -> str:
    from otp_service.core.clock import utc_now
    from otp_service.messages.api_keys import Scope, issue
    from tests.factories import ClientFactory

    _, text = issue(ClientFactory.create(name="bench intake"), [Scope.MESSAGES], now=utc_now(), by="bench")
    return text


def _messages(key: str) -> Iterator[Post]:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    for number in itertools.count():
        message = {"to": f"+346{number:08d}", "text": f"Your code is {number % 1_000_000:06d}", "lane": "otp"}
        yield Post("/api/v1/messages/", json.dumps(message).encode(), headers)
