"""Why a route is not taken: each refusal at its exact edge, a yes and a no that differ in one thing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest

from otp_service.messages.rules import Channel, Lane, RefusalReason
from otp_service.routes.eligibility import Hours, Offer, Standing, Terms, Wanted, refusal, sender_of
from otp_service.routes.parts import Encoding, Measure
from otp_service.routes.route_rules import RouteKind, RouteSpec

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
ONE = Offer(RouteSpec("sms:one", Channel.SMS, RouteKind.TWILIO, sender_names=("ACME", "Shop")))
POOL = Offer(RouteSpec("imessage:es", Channel.IMESSAGE, RouteKind.IMESSAGE_POOL))
MESSAGE = Wanted(
    to="+34600000000",
    lane=Lane.OTP,
    channels=(Channel.IMESSAGE, Channel.SMS),
    pools=("es",),
    size=Measure(Encoding.GSM7, 1),
    expires_at=NOON + timedelta(minutes=5),
)

Changes = Mapping[str, Any]


def offer(base: Offer, changes: Changes) -> Offer:
    """`changes` by the part that they are of: spec, terms or standing."""
    return replace(base, **{part: replace(getattr(base, part), **values) for part, values in changes.items()})


def row(id: str, reason: str, yes: Changes, no: Changes, base: Offer = ONE, /, **wanted: Any) -> Any:  # noqa: A002 - pytest's word
    return pytest.param(reason, base, yes, no, wanted, id=id)


def standing(**values: Any) -> Changes:
    return {"standing": values}


def terms(**values: Any) -> Changes:
    return {"terms": values}


def spec(**values: Any) -> Changes:
    return {"spec": values}


NIGHT = Hours(time(22), time(6))


BY_ROUTE = [
    row("switched off", "disabled", spec(enabled=True), spec(enabled=False)),
    row("its lane", "lane", spec(lanes=frozenset({Lane.OTP})), spec(lanes=frozenset({Lane.PROMO}))),
    row("a country", "country", terms(prefixes=("+1", "+34")), terms(prefixes=("+1", "+351"))),
    row("a network", "country", terms(prefixes=("+346",)), terms(prefixes=("+347",))),
    row("a name of its own", "sender_name", spec(sender_names=("ACME",)), spec(sender_names=()), sender_name="ACME"),
    row("a name as written", "sender_name", spec(), spec(sender_names=("Acme",)), sender_name="ACME"),
    row("an encoding", "encoding", terms(encodings={Encoding.GSM7}), terms(encodings={Encoding.UCS2})),
    row("parts", "parts", terms(max_parts=2), terms(max_parts=1), size=Measure(Encoding.GSM7, 2)),
    row("time that is left", "ttl", terms(delivery=timedelta(minutes=5)), terms(delivery=timedelta(seconds=301))),
    row("taken out", "isolated", standing(isolated=False), standing(isolated=True)),
    row("a breaker", "breaker_open", standing(breaker_open=False), standing(breaker_open=True)),
    row("opens", "hours", terms(hours=Hours(time(12), time(13))), terms(hours=Hours(time(12, 1), time(13)))),
    row("closes", "hours", terms(hours=Hours(time(11), time(12, 1))), terms(hours=Hours(time(11), time(12)))),
    row("over midnight", "hours", terms(hours=Hours(time(13), time(12, 1))), terms(hours=NIGHT)),
    row("a region", "region", spec(), spec(name="imessage:pt"), POOL),
    row("a pool taken out", "isolated", standing(isolated=False), standing(isolated=True), POOL),
]


@pytest.mark.parametrize(("reason", "base", "yes", "no", "wanted"), BY_ROUTE)
def test_refuses(reason: str, base: Offer, yes: Changes, no: Changes, wanted: Changes) -> None:
    message = replace(MESSAGE, **wanted)
    assert refusal(offer(base, no), message, now=NOON) == reason
    assert refusal(offer(base, yes), message, now=NOON) is None


BY_MESSAGE = [
    pytest.param({"channels": (Channel.IMESSAGE,)}, "channel", id="a channel that nobody asked for"),
    pytest.param({"refused_channels": frozenset({Channel.SMS})}, "channel_refused", id="a channel that is refused"),
    pytest.param({"tried": frozenset({"sms:one"})}, "already_tried", id="where it has been"),
    pytest.param({"used": frozenset({"sms:two"}), "max_routes": 1}, "max_routes", id="one route too many"),
    pytest.param({"used": frozenset({"sms:one"}), "max_routes": 1}, None, id="the same route once more"),
    pytest.param({"used": frozenset({"sms:two"}), "max_routes": 2}, None, id="one more route"),
    pytest.param({"tried": frozenset({"sms:two"})}, None, id="where another has been"),
    pytest.param({"refused_channels": frozenset({Channel.IMESSAGE})}, None, id="another channel is refused"),
]


@pytest.mark.parametrize(("wanted", "reason"), BY_MESSAGE)
def test_refuses_by_what_the_message_says(wanted: Changes, reason: str | None) -> None:
    assert refusal(ONE, replace(MESSAGE, **wanted), now=NOON) == reason


def test_hours_are_those_of_utc() -> None:
    there = NOON.astimezone(tz=None)
    assert refusal(offer(ONE, terms(hours=Hours(time(12), time(13)))), MESSAGE, now=there) is None


@pytest.mark.parametrize(("at", "is_open"), [(time(22), True), (time(5, 59), True), (time(6), False)])
def test_hours_over_midnight(at: time, is_open: bool) -> None:
    assert NIGHT.hold(datetime.combine(NOON, at, UTC)) is is_open


def test_a_pool_has_neither_names_nor_parts_nor_encodings() -> None:
    strict = offer(POOL, terms(max_parts=1, encodings={Encoding.GSM7}))
    wanted = replace(MESSAGE, sender_name="ACME", size=Measure(Encoding.UCS2, 5))
    assert refusal(strict, wanted, now=NOON) is None
    assert sender_of(strict.spec, wanted.sender_name) == ""


@pytest.mark.parametrize(("asked", "sent"), [("", "ACME"), ("Shop", "Shop")])
def test_the_first_name_is_used_where_none_is_asked_for(asked: str, sent: str) -> None:
    assert sender_of(ONE.spec, asked) == sent


def test_without_names_the_provider_has_its_own() -> None:
    assert sender_of(replace(ONE.spec, sender_names=()), "") == ""


def test_what_never_passes_is_named_before_what_does() -> None:
    slow = {"terms": {"delivery": timedelta(hours=1)}, "standing": {"breaker_open": True}}
    busy = offer(ONE, {"spec": {"enabled": False}, **slow})
    assert refusal(busy, MESSAGE, now=NOON) is RefusalReason.DISABLED
    late = offer(ONE, slow)
    assert refusal(late, MESSAGE, now=NOON) is RefusalReason.TTL


def test_every_reason_can_be_given() -> None:
    shown = {row.values[0] for row in BY_ROUTE} | {row.values[1] for row in BY_MESSAGE}
    of_others = {RefusalReason.QUIET_HOURS, RefusalReason.NO_CAPACITY}  # of a recipient; of the moment of the claim
    assert shown - {None} == set(RefusalReason) - of_others


def test_neither_number_nor_credentials_are_shown() -> None:
    secret = offer(ONE, spec(credentials={"auth_token": "open sesame"}))
    assert "600000" not in repr(MESSAGE)
    assert "sesame" not in repr(secret)


def test_terms_are_those_of_any_route_by_default() -> None:
    assert refusal(Offer(ONE.spec, Terms(), Standing()), MESSAGE, now=NOON) is None
