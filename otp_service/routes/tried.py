"""What earlier attempts of a message say of its routes: which are out, and which come last. Pure.

Only what cannot help again is out. What may be over in a moment comes last: a message with no other way goes there
again, as long as it lives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from otp_service.core.outcomes import ErrorClass
from otp_service.messages.rules import Channel
from otp_service.routes.rules import LAST_AFTER

#: One such answer puts a route out; of a pool it puts out the server, as each host has credentials of its own.
OUT = frozenset({ErrorClass.ROUTE_REJECTED})
#: An unclear answer puts out any route: a copy that may be on its way is not sent again there.
UNCLEAR = frozenset({ErrorClass.TIMEOUT_AFTER_SUBMIT})
#: One such answer puts the whole channel out.
CHANNEL_OUT = frozenset({ErrorClass.RECIPIENT_UNREACHABLE})
#: Codes of providers for a phone that cannot be reached: once it may be over in a moment, twice the channel is out.
AWAY = frozenset({30003})  # Twilio's
#: After these the same server may be taken again: they say nothing of it.
SERVER_STAYS = frozenset({ErrorClass.THROTTLED, ErrorClass.CONNECTION_REFUSED, ErrorClass.EXPIRED})


@dataclass(frozen=True, slots=True)
class Past:
    """One earlier attempt. `error_class` is None while nothing bad is known of it."""

    route: str
    channel: Channel
    server_id: int | None
    host_id: int | None
    error_class: ErrorClass | None
    is_alive: bool = False  # it may still deliver
    error_code: int | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """What a message's attempts leave: by name, by channel, and of a pool by row ids."""

    out: frozenset[str] = frozenset()  # routes that are not tried again
    last: frozenset[str] = frozenset()  # routes that are tried again only if no other can carry it
    channels: frozenset[Channel] = frozenset()  # that the recipient is not on
    servers: frozenset[int] = frozenset()  # that are not tried again
    hosts: frozenset[int] = frozenset()  # that others are preferred to
    used: frozenset[str] = frozenset()  # routes that it has been over
    is_alive: bool = False  # a copy may be on its way


NOWHERE = Tried()


def tried(attempts: Iterable[Past]) -> Tried:
    """In whatever order they are given."""
    attempts = list(attempts)
    away = Counter(each.channel for each in attempts if each.error_code in AWAY)
    failures = Counter((each.route, each.error_class) for each in attempts)
    return Tried(
        out=frozenset(each.route for each in attempts if _is_out(each)),
        last=frozenset(
            route
            for (route, error), count in failures.items()
            if error is not None and count >= LAST_AFTER.get(error, count + 1)
        ),
        channels=frozenset(
            each.channel for each in attempts if each.error_class in CHANNEL_OUT or away[each.channel] > 1
        ),
        servers=frozenset(
            each.server_id for each in attempts if each.server_id is not None and each.error_class not in SERVER_STAYS
        ),
        hosts=frozenset(each.host_id for each in attempts if each.host_id is not None),
        used=frozenset(each.route for each in attempts),
        is_alive=any(each.is_alive for each in attempts),
    )


def last_error(attempts: Sequence[Past]) -> ErrorClass | None:
    """What came of the newest, the last one of them: it says why a message ends that no route is left for."""
    newest = attempts[-1]
    is_away = newest.error_code in AWAY and newest.channel in tried(attempts).channels
    return ErrorClass.RECIPIENT_UNREACHABLE if is_away else newest.error_class


def _is_out(past: Past) -> bool:
    return past.error_class in UNCLEAR or (past.error_class in OUT and past.server_id is None)
