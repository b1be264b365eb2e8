"""What a cell's database holds: routes, flows, promo that waits; and otp that come in while it runs."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from otp_service.core.clock import utc_now
from otp_service.messages import queue
from otp_service.messages.models import Attempt, Client, Flow, Message, Ready
from otp_service.messages.rules import Channel, Lane, MessageStatus, OnLateFirst
from otp_service.routes.models import Route
from otp_service.routes.route_rules import RouteKind
from otp_service.web.fields import encrypted_field, recipient_hash
from scheduler.lab.scenarios import PUSH_HEALTHY, SMS_HEALTHY, Scale, Scenario

#: Tells the otp of the lab from its promo, also where both stand in one lane.
OTP_REFERENCE = "otp"

_NUMBER, _TEXT = "+34600000000", "Your code is 493021"
_OTP_LIFE, _PROMO_LIFE = timedelta(minutes=5), timedelta(days=1)
_POOL = "es"  # a flow names one; only iMessages go by it
_NEVER_MS = 120_000  # the answer of a provider that hangs
_TIMEOUT_MS = 10_000
_LOOK_EVERY_S = 0.01
_LATE_S = 1.0

_MESSAGES = f"""
  INSERT INTO {Message._meta.db_table} (
    uuid, client_id, flow_id, lane, "to", to_hash, text, region, channels, reference, metadata,
    created_at, event_at, expires_at, first_attempt_by, on_late_first, max_attempts,
    status, attempts_made, attempts_charged, final_reason, final_route)
  SELECT
    gen_random_uuid(), %(client)s, %(flow)s, %(lane)s, %(to)s, sha256(%(hash)s || n::text::bytea), %(text)s,
    '', %(channels)s::varchar[], %(reference)s, '{{}}',
    %(now)s, %(now)s, %(expires_at)s, NULL, '{OnLateFirst.SEND.value}', 1,
    '{MessageStatus.QUEUED.value}', 0, 0, '', ''
  FROM generate_series(1, %(rows)s) n
  RETURNING id, flow_id
"""  # noqa: S608 - the table's own name

#: Message and queue row in one statement, as intake does it.
_ACCEPT = f"""
WITH message AS ({_MESSAGES}), ready AS (
  INSERT INTO {Ready._meta.db_table} (message_id, flow_id, due_at) SELECT id, flow_id, %(due_at)s FROM message
)
SELECT FROM message
"""  # noqa: S608 - the tables' own names


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of message of the lab: where its messages stand, and what marks them."""

    flow: Flow
    channels: tuple[str, ...]
    reference: str
    life: timedelta
    in_order_of_acceptance: bool

    def accept(self, rows: int) -> None:
        """Put so many into the queue."""
        now = utc_now()
        with connection.cursor() as cursor:
            cursor.execute(_ACCEPT, self._values(rows, now))
        if self.reference:
            queue.wake()

    def _values(self, rows: int, now: datetime) -> dict[str, Any]:
        expires_at = now + self.life
        return {
            "client": self.flow.client_id,
            "flow": self.flow.pk,
            "lane": self.flow.lane,
            "to": encrypted_field(Message, "to").seal(_NUMBER),
            "hash": recipient_hash(_NUMBER) + uuid.uuid4().bytes,
            "text": encrypted_field(Message, "text").seal(_TEXT),
            "channels": list(self.channels),
            "reference": self.reference,
            "now": now,
            "expires_at": expires_at,
            "due_at": now if self.in_order_of_acceptance else expires_at,
            "rows": rows,
        }


def kinds(*, one_queue: bool) -> tuple[Kind, Kind]:
    """otp and promo: in lanes and flows of their own, or both in one."""
    client = Client.objects.create(name="lab", created_at=utc_now())
    if one_queue:
        channels = (Channel.PUSH.value, Channel.SMS.value)
        flow = _flow(client, Lane.PROMO, channels)
        return (
            Kind(flow, channels, OTP_REFERENCE, _OTP_LIFE, in_order_of_acceptance=True),
            Kind(flow, channels, "", _PROMO_LIFE, in_order_of_acceptance=True),
        )
    sms, push = (Channel.SMS.value,), (Channel.PUSH.value,)
    return (
        Kind(_flow(client, Lane.OTP, sms), sms, OTP_REFERENCE, _OTP_LIFE, in_order_of_acceptance=False),
        Kind(_flow(client, Lane.PROMO, push), push, "", _PROMO_LIFE, in_order_of_acceptance=False),
    )


def _flow(client: Client, lane: Lane, channels: tuple[str, ...]) -> Flow:
    return Flow.objects.create(client=client, lane=lane.value, pools=[_POOL], channels=list(channels))


def fill(promo: Kind, scenario: Scenario, scale: Scale) -> None:
    """The scenario's routes, and the promo that waits before the start."""
    push = (
        {"latency_ms": _NEVER_MS, "timeout_ms": _ms(scenario.push)} if scenario.push_hangs else _answers(PUSH_HEALTHY)
    )
    # otp has no use for push here: none of its calls are kept free for it, whatever the scheme.
    _make_route(Channel.PUSH, PUSH_HEALTHY, push, [Lane.PROMO.value])
    _make_route(Channel.SMS, SMS_HEALTHY, _answers(scenario.sms))
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")  # 500,000 rows take longer than the service allows
        promo.accept(scale.promo_rows)
        cursor.execute("ANALYZE")
    connection.close()


def _answers(latency: timedelta) -> dict[str, Any]:
    return {"latency_ms": _ms(latency), "timeout_ms": _TIMEOUT_MS}


def _make_route(channel: Channel, expected: timedelta, settings: dict[str, Any], lanes: Sequence[str] = ()) -> None:
    Route.objects.create(
        name=f"{channel}:lab",
        channel=channel,
        kind=RouteKind.SIMULATED,
        lanes=list(lanes),
        expected_ms=_ms(expected),
        settings=settings,
    )


def _ms(span: timedelta) -> int:
    return int(span / timedelta(milliseconds=1))


def first_call(hurry: threading.Event) -> None:
    """Wait until a call is started; in a thread of its own. Returns early on `hurry`."""
    try:
        while not Attempt.objects.exists():
            if hurry.wait(_LOOK_EVERY_S):
                return
    finally:
        connection.close()


def accept_otp(otp: Kind, due_in: Iterable[float], *, begin: float, hurry: threading.Event) -> None:
    """Accept one otp so many seconds after `begin` each, in a thread of its own: a slow dispatcher slows none down.

    `begin` is a time.monotonic(). What this machine does not accept within a second is left out. Returns early on
    `hurry`.
    """
    try:
        for seconds in due_in:
            left = begin + seconds - time.monotonic()
            if hurry.wait(max(0.0, left)):
                return
            if left > -_LATE_S:
                otp.accept(1)
    finally:
        connection.close()
