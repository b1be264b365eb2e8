"""Whether a recipient may be sent to now, and what their answers mean. Pure; no Django."""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import phonenumbers
from phonenumbers.timezone import time_zones_for_number

from otp_service.messages.rules import Channel, Lane

#: So many different routes must have called a number invalid before it is refused.
INVALID_ROUTES = 3


@dataclass(frozen=True, slots=True)
class RecipientView:
    """What is known of a recipient at one moment; the defaults are those of whom nothing is known."""

    refused_channels: frozenset[Channel] = frozenset()
    stopped: bool = False  # answered STOP
    quiet_until: datetime | None = None  # None: not quiet now
    invalid: bool = False  # several routes called the number so of late


@dataclass(frozen=True, slots=True)
class Send:
    """It may be sent, but not over these channels."""

    refused_channels: frozenset[Channel]


@dataclass(frozen=True, slots=True)
class Wait:
    """Not before `until`."""

    until: datetime


@dataclass(frozen=True, slots=True)
class Suppress:
    """Not at all."""


Verdict = Send | Wait | Suppress


def verdict(view: RecipientView, lane: Lane, *, stop_only_promo: bool) -> Verdict:
    """What becomes of a message to this recipient. `stop_only_promo`: other lanes go on after STOP."""
    stopped = view.stopped and (lane is Lane.PROMO or not stop_only_promo)
    if stopped or view.invalid:
        return Suppress()
    if lane is Lane.PROMO and view.quiet_until is not None:
        return Wait(view.quiet_until)
    return Send(view.refused_channels)


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From `start` until just before `end` by the clocks of `zone`; over midnight if `start` is the later one."""

    start: time
    end: time
    zone: tzinfo


def quiet_until(hours: QuietHours, now: datetime) -> datetime | None:
    """The end of the quiet hours that `now` is in (UTC, later than `now`); None if it is in none."""
    local = now.astimezone(hours.zone)
    clock = local.time()
    if hours.start < hours.end:
        is_quiet = hours.start <= clock < hours.end
    else:
        is_quiet = clock >= hours.start or clock < hours.end
    if not is_quiet:
        return None
    day = local.date() + timedelta(days=clock >= hours.end)
    # Where clocks are set back, an hour comes twice: in its second run, its second end is meant.
    return datetime.combine(day, hours.end, tzinfo=hours.zone).replace(fold=local.fold).astimezone(UTC)


@cache
def zone(name: str) -> tzinfo | None:
    """The time zone of an IANA name; None if this machine knows none of that name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return None


def time_zone_of(e164: str, by_region: Mapping[str, str]) -> str:
    """The IANA name of the time zone of a number's region; of several, `by_region` may say which one is meant.

    `by_region`: lower-case country code → name; "" is for where no zone is known at all.
    """
    number = phonenumbers.parse(e164, None)
    zones = [name for name in time_zones_for_number(number) if zone(name)]
    if len(zones) == 1:
        return zones[0]
    region = phonenumbers.region_code_for_number(number) or ""
    return by_region.get(region.lower()) or (zones[0] if zones else by_region[""])


def is_invalid(reports: Collection[datetime], now: datetime, within: timedelta) -> bool:
    """Whether a number is refused: the last report of each route that called it invalid, each at its time.

    INVALID_ROUTES routes must have said so within one span of this length; it holds for as long after the newest.
    """
    newest = sorted(reports, reverse=True)[:INVALID_ROUTES]
    return len(newest) == INVALID_ROUTES and newest[0] - newest[-1] <= within and now < newest[0] + within


class Word(enum.StrEnum):
    """What a recipient may answer that changes what they get."""

    STOP = "stop"  # no more of this
    START = "start"  # again, please


_WORDS = {
    **dict.fromkeys(("stop", "stopall", "unsubscribe", "cancel", "end", "quit"), Word.STOP),
    **dict.fromkeys(("start", "unstop"), Word.START),
}
_ONE_WORD = re.compile(r"[\W_]*([^\W_]+)[\W_]*")


def word(text: str) -> Word | None:
    """The word that a text consists of, in any case and punctuation; None for every other text."""
    found = _ONE_WORD.fullmatch(text)
    return _WORDS.get(found[1].lower()) if found else None
