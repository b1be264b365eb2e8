"""What the page of a server shows on top of its form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from django.conf import settings

from otp_service.board import queries, week_picture
from otp_service.board.queries import AttemptRow
from otp_service.board.week_picture import Picture
from servers import outlook
from servers.models import Server, ServerStatusHistory
from servers.outlook_rules import Figures
from servers.outlook_words import length
from servers.rules import Status


@dataclass(frozen=True, slots=True)
class Counted:
    """A counter, and what happens at its limit; no limit: ""."""

    name: str
    value: int
    limit: str


@dataclass(frozen=True, slots=True)
class ServerPage:
    """The page's parts, from top to bottom. None: not for whoever looks at it."""

    outlook: outlook.Outlook
    picture: Picture
    counters: Sequence[Counted]
    evidence: Sequence[str]
    attempts: Sequence[AttemptRow] | None
    history: Sequence[ServerStatusHistory] | None


def of(server: Server, *, now: datetime, with_messages: bool, with_history: bool) -> ServerPage:
    """The page of a server at `now`. What is left out is not read.

    Without its history the page says that a server left the rotation, and nothing that people wrote about it.
    """
    figures = outlook.figures_of(server, now=now)
    if figures.taken is not None and not with_history:
        figures = replace(figures, taken=replace(figures.taken, by="", reason=""))
    delivered = queries.deliveries_since(server, now - figures.policy.reset_window)
    return ServerPage(
        outlook=outlook.told(figures, now=now),
        picture=week_picture.picture(queries.week_of(server, now=now)),
        counters=counters(server, figures, delivered, now),
        evidence=_evidence(server) if with_history else (),
        attempts=queries.last_attempts(server) if with_messages else None,
        history=queries.last_history(server) if with_history else None,
    )


def counters(server: Server, figures: Figures, delivered: int, now: datetime) -> list[Counted]:
    """What is counted against it and for it. What was sent on another day than today is nothing today."""
    policy = figures.policy
    is_today = server.sends_day == now.astimezone(UTC).date()
    enough = policy.deliveries_to_reset(preheating=server.preheating)
    window = length(policy.reset_window, policy.minute)
    return [
        Counted("Failures in a row", server.failed_in_row, f"{policy.threshold} start a cooldown"),
        Counted("Cooldowns of the ladder", server.cooldown_times, f"{len(policy.ladder)}, then Need Check"),
        Counted("Exits without proof in a row", server.fail_open_streak, f"{policy.fail_open_limit} are Need Check"),
        Counted(f"Deliveries in the last {window}", delivered, f"{enough} bring the ladder back"),
        Counted("Messages today", server.sends_today * is_today, _budget(settings.BUDGET_MESSAGES_PER_DAY)),
        Counted(
            "New recipients today",
            server.new_recipients_today * is_today,
            _budget(settings.BUDGET_NEW_RECIPIENTS_PER_DAY),
        ),
    ]


def _budget(limit: int) -> str:
    return f"{limit} a day" if limit else "no limit"


def _evidence(server: Server) -> Sequence[str]:
    return evidence_lines(queries.evidence(server)) if server.status == Status.NEED_CHECK else ()


def evidence_lines(evidence: Mapping[str, Any]) -> list[str]:
    """What went with it into Need Check, in sentences."""
    outcomes, others = evidence.get("outcomes") or [], evidence.get("others_of_host") or {}
    lines = []
    if outcomes:
        codes = Counter(str(one.get("error_code")) for one in outcomes if one.get("outcome") == "failed")
        named = ", ".join(f"{code} × {times}" for code, times in codes.most_common())  # noqa: RUF001 - times
        lines.append(
            f"Failed of its last {len(outcomes)} outcomes: {codes.total()}{f' (codes: {named})' if named else ''}"
        )
    if others:
        lines.append(
            f"Others of its host then: {others.get('servers', 0)}, of them {others.get('active', 0)} active,"
            f" {others.get('failing', 0)} failing, {others.get('cooldown', 0)} in cooldown,"
            f" {others.get('need_check', 0)} in Need Check"
        )
    return lines
