"""What the cascade did in a window of time: about the messages accepted in it, and all of their attempts.

No index leads to a time: the ids of the window's messages are found by bisection of the primary key, and each of seven
statements then reads that range of messages, and their attempts by the index on (message, number). Together they took
five seconds for 100,000 messages on two busy cores, and it grows with the number; STATEMENT_LIMIT ends one that takes
too long. They lock nothing, and the service goes on meanwhile: two of them may differ by what happened between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar

from django.conf import settings
from django.db import connection, transaction

from otp_service.core.outcomes import Submission
from otp_service.events.models import Event
from otp_service.messages.models import Attempt, Message
from otp_service.messages.rules import AttemptState, Lane
from otp_service.routes import flows, id_ranges
from otp_service.routes.models import Route

STATEMENT_LIMIT = timedelta(minutes=10)
BREAKER_OPENED = "route.breaker_opened"
_DELIVERY_S = Route._meta.get_field("delivery_s").default  # of pools without a row


@dataclass(frozen=True, slots=True)
class Place:
    """A route as the nth (`position`, from 1) distinct route of messages.

    `in_time`: delivered within the route's `delivery_s` of the claim. `handed_over`: neither refused nor in our hands.
    """

    route: str
    position: int
    messages: int
    attempts: int
    handed_over: int
    delivered: int
    in_time: int


@dataclass(frozen=True, slots=True)
class Switch:
    """Messages that went on from a route to another. `reason`: the last failure there, or why it was passed over."""

    route: str
    reason: str  # "": nothing is held against it any more
    switches: int


@dataclass(frozen=True, slots=True)
class PassedOver:
    """Attempts that another route was taken for, because of this one's refusal."""

    route: str
    reason: str
    attempts: int


@dataclass(frozen=True, slots=True)
class OfLane:
    """A lane's messages. Seconds to the first accepted submission, from when the message was accepted.

    `limited`: had a time for their first attempt, which has come. `late` started after it, `unstarted` not at all.
    `confirmed`: messages of which two or more attempts were delivered; `possible`: attempts.
    """

    lane: str
    messages: int
    attempted: int
    submitted: int
    limited: int
    late: int
    unstarted: int
    possible: int
    confirmed: int
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None


@dataclass(frozen=True, slots=True)
class Unclear:
    """Attempts of a route whose call had no clear answer: those that are unknown now, and how the others ended."""

    route: str
    now_unknown: int
    median_age_s: float | None
    oldest_s: float | None
    delivered: int
    failed: int
    never: int
    still_open: int  # the provider has it: accepted, sent


@dataclass(frozen=True, slots=True)
class Silent:
    """Accepted attempts of a route with receipts for which its wait for them is over."""

    route: str
    accepted: int
    nothing: int  # no receipt at all
    no_end: int  # sent, and no more


@dataclass(frozen=True, slots=True)
class Spent:
    """By our price list, for attempts that were handed over or may have been."""

    route: str
    currency: str
    attempts: int
    cost: Decimal
    delivered_messages: int


@dataclass(frozen=True, slots=True)
class Openings:
    """Of one route's breaker in the window."""

    route: str
    openings: int


@dataclass(frozen=True, slots=True)
class InQueue:
    """What may be claimed now, counted up to flows.COUNTED."""

    lane: str
    messages: int
    oldest_s: float | None


@dataclass(frozen=True, slots=True)
class Figures:
    """All of them."""

    since: datetime
    until: datetime
    now: datetime
    places: tuple[Place, ...]
    switches: tuple[Switch, ...]
    passed_over: tuple[PassedOver, ...]
    lanes: tuple[OfLane, ...]
    unclear: tuple[Unclear, ...]
    silent: tuple[Silent, ...]
    spent: tuple[Spent, ...]
    openings: tuple[Openings, ...]
    queue: tuple[InQueue, ...]


_NEVER, _OPEN = AttemptState.NOT_SUBMITTED, AttemptState.SUBMITTING
_HANDED_OVER = f"a.state NOT IN ('{_NEVER}', '{_OPEN}')"
_DELIVERED = f"a.state = '{AttemptState.DELIVERED}'"

