"""Rules of the warm-up gate: when a server in cooldown proves itself, and how its cooldown ends. Pure."""

from __future__ import annotations

import datetime as dt
import enum
import random
from dataclasses import dataclass
from typing import Protocol

from servers.rules import NeedCheck, NeedCheckPath, Policy, Verdict


class WarmUp(enum.Enum):
    """Where the warm-up of a round stands when the cooldown is due to end."""

    NO_SLOT = enum.auto()  # the cooldown is too short for one
    NOT_SENT = enum.auto()  # nobody to write to, host away, our scheduler was down
    UNCONFIRMED = enum.auto()  # sent, or refused by the host for the server's sake; no proof came
    CONFIRMED = enum.auto()


@dataclass(frozen=True, slots=True)
class Release:
    """Let the server out; its streak of exits without proof stands at `fail_open_streak` then."""

    verdict: Verdict
    fail_open_streak: int


@dataclass(frozen=True, slots=True)
class Extend:
    """Keep it in until `until`, with a new warm-up not before `warmup_at`."""

    until: dt.datetime
    warmup_at: dt.datetime


@dataclass(frozen=True, slots=True)
class Wait:
    """No verdict yet: the warm-up left a moment ago."""

    until: dt.datetime


class Gated(Protocol):
    """What a verdict looks at of a server in cooldown."""

    @property
    def signed_in(self) -> bool: ...
    @property
    def cooldown_end_date(self) -> dt.datetime | None: ...
    @property
    def cooldown_warmup_at(self) -> dt.datetime | None: ...
    @property
    def cooldown_warmup_sent_date(self) -> dt.datetime | None: ...
    @property
    def cooldown_warmup_delivered(self) -> bool: ...
    @property
    def cooldown_extensions(self) -> int: ...
    @property
    def fail_open_streak(self) -> int: ...


def warm_up(server: Gated) -> WarmUp:
    """Where the warm-up of the round stands. A confirmation counts without a slot too: any internal send is proof.

    A server that is signed out sends none, and that is its own fault: as if its host had refused it.
    """
    if server.cooldown_warmup_delivered:
        return WarmUp.CONFIRMED
    if server.cooldown_warmup_sent_date is not None:
        return WarmUp.UNCONFIRMED
    if server.cooldown_warmup_at is None:
        return WarmUp.NO_SLOT
    return WarmUp.NOT_SENT if server.signed_in else WarmUp.UNCONFIRMED


def may_send_warm_up(server: Gated, policy: Policy, now: dt.datetime) -> bool:
    """Whether a server in cooldown is to send its warm-up now: the slot has come, and the end is near."""
    if server.cooldown_end_date is None or server.cooldown_warmup_at is None:
        return False
    if not server.signed_in or warm_up(server) is not WarmUp.NOT_SENT:
        return False
    return (
        server.cooldown_warmup_at <= now
        and server.cooldown_end_date - policy.warmup_lead <= now < server.cooldown_end_date
    )


def proves_life(sent_at: dt.datetime, policy: Policy, now: dt.datetime) -> bool:
    """Whether the success of what a server in cooldown sent at `sent_at` is news enough to count."""
    return now - sent_at <= policy.proof_window


def verdict(
    server: Gated, policy: Policy, *, now: dt.datetime, rng: random.Random
) -> Wait | Release | Extend | NeedCheck:
    """What becomes of a server whose cooldown is over at `now`."""
    assert server.cooldown_end_date is not None  # the database sees to it: in cooldown iff it has dates
    proof, sent_at = warm_up(server), server.cooldown_warmup_sent_date
    match proof:
        case WarmUp.CONFIRMED:
            return Release(Verdict.VERIFIED, 0)
        case WarmUp.NO_SLOT | WarmUp.NOT_SENT:
            return Release(Verdict.NEUTRAL, server.fail_open_streak)
        case WarmUp.UNCONFIRMED if sent_at is not None and now < sent_at + policy.verdict_delay:
            return Wait(sent_at + policy.verdict_delay)
        case WarmUp.UNCONFIRMED if server.cooldown_extensions < policy.max_extensions:
            return _extension(server.cooldown_end_date, policy, now, rng)
        case WarmUp.UNCONFIRMED:
            return _exit_without_proof(server.fail_open_streak + 1, policy)


def _extension(end: dt.datetime, policy: Policy, now: dt.datetime, rng: random.Random) -> Extend:
    longer = rng.randint(*policy.extension) * policy.minute
    after = rng.randint(*policy.warmup_after_short) * policy.minute
    # The new span follows the old one, unless the sweep came so late that no time for a warm-up is left of it.
    start = end if now <= end + longer - policy.warmup_min_margin else now
    until = start + longer
    return Extend(until, min(start + after, until - policy.warmup_min_margin))


def _exit_without_proof(streak: int, policy: Policy) -> Release | NeedCheck:
    if streak >= policy.fail_open_limit:
        return NeedCheck(NeedCheckPath.FAIL_OPEN, streak)
    return Release(Verdict.FAIL_OPEN, streak)
