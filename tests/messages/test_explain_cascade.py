"""Why routes were passed over, and what becomes of a message in doubt, in sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from otp_service.messages.explain import explain
from otp_service.messages.rules import AttemptState, MessageStatus, OnUnknown, Reason, RefusalReason
from tests.messages.explained import BY, QUEUED, SUBMITTING, at, refused


def test_names_the_routes_that_were_passed_over_for_an_attempt() -> None:
    passed = {
        "sms:two": RefusalReason.BREAKER_OPEN,
        "imessage:zp": RefusalReason.DISABLED,
        "imessage:es": RefusalReason.DISABLED,
    }
    attempts = [refused(), replace(SUBMITTING, number=2, server="", route="sms:one", refusals=passed)]
    assert explain(replace(QUEUED, status=MessageStatus.SENDING), attempts, at(9))[2:4] == [
        "Not over imessage:es, imessage:zp: switched off; not over sms:two: too many failures of late.",
        "Attempt 2 over sms:one: it is being handed over.",
    ]


@pytest.mark.parametrize(
    ("status", "reason", "told"),
    [
        pytest.param(MessageStatus.WAITING, None, True, id="waiting"),
        pytest.param(MessageStatus.FAILED, Reason.NO_ROUTE, True, id="no route"),
        pytest.param(MessageStatus.EXPIRED, Reason.EXPIRED_UNSENT, True, id="expired unsent"),
        pytest.param(MessageStatus.EXPIRED, Reason.LATE_FIRST_ATTEMPT, True, id="expired before its first attempt"),
        pytest.param(MessageStatus.QUEUED, None, False, id="queued: looked at anew"),
        pytest.param(MessageStatus.EXPIRED, Reason.EXPIRED_UNCONFIRMED, False, id="it had a route"),
        pytest.param(MessageStatus.CANCELLED, Reason.CANCELLED, False, id="ended by its client"),
        pytest.param(MessageStatus.SENDING, None, False, id="it has a route"),
    ],
)
def test_says_why_no_route_took_a_message_that_wants_one(
    status: MessageStatus, reason: Reason | None, told: bool
) -> None:
    message = replace(QUEUED, status=status, reason=reason, refusals={"sms:one": RefusalReason.TTL})
    sentence = "Not over sms:one: delivery would come too late."
    assert (explain(message, [], at(9))[-2] == sentence) is told


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        pytest.param({}, True, id="queued"),
        pytest.param({"status": MessageStatus.WAITING, "refusals": {"sms:one": RefusalReason.TTL}}, True, id="waiting"),
        pytest.param({"status": MessageStatus.FAILED, "reason": Reason.NO_ROUTE}, True, id="ended for want of one"),
        pytest.param({"status": MessageStatus.DELIVERED}, False, id="delivered"),
        pytest.param({"without_route": ["voice"]}, False, id="a channel that it does not have"),
        pytest.param({"without_route": ["sms", "push"]}, False, id="none of its channels: its standing says so"),
    ],
)
def test_names_a_channel_that_has_no_route(fields: dict[str, Any], told: bool) -> None:
    message = replace(QUEUED, **{"channels": ["sms", "push"], "without_route": ["push"], **fields})
    assert ("No enabled route of channel push carries lane otp now." in explain(message, [], at(9))) is told


def test_a_race_is_told_where_it_began_and_where_it_went() -> None:
    unclear = replace(SUBMITTING, state=AttemptState.UNKNOWN)
    copy = replace(SUBMITTING, number=2, server="", route="sms:one", possible_duplicate=True)
    assert explain(replace(QUEUED, status=MessageStatus.SENDING), [unclear, copy], at(9))[1:3] == [
        BY
        + "it may or may not have been sent; it is not asked about any more; rather than wait, another copy was sent.",
        "Attempt 2 over sms:one, although an earlier copy may have left: it is being handed over.",
    ]


@pytest.mark.parametrize(
    ("on_unknown", "copies", "states", "sentence"),
    [
        pytest.param(
            OnUnknown.HOLD,
            1,
            [AttemptState.UNKNOWN],
            "Perhaps handed over: it is held until a report comes.",
            id="held",
        ),
        pytest.param(
            OnUnknown.RACE,
            1,
            [AttemptState.FAILED, AttemptState.UNKNOWN],
            "Perhaps handed over: another copy races it over another route if no report comes in time.",
            id="a race to come",
        ),
        pytest.param(
            OnUnknown.RACE,
            0,
            [AttemptState.UNKNOWN, AttemptState.UNKNOWN],
            "Perhaps handed over: no further copy may leave, so a report is waited for.",
            id="raced, and in doubt all the same",
        ),
        pytest.param(
            OnUnknown.RACE,
            1,
            [AttemptState.UNKNOWN, AttemptState.ACCEPTED],
            "Handed over: what is reported of it decides.",
            id="one was accepted",
        ),
    ],
)
def test_says_what_becomes_of_a_message_in_doubt(
    on_unknown: OnUnknown, copies: int, states: list[AttemptState], sentence: str
) -> None:
    message = replace(QUEUED, status=MessageStatus.SUBMITTED, on_unknown=on_unknown, copies_left=copies)
    assert explain(message, [replace(SUBMITTING, state=state) for state in states], at(9))[-1] == sentence
