"""What a run of the drill came to, and what it was to come to. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from otp_service.core.measures import percentile
from otp_service.messages.rules import ENDED, AttemptState, Lane, MessageStatus, OnUnknown

#: The longest that 99 of 100 otp may wait until a provider has them, when they were accepted during the fault: within
#: so long the lane promises its first attempt, here held to one that a provider took.
BOUND_IN_FAULT = timedelta(seconds=15)
#: The same before and after it, when a route is well: nothing but this machine's own work may hold them up.
BOUND_IN_CALM = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Accepted:
    """A message that its client was told to be accepted, by its text's digest."""

    id: str
    lane: Lane
    text_sha256: str
    sender_name: str = ""


@dataclass(frozen=True, slots=True)
class Stored:
    """The message in the database."""

    id: str
    status: MessageStatus
    on_unknown: OnUnknown
    created_at: datetime
    expires_at: datetime
    finished_at: datetime | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Tried:
    """One attempt in the database."""

    message_id: str
    number: int
    route: str
    state: AttemptState
    claimed_at: datetime
    was_unknown: bool = False
    possible_duplicate: bool = False
    check_at: datetime | None = None  # when its provider is asked about it
    error_class: str = ""


@dataclass(frozen=True, slots=True)
class Copy:
    """What a provider took. `left`: it was sent to the phone, too."""

    route: str
    text_sha256: str
    sender: str
    at: datetime
    left: bool = True


@dataclass(frozen=True, slots=True)
class BreakerChange:
    """An event of a route's breaker, as in `breaker_opened`."""

    route: str
    kind: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Fault:
    """When it began and ended, and the route that stands in for those that it hits ("": there is none)."""

    began_at: datetime
    ended_at: datetime
    backup: str = ""

    def phase(self, at: datetime) -> str:
        """before, during or after."""
        if at < self.began_at:
            return "before"
        return "during" if at < self.ended_at else "after"


@dataclass(frozen=True, slots=True)
class Waits:
    """How long otp waited, in seconds."""

    count: int
    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Waits:
        """Figures of these; zeros of none."""
        ordered = sorted(seconds)
        return cls(len(ordered), *(round(percentile(ordered, share), 3) for share in (0.5, 0.99, 1.0)))


PHASES = ("before", "during", "after")


def bound(phase: str) -> timedelta:
    """The longest that 99 of 100 otp that were accepted in this phase may wait."""
    return BOUND_IN_FAULT if phase == "during" else BOUND_IN_CALM


def held(stored: Mapping[str, Stored], attempts: Iterable[Tried]) -> frozenset[str]:
    """Messages that wait, as they asked to, for news of a copy of which nobody knows whether it has left."""
    unclear = {each.message_id for each in attempts if each.state is AttemptState.UNKNOWN}
    return frozenset(
        message.id
        for message in stored.values()
        if message.id in unclear and message.status is MessageStatus.SUBMITTED and message.on_unknown is OnUnknown.HOLD
    )


@dataclass(frozen=True)
class Seen:
    """Everything that is known of one run when it is over."""

    accepted: Sequence[Accepted]
    stored: Mapping[str, Stored]  # by id
    attempts: Sequence[Tried]
    copies: Sequence[Copy]
    breakers: Sequence[BreakerChange]
    fault: Fault
    read_at: datetime
    budget: int  # extra copies of a message that may leave while nobody knows whether one has
    turned_away: int = 0  # posts that were told to come again
    receipts_lost: int = 0  # posts of providers that we did not take

    @cached_property
    def of_text(self) -> Mapping[str, Sequence[Copy]]:
        """Copies that a provider took, the first one first, by text."""
        found: dict[str, list[Copy]] = defaultdict(list)
        for copy in sorted(self.copies, key=lambda copy: copy.at):
            found[copy.text_sha256].append(copy)
        return found

    @cached_property
    def held(self) -> frozenset[str]:
        """Messages that wait, as they asked to."""
        return held(self.stored, self.attempts)

    @cached_property
    def without_end(self) -> Sequence[Accepted]:
        """Accepted messages that have no end, and are not held; also those that are not there at all."""
        return [each for each in self.accepted if not self._has_ended(each.id) and each.id not in self.held]

    def _has_ended(self, message_id: str) -> bool:
        stored = self.stored.get(message_id)
        return stored is not None and stored.status in ENDED

    def left(self, text_sha256: str) -> Sequence[Copy]:
        """The copies of a text that were sent to the phone."""
        return [copy for copy in self.of_text.get(text_sha256, ()) if copy.left]

    @cached_property
    def over_budget(self) -> Sequence[Accepted]:
        """Messages of which more copies left than they allow."""
        return [each for each in self.accepted if len(self.left(each.text_sha256)) > 1 + self._allows(each.id)]

    def _allows(self, message_id: str) -> int:
        stored = self.stored.get(message_id)
        return self.budget if stored is not None and stored.on_unknown is OnUnknown.RACE else 0

    @cached_property
    def stale(self) -> int:
        """Copies that a provider took after their message's end."""
        ends = {each.text_sha256: self.stored[each.id].expires_at for each in self.accepted if each.id in self.stored}
        return sum(copy.at > ends[copy.text_sha256] for copy in self.copies if copy.text_sha256 in ends)

    @cached_property
    def wrong_names(self) -> int:
        """Copies of messages that asked for a sender name, under another one."""
        asked = {each.text_sha256: each.sender_name for each in self.accepted if each.sender_name}
        return sum(copy.sender != asked[copy.text_sha256] for copy in self.copies if copy.text_sha256 in asked)

    def waits(self, phase: str) -> Waits:
        """Of otp accepted in this phase: from their acceptance until a provider had them, or until they ended.

        One of which it is not known whether its provider has it waited until it was handed over.
        """
        return Waits.of(self.wait(each) for each in self.otp(phase))

    def first_claims(self, phase: str) -> Waits:
        """Of the same: until their first attempt began."""
        first = {each.message_id: each.claimed_at for each in self.attempts if each.number == 1}
        return Waits.of(
            (first.get(each.id, self.read_at) - self.stored[each.id].created_at).total_seconds()
            for each in self.otp(phase)
        )

    def otp(self, phase: str) -> Sequence[Accepted]:
        """Those that were accepted in this phase. One that waited for its provider when the fault began met it."""
        return [
            each
            for each in self.accepted
            if each.lane is Lane.OTP and each.id in self.stored and self._phase(each) == phase
        ]

    def _phase(self, each: Accepted) -> str:
        phase = self.fault.phase(self.stored[each.id].created_at)
        return "during" if phase == "before" and self._until(each) >= self.fault.began_at else phase

    def wait(self, each: Accepted) -> float:
        """Seconds until a provider had a stored message, or until it ended."""
        return max(0.0, (self._until(each) - self.stored[each.id].created_at).total_seconds())

    def _until(self, each: Accepted) -> datetime:
        taken = self.of_text.get(each.text_sha256)
        if taken:
            return taken[0].at
        unclear = (tried.claimed_at for tried in self.attempts if tried.message_id == each.id and tried.was_unknown)
        return next(unclear, None) or self.stored[each.id].finished_at or self.read_at


