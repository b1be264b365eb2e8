"""What relay hosts post: single events and lists of 100, against a bare view that inserts one row.

Each event is the delivery of another message: it is verified, kept, and moves its attempt, its message and its
server on. All under the same server, by turns.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from tests.benchmarks import web
from tests.benchmarks.web import BARE, Post

SECONDS = 3
ROUNDS = 3
IN_LIST = 100
MESSAGES = 60_000
SERVERS = 1_000
BAR_SINGLE, BAR_LIST = 0.25, 10


def run() -> dict[str, float]:
    """Measure all three; returns requests or events a second of each, and the ratios."""
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    print(f"loading {MESSAGES:,} messages of {SERVERS:,} servers …", flush=True)
    host, attempts = _load()
    singles = _posts(host, itertools.islice(attempts, MESSAGES // 4), 1)
    lists = _posts(host, attempts, IN_LIST)
    with web.served() as port:
        rounds = [
            (
                web.rate(port, itertools.repeat(BARE), SECONDS, status=200),
                web.rate(port, singles, SECONDS, status=200),
                web.rate(port, lists, SECONDS, status=200) * IN_LIST,
            )
            for _ in range(ROUNDS)
        ]
    # What else the machine does only ever makes one slower.
    bare, single, listed = (max(rates) for rates in zip(*rounds, strict=True))
    _report(bare, single, listed)
    return {
        "webhook_bare_view_per_s": bare,
        "webhook_single_events_per_s": single,
        "webhook_listed_events_per_s": listed,
        "webhook_single_ratio": single / bare,
        "webhook_list_ratio": listed / single,
    }


def _report(bare: float, single: float, listed: float) -> None:
    web.report(
        [
            ("bare view, one row", bare, "requests/s"),
            ("single events", single, "events/s"),
            (f"lists of {IN_LIST}", listed, "events/s"),
        ],
        [
            ("single events to the bare view", single / bare, BAR_SINGLE),
            ("an event of a list to a single one", listed / single, BAR_LIST),
        ],
    )


def _posts(host: Any, attempts: Iterator[uuid.UUID], events: int) -> Iterator[Post]:
    from otp_service.core.clock import utc_now
    from otp_service.core.signing import signature_headers

    while some := list(itertools.islice(attempts, events)):
        body = json.dumps(_events(some)).encode()
        signed = signature_headers([host.secret], message_id=str(uuid.uuid4()), now=utc_now(), body=body)
        yield Post(f"/webhooks/relay/{host.number}/", body, {"Content-Type": "application/json", **signed})


def _events(attempts: Sequence[uuid.UUID]) -> list[dict[str, Any]]:
    return [
        {
            "id": str(uuid.uuid4()),
            "type": "delivered",
            "at": "2026-09-01T12:00:00+00:00",
            "unit": 1,
            "data": {"attempt_id": str(attempt), "guid": str(attempt), "service": "iMessage"},
        }
        for attempt in attempts
    ]


def _load() -> tuple[Any, Iterator[uuid.UUID]]:
    """Messages that one host has, each an attempt by one of its servers; the host, and the attempts' names."""
    from django.db import connection

    from otp_service.messages.models import Attempt
    from tests.factories import AttemptFactory, HostFactory, ServerFactory

    host = HostFactory.create()
    pattern = AttemptFactory.create(server=ServerFactory.create(host=host, unit=0))
    parameters = {"messages": MESSAGES, "servers": SERVERS}
    own_server = {"uuid": "gen_random_uuid()", "unit": "number", "handle": "'bench ' || number"}
    web.copies(pattern.server, own_server, "generate_series(1, %(servers)s) AS number", parameters)
    own_message = {
        "uuid": "gen_random_uuid()",
        "to_hash": "sha256(number::text::bytea)",
        "expires_at": "now() + interval '1 hour'",
    }
    web.copies(pattern.message, own_message, "generate_series(1, %(messages)s) AS number", parameters)
    own_attempt = {
        "uuid": "sent.uuid",
        "message_id": "sent.id",
        "server_id": "sent.server",
        "provider_message_id": "sent.uuid::text",
    }
    web.copies(pattern, own_attempt, _SENT, parameters)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return host, iter(Attempt.objects.exclude(pk=pattern.pk).order_by("id").values_list("uuid", flat=True))


_SENT = """(
  SELECT m.id, m.uuid, (SELECT min(id) FROM servers_server WHERE unit > 0) + m.id %% %(servers)s AS server
  FROM otp_messages_message m WHERE m.id > (SELECT min(id) FROM otp_messages_message)
) AS sent"""
