"""Rules of the messages between our own servers: who receives, when a preheat sends, how it ends. Pure."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar


class Place(Protocol):
    """Where a server is."""

    @property
    def id(self) -> int: ...
    @property
    def host_id(self) -> int: ...
    @property
    def region(self) -> str: ...
    @property
    def handle(self) -> str: ...


P = TypeVar("P", bound=Place)


def pick_receiver(sender: Place, candidates: Iterable[P], rng: random.Random) -> P | None:
    """Another server to write to: of the same region first, on another host first, drawn among equals."""
    others = [server for server in candidates if server.id != sender.id and server.handle != sender.handle]
    if not others:
        return None
    rank = {s.id: (s.region != sender.region, s.host_id == sender.host_id) for s in others}
    best = min(rank.values())
    return rng.choice([server for server in others if rank[server.id] == best])


@dataclass(frozen=True, slots=True)
class PreheatPlan:
    """The slow start of a new server. As they stand here: what the settings give by default."""

    per_day: tuple[int, ...] = (4, 8, 12, 16, 20)  # internal sends on each day
    repeats: int = 2  # of the last day, before a person is asked
    confirmed_share: float = 0.8  # of what is planned
    hours: tuple[int, int] = (8, 22)  # of the region's own time, the second one not included
    day: dt.timedelta = dt.timedelta(days=1)  # less in a drill

    def day_number(self, started_at: dt.datetime, now: dt.datetime) -> int:
        """From 0; days count from the start, not from midnight."""
        return (now - started_at) // self.day

    def quota(self, day: int) -> int:
        """Internal sends on that day; the last day repeats."""
        return self.per_day[min(day, len(self.per_day) - 1)]

    def pause(self, day: int) -> dt.timedelta:
        """Between two sends of that day, so that they fill its waking hours."""
        waking = self.day * (self.hours[1] - self.hours[0]) / 24
        return waking / self.quota(day)


@dataclass(frozen=True, slots=True)
class Sent:
    """One internal send of a preheat."""

    at: dt.datetime
    confirmed: bool
    left: bool = True  # False: its host did not take it


@dataclass(frozen=True, slots=True)
class Preheating:
    """Where a preheat stands. `hour` is the region's own, `sends` are those since the start."""

    started_at: dt.datetime
    repeats: int
    asked: bool
    hour: int
    sends: Sequence[Sent]
    haste: float  # 0 to 1, drawn for each send: which part of a quarter of the pause is left out


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is due."""


@dataclass(frozen=True, slots=True)
class SendOne:
    """The next internal send is due."""


@dataclass(frozen=True, slots=True)
class Judged:
    """How a plan ended: so many of the planned sends were confirmed."""

    planned: int
    confirmed: int


@dataclass(frozen=True, slots=True)
class Finish(Judged):
    """It is warm."""


@dataclass(frozen=True, slots=True)
class RepeatDay(Judged):
    """One more day like the last."""


@dataclass(frozen=True, slots=True)
class AskPerson(Judged):
    """The repeats are used up: a person decides."""


PreheatStep = Rest | SendOne | Finish | RepeatDay | AskPerson


def preheat_step(preheat: Preheating, plan: PreheatPlan, now: dt.datetime) -> PreheatStep:
    """What a preheat does now."""
    if preheat.asked:
        return Rest()
    end = preheat.started_at + (len(plan.per_day) + preheat.repeats) * plan.day
    if now >= end:
        return _judge(preheat, plan, end)
    day = plan.day_number(preheat.started_at, now)
    day_start = preheat.started_at + day * plan.day
    if not plan.hours[0] <= preheat.hour < plan.hours[1]:
        return Rest()
    if sum(sent.left and sent.at >= day_start for sent in preheat.sends) >= plan.quota(day):
        return Rest()
    last = max(preheat.sends, key=lambda sent: sent.at, default=None)
    if last is None:
        return SendOne()
    # One that did not leave is made up for sooner, and not at every look.
    pause = plan.pause(day) * (1 - preheat.haste / 4) if last.left else plan.pause(day) / 10
    return SendOne() if now - last.at >= pause else Rest()


def _judge(preheat: Preheating, plan: PreheatPlan, end: dt.datetime) -> Finish | RepeatDay | AskPerson:
    """By the whole plan at first, by the day that was repeated after that: early failures are not carried along."""
    since = end - plan.day if preheat.repeats else preheat.started_at
    planned = plan.per_day[-1] if preheat.repeats else sum(plan.per_day)
    confirmed = sum(sent.confirmed and sent.at >= since for sent in preheat.sends)
    if confirmed >= plan.confirmed_share * planned:
        return Finish(planned, confirmed)
    return RepeatDay(planned, confirmed) if preheat.repeats < plan.repeats else AskPerson(planned, confirmed)
