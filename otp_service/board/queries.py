"""What the page of a server is made of, in a number of queries that does not follow how much happened to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, Q, QuerySet
from django.db.models.functions import TruncHour

from otp_service.board import week_rules
from otp_service.board.week_rules import DRAWN, Row, Standing, Week
from otp_service.messages.models import Attempt
from servers.models import Server, ServerDelivery, ServerStatusHistory
from servers.rules import Event

#: Of attempts and rows of history on the page.
LAST = 20
#: The newest rows that are drawn: more would stand in the same pixels.
MOST_ROWS = 5_000


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """What is shown of an attempt: never the text, the recipient or the host's answer."""

    claimed_at: datetime
    message_id: int
    message_uuid: UUID
    lane: str
    number: int
    state: str
    error_class: str
    error_code: int | None
    duration_ms: int | None


def last_attempts(server: Server) -> list[AttemptRow]:
    """The newest attempts over this server, by the index `attempt_of_server`."""
    attempts = Attempt.objects.filter(server=server).order_by("-id")
    rows = attempts.values_list(
        *("claimed_at", "message_id", "message__uuid", "message__lane", "number"),
        *("state", "error_class", "error_code", "duration_ms"),
    )
    return [AttemptRow(*row) for row in rows[:LAST]]


def last_history(server: Server) -> list[ServerStatusHistory]:
    """The newest rows of its history, without the figures behind them."""
    return list(ServerStatusHistory.objects.filter(server=server).defer("data").order_by("-at", "-id")[:LAST])


def evidence(server: Server) -> Mapping[str, Any]:
    """What went with it into Need Check, of one that is in it: its newest such row is not far to look for."""
    rows = ServerStatusHistory.objects.filter(server=server, event=Event.NEED_CHECK).order_by("-at", "-id")
    return rows.values_list("data__evidence", flat=True).first() or {}


def deliveries_since(server: Server, since: datetime) -> int:
    """Client messages that it delivered from then on."""
    return ServerDelivery.objects.filter(server=server, at__gte=since).count()


def week_of(server: Server, *, now: datetime) -> Week:
    """What happened to it in the last 7 days."""
    start = week_rules.week_start(now)
    history = ServerStatusHistory.objects.filter(server=server, at__gte=start, at__lte=now)
    return Week(
        now=now,
        present=Standing(**{name: getattr(server, name) for name in week_rules.COLUMNS}),
        rows=_rows(history),
        delivered=_by_hour(ServerDelivery.objects.filter(server=server, at__gte=start, at__lte=now)),
        failed=_by_hour(history.filter(event=Event.SEND_FAILED)),
    )


def _rows(history: QuerySet[ServerStatusHistory]) -> Sequence[Row]:
    """Those that are drawn, the oldest first. A reset that leaves the ladder alone tells the picture nothing."""
    drawn = history.filter(~Q(event=Event.COUNTERS_RESET) | Q(data__new__has_key="cooldown_times"), event__in=DRAWN)
    columns = ("at", "event", "data__old", "data__new", "data__path", "data__by", "data__refused")
    newest = drawn.order_by("-at", "-id").values_list(*columns)[:MOST_ROWS]
    return [
        Row(at, Event(event), old or {}, new or {}, path or "", by or "", refused is True)
        for at, event, old, new, path, by, refused in reversed(newest)
    ]


def _by_hour(rows: QuerySet[Any]) -> dict[datetime, int]:
    hours = rows.annotate(hour=TruncHour("at", tzinfo=UTC)).order_by().values_list("hour")
    return dict(hours.annotate(count=Count("pk")))
