"""How a simulated unit behaves: one small class per behaviour, and one table of them.

A behaviour draws up a plan for each message that it takes: what becomes of it (facts), what is told to
us about that (reports), and how the submission itself is answered. It is pure; `delivery` carries the
plan out. To add one: write the class, add its row to BEHAVIOURS.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import timedelta
from typing import Any

from otp_service.core.outcomes import ReportedState

NOT_DELIVERED, NOT_ON_IMESSAGE = 120, 22

_SECONDS_LIMIT = 3600.0
_COUNT_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class Timings:
    """How long things take on the simulated phones."""

    to_sent: timedelta = timedelta(milliseconds=50)  # from acceptance to handing the message on
    to_delivered: timedelta = timedelta(milliseconds=150)  # from there to the phone
    heartbeat: timedelta = timedelta(seconds=3)


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that becomes of a message, `after` its acceptance, and the event that would tell of it."""

    after: timedelta
    state: ReportedState
    event: str
    service: str = "imessage"
    error_code: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The event about fact number `fact`, posted `after` acceptance."""

    after: timedelta
    fact: int


class Answers(enum.Enum):
    """When the submission is answered."""

    AT_ONCE = enum.auto()
    WHEN_SENT = enum.auto()
    WHEN_REPORTED = enum.auto()


@dataclass(frozen=True, slots=True)
class Plan:
    """All that will happen to one message. `can_say` is False when the host loses track of it."""

    facts: tuple[Fact, ...]
    reports: tuple[Report, ...]
    answers: Answers = Answers.AT_ONCE
    status: int = 202
    can_say: bool = True


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer of a unit that takes nothing."""

    status: int
    code: str
    detail: str
    retry_after_s: int | None = None


class BehaviourError(ValueError):
    """There is no such behaviour, or not with such parameters; the text is a sentence for people."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """`signed_in` is what the host's health says; `receives` whether messages to the unit arrive there."""

    def plan(self, nth: int, timings: Timings, rng: random.Random) -> Plan:
        """The plan for the `nth` message (from 1) that the unit took with this behaviour."""
        return delivers(timings)

    def refusal(self) -> Refusal | None:
        """How every submission is refused, None to take them."""
        return None

    @property
    def signed_in(self) -> bool:
        return True

    @property
    def receives(self) -> bool:
        return self.signed_in


def delivers(timings: Timings, service: str = "imessage") -> Plan:
    """Sent, delivered, and both told."""
    sent = Fact(timings.to_sent, ReportedState.SENT, "message_sent", service)
    delivered = Fact(sent.after + timings.to_delivered, ReportedState.DELIVERED, "delivered", service)
    return Plan(facts=(sent, delivered), reports=(Report(sent.after, 0), Report(delivered.after, 1)))


def fails(timings: Timings, error_code: int, event: str = "message_sent") -> Plan:
    """Not sent, and told so."""
    failed = Fact(timings.to_sent, ReportedState.FAILED, event, error_code=error_code)
    return Plan(facts=(failed,), reports=(Report(failed.after, 0),))


def _parameter(default: Any, low: float, high: float) -> Any:
    return field(default=default, metadata={"low": low, "high": high})


@dataclass(frozen=True, slots=True)
class Healthy(Behaviour):
    """Sends and delivers everything."""


@dataclass(frozen=True, slots=True)
class Flaky(Behaviour):
    """Fails a share `p` of its messages."""

    p: float = _parameter(0.5, 0, 1)

    def plan(self, nth: int, timings: Timings, rng: random.Random) -> Plan:
        return fails(timings, NOT_DELIVERED) if rng.random() < self.p else delivers(timings)


@dataclass(frozen=True, slots=True)
class DyingAfter(Behaviour):
    """Delivers `n` messages, and fails every later one."""

    n: int = _parameter(10, 0, _COUNT_LIMIT)

    def plan(self, nth: int, timings: Timings, rng: random.Random) -> Plan:
        return delivers(timings) if nth <= self.n else fails(timings, NOT_DELIVERED)


