"""What a person's verdict does to a server. Pure: plain values and `now` in, a decision out; no Django.

`recover` and `mark_active` put a server into rotation with nothing counted, as if it had been released now, and end
its preheat: starting one is a verdict of its own. Those that take it out of rotation leave its counters as evidence,
and end its talks; they end its preheat too, but for Need Check, which keeps it to be looked at, as the machine's does.
A verdict that a server already is as it says changes nothing, so that a call may be repeated.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from servers.rules import Event, Status

#: The columns of a server that is in no cooldown.
NO_COOLDOWN: dict[str, Any] = {
    "cooldown": False,
    "cooldown_start_date": None,
    "cooldown_end_date": None,
    "cooldown_reason": "",
    "cooldown_warmup_at": None,
    "cooldown_warmup_uuid": None,
    "cooldown_warmup_sent_date": None,
    "cooldown_warmup_delivered": False,
    "cooldown_extensions": 0,
}
NO_PREHEAT: dict[str, Any] = {
    "preheating": False,
    "preheat_started_at": None,
    "preheat_repeats": 0,
    "preheat_asked_at": None,
}
#: In rotation, nothing counted.
FRESH = NO_COOLDOWN | {
    "status": Status.ACTIVE.value,
    "failed_in_row": 0,
    "cooldown_times": 0,
    "fail_open_streak": 0,
    "otp_in_hour": 0,
}
_NOTHING_COUNTED = FRESH | NO_PREHEAT


LONGEST_REASON = 500  # characters of what a person gives as the reason


class PersonVerdict(enum.StrEnum):
    """What a person may decide about a server; the values are names in addresses and forms."""

    RECOVER = "recover"  # out of Need Check, into rotation
    MARK_ACTIVE = "mark_active"  # from any status, and out of a running cooldown, into rotation
    START_PREHEAT = "start_preheat"  # the slow start of a new server from its first day, counters at 0
    START_CHAT_PREHEAT = "start_chat_preheat"  # it talks with another one in turns, counters at 0
    NEED_CHECK = "need_check"  # out of rotation until a person decides
    LOST = "lost"  # given up: its account or its device is gone
    DISABLE = "disable"  # switched off
    DELETE = "delete"  # gone; its row and its history stay


class Subject(Protocol):
    """What the rules look at of a server; it also has every column of FRESH and NO_PREHEAT."""

    @property
    def host(self) -> object: ...
    @property
    def status(self) -> str: ...
    @property
    def cooldown(self) -> bool: ...
    @property
    def signed_in(self) -> bool: ...
    @property
    def preheating(self) -> bool: ...
    @property
    def preheat_asked_at(self) -> dt.datetime | None: ...
    @property
    def next_send_date(self) -> dt.datetime: ...


@dataclass(frozen=True, slots=True)
class Talk:
    """What a chat-preheat depends on beside the server. As they stand here: nothing is in its way."""

    running: bool = False  # the server's last one has not ended
    host_online: bool = True
    longest: dt.timedelta = dt.timedelta(0)  # client messages wait for so long


@dataclass(frozen=True, slots=True)
class Change:
    """It is carried out: the row of history, and the columns as they will be; some may stay as they are."""

    event: Event
    new: Mapping[str, Any]
    ends_talks: bool = False


@dataclass(frozen=True, slots=True)
class NoChange:
    """The server is so already."""

    detail: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The server is not in a state for it; the detail says what to do instead. `code` is stable, for programs."""

    code: str
    detail: str


Decision = Change | NoChange | Refused


#: Where those that take a server out leave it.
_OUT_OF_ROTATION: dict[PersonVerdict, tuple[Status, Event, Mapping[str, Any]]] = {
    PersonVerdict.NEED_CHECK: (Status.NEED_CHECK, Event.NEED_CHECK, NO_COOLDOWN),
    PersonVerdict.LOST: (Status.LOST, Event.LOST, NO_COOLDOWN | NO_PREHEAT),
    PersonVerdict.DISABLE: (Status.DISABLED, Event.DISABLED, NO_COOLDOWN | NO_PREHEAT),
    PersonVerdict.DELETE: (Status.DELETED, Event.DELETED, NO_COOLDOWN | NO_PREHEAT),
}
_NOTHING_IN_THE_WAY = Talk()