@dataclass(frozen=True, slots=True)
class Journal:
    """The figures of one run. Times in seconds."""

    accepted: Mapping[str, int]  # by lane
    ends: Mapping[str, int]  # by status and reason
    share_delivered: float
    without_end: int
    held: int
    fault_s: float
    time_to_switch: float | None  # from the fault to the first copy over the backup
    unknown_now: int
    unknown_ever: int
    possible_duplicates: int
    confirmed_duplicates: int  # messages of which two copies or more left, by the providers' ledgers
    most_copies: int
    over_budget: int
    stale_copies: int
    breakers: Sequence[str]
    still_open: Sequence[str]  # messages without an end, and where their attempts stand
    slowest: str  # otp of all, likewise; "": there were none
    turned_away: int
    receipts_lost: int
    waits: Mapping[str, Waits]  # of otp by phase, until a provider had them
    first_claims: Mapping[str, Waits]  # of otp by phase, until their first attempt


def journal(seen: Seen) -> Journal:
    """The run's figures."""
    left = [len(seen.left(each.text_sha256)) for each in seen.accepted]
    stored = [seen.stored[each.id] for each in seen.accepted if each.id in seen.stored]
    delivered = sum(message.status is MessageStatus.DELIVERED for message in stored)
    return Journal(
        accepted=dict(sorted(Counter(each.lane.value for each in seen.accepted).items())),
        ends=dict(sorted(Counter(_end(message) for message in stored).items())),
        share_delivered=round(delivered / len(seen.accepted), 4) if seen.accepted else 0.0,
        without_end=len(seen.without_end),
        held=len(seen.held),
        fault_s=round((seen.fault.ended_at - seen.fault.began_at).total_seconds(), 1),
        time_to_switch=_time_to_switch(seen),
        unknown_now=sum(each.state is AttemptState.UNKNOWN for each in seen.attempts),
        unknown_ever=sum(each.was_unknown for each in seen.attempts),
        possible_duplicates=sum(each.possible_duplicate for each in seen.attempts),
        confirmed_duplicates=sum(copies > 1 for copies in left),
        most_copies=max(left, default=0),
        over_budget=len(seen.over_budget),
        stale_copies=seen.stale,
        breakers=[_in_words(change, seen.fault.began_at) for change in seen.breakers],
        still_open=[_where(seen, each) for each in seen.without_end],
        slowest=_slowest(seen),
        turned_away=seen.turned_away,
        receipts_lost=seen.receipts_lost,
        waits={phase: seen.waits(phase) for phase in PHASES},
        first_claims={phase: seen.first_claims(phase) for phase in PHASES},
    )


def _end(message: Stored) -> str:
    return f"{message.status} {message.reason}".strip()


def _slowest(seen: Seen) -> str:
    found = max((each for phase in PHASES for each in seen.otp(phase)), key=seen.wait, default=None)
    return "" if found is None else f"{seen.wait(found):.2f} s, {_where(seen, found)}"


def _where(seen: Seen, each: Accepted) -> str:
    stored = seen.stored.get(each.id)
    if stored is None:
        return f"{each.lane} {each.id}: not stored"
    attempts = [_standing(attempt, stored, seen.read_at) for attempt in seen.attempts if attempt.message_id == each.id]
    return f"{each.lane} {each.id}: {stored.status}; {', '.join(attempts) or 'no attempt'}"


def _standing(attempt: Tried, message: Stored, now: datetime) -> str:
    begun = f"{(attempt.claimed_at - message.created_at).total_seconds():+.1f} s"
    asked = "" if attempt.check_at is None else f" asked about in {(attempt.check_at - now).total_seconds():.0f} s"
    return " ".join(filter(None, (attempt.route, begun, attempt.state, attempt.error_class))) + asked


def _time_to_switch(seen: Seen) -> float | None:
    fault = seen.fault
    over = [copy.at for copy in seen.copies if copy.route == fault.backup and copy.at >= fault.began_at]
    return round((min(over) - fault.began_at).total_seconds(), 2) if over else None


def _in_words(change: BreakerChange, since: datetime) -> str:
    return f"{change.route} {change.kind.removeprefix('breaker_')} at {(change.at - since).total_seconds():+.1f} s"