_WINDOW = f"""
WITH m AS NOT MATERIALIZED (
  SELECT * FROM {Message._meta.db_table}
  WHERE id BETWEEN %(first)s AND %(last)s AND created_at >= %(since)s AND created_at < %(until)s
), a AS NOT MATERIALIZED (
  SELECT each.*, m.lane FROM m JOIN {Attempt._meta.db_table} each
    ON each.message_id = m.id AND each.message_id BETWEEN %(first)s AND %(last)s
)
"""  # noqa: S608 - the tables' own names

_PLACES = f"""{_WINDOW}, leg AS (
  SELECT a.route, row_number() OVER (PARTITION BY a.message_id ORDER BY min(a.number)) AS position,
    count(*) AS attempts, count(*) FILTER (WHERE {_HANDED_OVER}) AS handed_over,
    count(*) FILTER (WHERE {_DELIVERED}) AS delivered,
    count(*) FILTER (WHERE {_DELIVERED} AND a.finished_at <= a.claimed_at
      + make_interval(secs => COALESCE(r.delivery_s, {_DELIVERY_S}))) AS in_time
  FROM a LEFT JOIN {Route._meta.db_table} r ON r.name = a.route GROUP BY a.message_id, a.route
)
SELECT route, position, count(*), sum(attempts)::bigint, sum(handed_over)::bigint, sum(delivered)::bigint,
  sum(in_time)::bigint
FROM leg GROUP BY route, position ORDER BY position, count(*) DESC, route
"""  # noqa: S608 - names from the code

_SWITCHES = f"""{_WINDOW}, step AS (
  SELECT a.route, a.refusals, lag(a.route) OVER w AS left_route, lag(a.error_class) OVER w AS error_class
  FROM a WINDOW w AS (PARTITION BY a.message_id ORDER BY a.number)
), switch AS (
  SELECT left_route, COALESCE(NULLIF(error_class, ''), refusals ->> left_route, '') AS reason
  FROM step WHERE left_route <> route
)
SELECT left_route, reason, count(*) FROM switch GROUP BY 1, 2 ORDER BY 1, 3 DESC, 2
"""  # noqa: S608 - names from the code

_PASSED_OVER = f"""{_WINDOW}
SELECT refused.key, refused.value, count(*)
FROM a CROSS JOIN LATERAL jsonb_each_text(a.refusals) AS refused WHERE a.refusals IS NOT NULL
GROUP BY 1, 2 ORDER BY 1, 3 DESC, 2
"""  # noqa: S608 - names from the code

_ACCEPTED = f"(a.submission = '{Submission.ACCEPTED}' OR a.state IN ('accepted', 'sent', 'delivered'))"
_LANES = f"""{_WINDOW}, tried AS (
  SELECT a.message_id, min(a.claimed_at) AS first_at, min(a.settled_at) FILTER (WHERE {_ACCEPTED}) AS submitted_at,
    count(*) FILTER (WHERE a.possible_duplicate AND a.state <> '{_NEVER}') AS possible,
    count(*) FILTER (WHERE {_DELIVERED}) > 1 AS confirmed
  FROM a GROUP BY a.message_id
), each AS (
  SELECT m.lane, tried.*, extract(epoch FROM submitted_at - m.created_at)::float8 AS wait_s,
    m.first_attempt_by, m.first_attempt_by < LEAST(%(now)s, COALESCE(m.finished_at, %(now)s)) AS has_come
  FROM m LEFT JOIN tried ON tried.message_id = m.id
)
SELECT lane, count(*), count(first_at), count(wait_s),
  count(*) FILTER (WHERE has_come OR first_at IS NOT NULL AND first_attempt_by IS NOT NULL),
  count(*) FILTER (WHERE first_at > first_attempt_by),
  count(*) FILTER (WHERE first_at IS NULL AND has_come),
  COALESCE(sum(possible), 0)::bigint, count(*) FILTER (WHERE confirmed),
  percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY wait_s)
FROM each GROUP BY lane
"""  # noqa: S608 - names from the code