@dataclass(frozen=True, slots=True)
class Dead(Behaviour):
    """Accepts everything and fails it."""

    def plan(self, nth: int, timings: Timings, rng: random.Random) -> Plan:
        return fails(timings, NOT_DELIVERED)

    @property
    def receives(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Slow(Behaviour):
    """Takes `seconds` longer to send, and answers the submission only then."""

    seconds: float = _parameter(2.0, 0, _SECONDS_LIMIT)

    def plan(self, nth: int, timings: Timings, rng: random.Random) -> Plan:
        slowed = replace(timings, to_sent=timings.to_sent + timedelta(seconds=self.seconds))
        return replace(delivers(slowed), answers=Answers.WHEN_SENT)


@dataclass(frozen=True, slots=True)
class SignedOut(Behaviour):
    """Takes nothing."""

    def refusal(self) -> Refusal | None:
        return Refusal(409, "unit_signed_out", "The unit is signed out.")

    @property
    def signed_in(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Throttled(Behaviour):
    """Takes nothing for now."""

    retry_after_s: int = _parameter(2, 0, int(_SECONDS_LIMIT))

    def refusal(self) -> Refusal | None:
        return Refusal(429, "too_many_sends", "The unit sends no more for now.", self.retry_after_s)


@dataclass(frozen=True, slots=True)
class FallsBackToSms(Behaviour):
    """Delivers by SMS instead of iMessage."""

    def plan(self, nth: int, timings: Timings, rng: random.Random) -> Plan:
        return delivers(timings, service="sms")


@dataclass(frozen=True, slots=True)
class NotOnImessage(Behaviour):
    """Reports that no recipient is on iMessage."""

    def plan(self, nth: int, timings: Timings, rng: random.Random) -> Plan:
        return fails(timings, NOT_ON_IMESSAGE, event="message_failed")


@dataclass(frozen=True, slots=True)
class AcceptsAndNeverReports(Behaviour):
    """Sends (or, with `sends` false, not even that), tells nothing, and cannot say when asked."""

    sends: bool = True

    def plan(self, nth: int, timings: Timings, rng: random.Random) -> Plan:
        facts = delivers(timings).facts if self.sends else ()
        return Plan(facts=facts, reports=(), can_say=False)

    @property
    def receives(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class ReportsTwice(Behaviour):
    """Posts every event a second time, with the same id."""

    def plan(self, nth: int, timings: Timings, rng: random.Random) -> Plan:
        plan = delivers(timings)
        again = tuple(Report(report.after + timings.to_delivered, report.fact) for report in plan.reports)
        return replace(plan, reports=plan.reports + again)


@dataclass(frozen=True, slots=True)
class ReportsOutOfOrder(Behaviour):
    """Tells of the delivery first, and of the sending after it."""

    def plan(self, nth: int, timings: Timings, rng: random.Random) -> Plan:
        plan = delivers(timings)
        sent, delivered = plan.reports
        late = Report(delivered.after + timings.to_delivered, sent.fact)
        return replace(plan, reports=(delivered, late))


@dataclass(frozen=True, slots=True)
class ReportsBeforeAnswering(Behaviour):
    """Tells of the delivery before it has answered the submission."""

    def plan(self, nth: int, timings: Timings, rng: random.Random) -> Plan:
        return replace(delivers(timings), answers=Answers.WHEN_REPORTED)


@dataclass(frozen=True, slots=True)
class Error500AfterSending(Behaviour):
    """Sends, then answers the submission with a 500."""

    def plan(self, nth: int, timings: Timings, rng: random.Random) -> Plan:
        return replace(delivers(timings), answers=Answers.WHEN_SENT, status=500)


@dataclass(frozen=True, slots=True)
class DropsWebhooks(Behaviour):
    """Loses a share `p` of its events; the host knows the truth when asked."""

    p: float = _parameter(0.3, 0, 1)

    def plan(self, nth: int, timings: Timings, rng: random.Random) -> Plan:
        plan = delivers(timings)
        return replace(plan, reports=tuple(report for report in plan.reports if rng.random() >= self.p))


BEHAVIOURS: Mapping[str, type[Behaviour]] = {
    "healthy": Healthy,
    "flaky": Flaky,
    "dying_after": DyingAfter,
    "dead": Dead,
    "slow": Slow,
    "signed_out": SignedOut,
    "throttled": Throttled,
    "falls_back_to_sms": FallsBackToSms,
    "not_on_imessage": NotOnImessage,
    "accepts_and_never_reports": AcceptsAndNeverReports,
    "reports_twice": ReportsTwice,
    "reports_out_of_order": ReportsOutOfOrder,
    "reports_before_answering": ReportsBeforeAnswering,
    "error_500_after_sending": Error500AfterSending,
    "drops_webhooks": DropsWebhooks,
}
_NAMES: Mapping[type[Behaviour], str] = {kind: name for name, kind in BEHAVIOURS.items()}


def behaviour_from(document: Mapping[str, object]) -> Behaviour:
    """The behaviour that `{"behaviour": name, parameter: value, …}` asks for, or BehaviourError."""
    parameters = dict(document)
    name = parameters.pop("behaviour", None)
    kind = BEHAVIOURS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise BehaviourError(f"`behaviour` must be one of: {', '.join(BEHAVIOURS)}.")
    known = {parameter.name: parameter for parameter in fields(kind)}
    for parameter, value in parameters.items():
        if parameter not in known:
            raise BehaviourError(f"The behaviour {name} takes {' and '.join(known) or 'no parameters'}.")
        _refuse_value(parameter, value, known[parameter].default, known[parameter].metadata)
    return kind(**parameters)


def behaviour_document(behaviour: Behaviour) -> dict[str, object]:
    """The inverse of `behaviour_from`."""
    return {"behaviour": _NAMES[type(behaviour)], **asdict(behaviour)}


def _refuse_value(name: str, value: object, default: object, bounds: Mapping[str, Any]) -> None:
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise BehaviourError(f"`{name}` must be true or false.")
        return
    is_whole = isinstance(default, int)
    if isinstance(value, bool) or not isinstance(value, int if is_whole else int | float):
        raise BehaviourError(f"`{name}` must be a {'whole ' if is_whole else ''}number.")
    if not bounds["low"] <= value <= bounds["high"]:
        raise BehaviourError(f"`{name}` must be between {bounds['low']:g} and {bounds['high']:g}.")