def decide(verdict: PersonVerdict, server: Subject, now: dt.datetime, talk: Talk = _NOTHING_IN_THE_WAY) -> Decision:
    """What a verdict does to a server at `now`. Whether there is a partner for a talk is not asked here."""
    if server.status == Status.DELETED and verdict not in {PersonVerdict.MARK_ACTIVE, PersonVerdict.DELETE}:
        return Refused("deleted", f"{server} is deleted: mark it active first.")
    match verdict:
        case PersonVerdict.RECOVER:
            return _recover(server, now)
        case PersonVerdict.MARK_ACTIVE:
            return _mark_active(server, now)
        case PersonVerdict.START_PREHEAT:
            return _start_preheat(server, now)
        case PersonVerdict.START_CHAT_PREHEAT:
            return _start_chat_preheat(server, now, talk)
        case PersonVerdict.NEED_CHECK | PersonVerdict.LOST | PersonVerdict.DISABLE | PersonVerdict.DELETE:
            return _take_out(server, *_OUT_OF_ROTATION[verdict])


def no_partner(server: Subject) -> Refused:
    """There is nobody that a server could talk with."""
    return Refused(
        "no_partner", f"There is no other server that {server} could talk with: one must be active and online."
    )


def _recover(server: Subject, now: dt.datetime) -> Decision:
    if server.status == Status.ACTIVE:
        return NoChange(f"{server} is not in Need Check, but active: to end its cooldown, mark it active.")
    if server.status != Status.NEED_CHECK:
        return Refused("not_in_need_check", f"{server} is {server.status}, not in Need Check: mark it active instead.")
    return Change(Event.RECOVERED, _NOTHING_COUNTED | {"released_at": now})


def _mark_active(server: Subject, now: dt.datetime) -> Decision:
    # The hour's messages are no reproach: every server that works has some.
    held = {name: value for name, value in _NOTHING_COUNTED.items() if name != "otp_in_hour"}
    if all(getattr(server, name) == value for name, value in held.items()):
        return NoChange(f"{server} is active, with nothing counted against it.")
    return Change(Event.MARKED_ACTIVE, _NOTHING_COUNTED | {"released_at": now})


def _start_preheat(server: Subject, now: dt.datetime) -> Decision:
    # A plan that proved nothing, of which a person was asked, may be begun anew: that is one of the answers.
    if server.status == Status.ACTIVE and server.preheating and server.preheat_asked_at is None:
        return NoChange(f"{server} is in preheat already: to begin its plan anew, mark it active first.")
    begun = {"preheating": True, "preheat_started_at": now, "released_at": now}
    return Change(Event.PREHEAT_STARTED, FRESH | NO_PREHEAT | begun)


def _start_chat_preheat(server: Subject, now: dt.datetime, talk: Talk) -> Decision:
    if talk.running and server.status == Status.ACTIVE and not server.cooldown:
        return NoChange(f"{server} is in a chat-preheat already.")
    if talk.running:
        return Refused("talk_ends", f"The last chat-preheat of {server} is just ending: try again in a few minutes.")
    if not server.signed_in:
        return Refused("signed_out", f"{server} is signed out: sign it in on its host first.")
    if not talk.host_online:
        away = f"{server.host}, which {server} is on, is disabled or offline: nothing can be sent there."
        return Refused("host_offline", away)
    resting = {"next_send_date": max(server.next_send_date, now + talk.longest), "released_at": now}
    return Change(Event.CHAT_PREHEAT_STARTED, FRESH | resting)


def _take_out(server: Subject, status: Status, event: Event, new: Mapping[str, Any]) -> Decision:
    if server.status == status:
        return NoChange(f"{server} is {status.value} already.")
    return Change(event, {**new, "status": status.value}, ends_talks=True)
