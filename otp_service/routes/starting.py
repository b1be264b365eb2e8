"""The attempts of a claim: written with all that goes with them, and as a provider or a host needs them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection

from otp_service.core.outcomes import Submittable
from otp_service.messages.models import Attempt, Message, Ready
from otp_service.messages.rules import AttemptState, MessageStatus
from otp_service.routes import breakers
from otp_service.routes.choose import Chosen, Way, Ways
from otp_service.routes.eligibility import Terms, sender_of
from otp_service.routes.parts import cost, measure
from otp_service.routes.picked import Picked
from otp_service.web.arrays import array

#: How long before its lease ends a submission is refused by the host: clocks differ a little.
SUBMIT_MARGIN = timedelta(seconds=2)

# What few attempts have is looked up in one JSON object by the message's id.
_START = f"""
WITH gone AS (
  DELETE FROM {Ready._meta.db_table} WHERE message_id = ANY(%(messages)s::bigint[])
), moved AS (
  UPDATE {Message._meta.db_table} AS m SET status = '{MessageStatus.SENDING.value}', refusals = NULL,
    attempts_made = attempts_made + 1, attempts_charged = attempts_charged + 1,
    copies_left = copies_left - COALESCE((more.of -> m.id::text ->> 'copies')::smallint, 0)
  FROM (SELECT %(more)s::jsonb AS of) AS more
  WHERE m.id = ANY(%(messages)s::bigint[])
)
INSERT INTO {Attempt._meta.db_table}
  (uuid, message_id, number, route, server_id, is_last, state, token, claimed_at, lease_until,
   checks_made, submission, provider_message_id, service, error_class,
   possible_duplicate, parts, cost, currency, refusals)
SELECT gen_random_uuid(), a.message_id, a.number, (%(routes)s::varchar[])[a.route], a.server_id, a.is_last = 1,
       '{AttemptState.SUBMITTING.value}', gen_random_uuid(), %(now)s, clock_timestamp() + %(lease)s, 0, '', '', '', '',
       more.of ? 'copies', (more.of ->> 'parts')::smallint, (more.of ->> 'cost')::numeric,
       COALESCE(more.of ->> 'currency', ''), more.of -> 'refusals'
FROM unnest(%(messages)s::bigint[], %(numbers)s::smallint[], %(route_numbers)s::int[], %(servers)s::bigint[],
            %(lasts)s::int[])
  AS a (message_id, number, route, server_id, is_last)
CROSS JOIN LATERAL (SELECT COALESCE(%(more)s::jsonb -> a.message_id::text, '{{}}') AS of) AS more
RETURNING message_id, id, uuid, token
"""  # noqa: S608 - the tables' own names


def send(message: Picked, way: Way, attempt_uuid: uuid.UUID, now: datetime) -> Submittable:
    return Submittable(
        attempt_uuid=attempt_uuid,
        to=message.addresses.get(way.route.channel, message.to),
        text=message.text,
        expires_at=message.expires_at,
        submit_by=min(message.expires_at, now + settings.LEASE - SUBMIT_MARGIN),
        unit=way.server.unit if way.server else None,
        sender=sender_of(way.route, message.sender_name),
    )


def probes(
    messages: Sequence[Picked],
    chosen: Chosen,
    ways: Ways,
    attempts: Mapping[int, tuple[int, uuid.UUID, uuid.UUID]],
) -> dict[int, int]:
    """Tickets by attempt: of routes that are being tried again, each attempt has one. Written down for the breaker."""
    left = {route: list(tickets.ids) for route, tickets in ways.tickets.items() if tickets.ids}
    tickets: dict[int, int] = {}
    for message in messages if left else ():
        if of_route := left.get(chosen.ways[message.id].route.name):
            tickets[of_route.pop()] = attempts[message.id][0]
    if tickets:
        breakers.use_tickets(tickets)
    return {attempt_id: ticket for ticket, attempt_id in tickets.items()}


def insert_attempts(
    messages: Sequence[Picked], chosen: Chosen, ways: Ways, now: datetime
) -> dict[int, tuple[int, uuid.UUID, uuid.UUID]]:
    """Write the attempts, and all that goes with it; returns the id, the uuid and the token of each, by message."""
    chosen_ways = [chosen.ways[message.id] for message in messages]
    routes = sorted({way.route.name for way in chosen_ways})
    number_of = {route: number for number, route in enumerate(routes, 1)}
    priced = {name for name in routes if _is_counted(ways.terms_of(name))}
    more = {
        message.id: _more(message, chosen, ways)
        for message in messages
        if message.is_race or message.id in chosen.refusals or chosen.ways[message.id].route.name in priced
    }
    parameters: dict[str, Any] = {
        "now": now,
        "lease": settings.LEASE,
        "messages": array(message.id for message in messages),
        "numbers": array(message.attempts_made + 1 for message in messages),
        "routes": routes,
        "route_numbers": array(number_of[way.route.name] for way in chosen_ways),
        "servers": array(way.server.server_id if way.server else None for way in chosen_ways),
        "lasts": array(int(message.attempts_charged + 1 >= message.max_attempts) for message in messages),
        "more": json.dumps(more),
    }
    with connection.cursor() as cursor:
        cursor.execute(_START, parameters)
        return {row[0]: row[1:] for row in cursor.fetchall()}


def _is_counted(terms: Terms) -> bool:
    """Whether it matters how many parts a text has there."""
    return terms.max_parts is not None or terms.cost_per_part is not None


def _more(message: Picked, chosen: Chosen, ways: Ways) -> dict[str, Any]:
    """What only some attempts have: that they are an extra copy, what they cost, why other routes were passed over."""
    terms = ways.terms_of(chosen.ways[message.id].route.name)
    more: dict[str, Any] = {"copies": 1} if message.is_race else {}
    if message.id in chosen.refusals:
        more["refusals"] = chosen.refusals[message.id]
    if _is_counted(terms):
        more["parts"] = parts = measure(message.text).parts
        if terms.cost_per_part is not None:
            more |= {"cost": str(cost(parts, terms.cost_per_part)), "currency": terms.currency}
    return more