# Nothing is known of a call that nobody settled: its attempt was rescued.
_WAS_UNCLEAR = f"a.settled_at IS NOT NULL AND (a.submission IN ('{Submission.UNKNOWN}', '') OR a.state = 'unknown')"
_AGE = "extract(epoch FROM %(now)s - a.settled_at)::float8"
_UNCLEAR = f"""{_WINDOW}
SELECT a.route, count(*) FILTER (WHERE a.state = 'unknown'),
  percentile_disc(0.5) WITHIN GROUP (ORDER BY {_AGE}) FILTER (WHERE a.state = 'unknown'),
  max({_AGE}) FILTER (WHERE a.state = 'unknown'),
  count(*) FILTER (WHERE {_DELIVERED}), count(*) FILTER (WHERE a.state = 'failed'),
  count(*) FILTER (WHERE a.state = '{_NEVER}'), count(*) FILTER (WHERE a.state IN ('accepted', 'sent'))
FROM a WHERE {_WAS_UNCLEAR} GROUP BY a.route ORDER BY a.route
"""  # noqa: S608 - names from the code

_SILENT = f"""{_WINDOW}
SELECT a.route, count(*), count(*) FILTER (WHERE a.state = 'accepted'), count(*) FILTER (WHERE a.state = 'sent')
FROM a LEFT JOIN {Route._meta.db_table} r ON r.name = a.route
WHERE {_ACCEPTED} AND COALESCE(r.has_receipts, true)
  AND a.settled_at + make_interval(secs => COALESCE(r.receipt_wait_s, %(receipt_wait_s)s)) <= %(now)s
GROUP BY a.route ORDER BY a.route
"""  # noqa: S608 - the tables' own names

_SPENT = f"""{_WINDOW}
SELECT a.route, a.currency, count(*), sum(a.cost), count(DISTINCT a.message_id) FILTER (WHERE {_DELIVERED})
FROM a WHERE a.cost IS NOT NULL AND {_HANDED_OVER} GROUP BY 1, 2 ORDER BY 1, 2
"""  # noqa: S608 - names from the code

_OPENINGS = f"""
SELECT data ->> 'route', count(*) FROM {Event._meta.db_table}
WHERE type = '{BREAKER_OPENED}' AND client_id IS NULL AND at >= %(since)s AND at < %(until)s GROUP BY 1 ORDER BY 1
"""  # noqa: S608 - the table's own name

Row = TypeVar("Row")


def read(since: datetime, until: datetime, *, now: datetime) -> Figures:
    """The figures of messages accepted from `since` until just before `until`. Raises what the database raises."""
    ids = id_ranges.within(Message, "created_at", since, until)
    values = {
        "first": ids.first,
        "last": ids.last,
        "since": since,
        "until": until,
        "now": now,
        "receipt_wait_s": settings.RECEIPT_WAIT.total_seconds(),
    }
    with transaction.atomic():
        _allow_time()
        return Figures(
            since=since,
            until=until,
            now=now,
            places=_rows(Place, _PLACES, values),
            switches=_rows(Switch, _SWITCHES, values),
            passed_over=_rows(PassedOver, _PASSED_OVER, values),
            lanes=_lanes(values),
            unclear=_rows(Unclear, _UNCLEAR, values),
            silent=_rows(Silent, _SILENT, values),
            spent=_rows(Spent, _SPENT, values),
            openings=_rows(Openings, _OPENINGS, values),
            queue=_queue(now),
        )


def _allow_time() -> None:
    """Until the end of the transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [f"{STATEMENT_LIMIT.total_seconds():.0f}s"])


def _rows(kind: type[Row], statement: str, values: Mapping[str, Any]) -> tuple[Row, ...]:
    return tuple(kind(*row) for row in _fetch(statement, values))


def _fetch(statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall())


def _lanes(values: Mapping[str, Any]) -> tuple[OfLane, ...]:
    """By precedence; lanes without messages are left out."""
    found = {row[0]: _of_lane(*row) for row in _fetch(_LANES, values)}
    return tuple(found[lane.value] for lane in Lane if lane.value in found)


def _of_lane(lane: str, *figures: Any) -> OfLane:
    """As the statement gives them: the percentiles, None for no submission, come last."""
    *counts, percentiles = figures
    return OfLane(lane, *counts, *(percentiles or (None, None, None)))


def _queue(now: datetime) -> tuple[InQueue, ...]:
    waiting = flows.waiting()
    return tuple(InQueue(lane.value, waiting[lane].count, _seconds_since(waiting[lane].oldest, now)) for lane in Lane)


def _seconds_since(at: datetime | None, now: datetime) -> float | None:
    return None if at is None else max(0.0, (now - at).total_seconds())
