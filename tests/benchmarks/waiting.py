"""A queue of promotional messages that wait, written by SQL as intake would leave them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FLOWS = 20
ROUTE = "sms:bench"
#: Milliseconds that the simulated provider takes.
CALL_MS = 150


def fill(rows: int) -> list[int]:
    """Messages in the flows of as many clients, all of which go out over one simulated route; returns the flows."""
    from otp_service.messages.models import Message
    from otp_service.web.fields import encrypted_field, recipient_hash
    from tests.factories import FlowFactory, RouteFactory

    print(f"loading {rows:,} messages …", flush=True)
    RouteFactory.create(name=ROUTE, lanes=["promo"], expected_ms=CALL_MS, settings={"latency_ms": CALL_MS})
    flows = [flow.pk for flow in FlowFactory.create_batch(FLOWS, lane="promo", channels=["sms"])]
    number = "+34600000000"
    parameters: dict[str, Any] = {
        "flows": flows,
        "to": encrypted_field(Message, "to").seal(number),
        "text": encrypted_field(Message, "text").seal("Our offer of the week: two for the price of one."),
        "hash": recipient_hash(number),
        "rows": rows,
        "each": FLOWS,
    }
    _insert(parameters)
    return flows


def _insert(parameters: Mapping[str, Any]) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0; SET maintenance_work_mem = '512MB'")
        cursor.execute(_INDEXES)
        indexes = cursor.fetchall()
        for name, _ in indexes:
            cursor.execute(f"DROP INDEX {name}")
        cursor.execute("SET session_replication_role = replica")  # no foreign key is looked up: all are right
        for statement in _ROWS:
            cursor.execute(statement, parameters)
        cursor.execute("RESET session_replication_role")
        for _, definition in indexes:
            cursor.execute(definition)
        cursor.execute("VACUUM (ANALYZE)")
        cursor.execute("CHECKPOINT")


#: Those that are made anew after the rows: several times quicker.
_INDEXES = """
SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
WHERE indrelid IN ('otp_messages_message'::regclass, 'otp_messages_ready'::regclass)
  AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)
"""
_ROWS = (
    # Message n has a number of its own, and is due before message n + 1.
    """INSERT INTO otp_messages_message (
         uuid, client_id, flow_id, lane, "to", to_hash, text, region, channels, reference, metadata,
         created_at, event_at, expires_at, on_late_first, max_attempts,
         status, attempts_made, attempts_charged, final_reason, final_route)
       SELECT
         gen_random_uuid(), flow.client_id, flow.id, flow.lane, %(to)s, sha256(%(hash)s || n::text::bytea), %(text)s,
         '', flow.channels, '', '{}',
         now(), now(), now() + interval '1 day' + n * interval '1 ms', 'send', 2,
         'queued', 0, 0, '', ''
       FROM generate_series(1, %(rows)s) AS n
       JOIN otp_messages_flow AS flow ON flow.id = (%(flows)s::bigint[])[1 + n %% %(each)s]""",
    "INSERT INTO otp_messages_ready SELECT id, flow_id, expires_at FROM otp_messages_message ORDER BY id",
)
