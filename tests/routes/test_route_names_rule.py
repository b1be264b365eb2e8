"""What a route may be called, by its kind; what a simulated one may be told."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from otp_service.routes.route_rules import RouteKind, SimulatedAnswer, SimulatedOutcome, channel_of, simulated_answer

POOL, SIMULATED = RouteKind.IMESSAGE_POOL, RouteKind.SIMULATED


@pytest.mark.parametrize(
    ("kind", "name", "channel"),
    [
        (POOL, "imessage:es", "imessage"),
        (POOL, "imessage:region01", "imessage"),
        (SIMULATED, "sms:one", "sms"),
        (SIMULATED, "push:a-b_2", "push"),
        (SIMULATED, "voice:7", "voice"),
    ],
)
def test_reads_the_channel_of_a_name(kind: RouteKind, name: str, channel: str) -> None:
    assert channel_of(kind, name) == channel


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(POOL, "imessage:", id="no region"),
        pytest.param(POOL, "imessage:region012", id="a region of nine"),
        pytest.param(POOL, "imessage:e-s", id="a dash in a region"),
        pytest.param(POOL, "imessage:ES", id="upper case"),
        pytest.param(POOL, "imessage:es\n", id="a line break"),
        pytest.param(POOL, "sms:es", id="a pool for sms"),
        pytest.param(SIMULATED, "imessage:es", id="simulated iMessage"),
        pytest.param(SIMULATED, "sms:-one", id="a dash first"),
        pytest.param(SIMULATED, "sms:one two", id="a space"),
        pytest.param(SIMULATED, "sms:óne", id="a letter that is not ASCII"),
        pytest.param(SIMULATED, "sms", id="a channel alone"),
        pytest.param(SIMULATED, "fax:one", id="no channel of ours"),
        pytest.param(SIMULATED, "", id="nothing"),
    ],
)
def test_refuses_a_name_and_says_what_is_one(kind: RouteKind, name: str) -> None:
    with pytest.raises(ValueError, match="imessage: and its region" if kind is POOL else re.escape("as in sms:one")):
        channel_of(kind, name)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, SimulatedAnswer()),
        ({"latency_ms": 0}, SimulatedAnswer(latency=timedelta())),
        ({"latency_ms": 120_000}, SimulatedAnswer(latency=timedelta(minutes=2))),
        ({"timeout_ms": 1}, SimulatedAnswer(timeout=timedelta(milliseconds=1))),
        ({"outcome": "unknown"}, SimulatedAnswer(outcome=SimulatedOutcome.UNKNOWN)),
    ],
)
def test_reads_the_settings_of_a_simulated_route(settings: dict[str, Any], expected: SimulatedAnswer) -> None:
    assert simulated_answer(settings) == expected


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"latency_ms": -1}, "latency_ms must be .* from 0"),
        ({"latency_ms": 120_001}, "latency_ms must be .* to 120000"),
        ({"latency_ms": 1.5}, "latency_ms must be a whole number"),
        ({"latency_ms": True}, "latency_ms must be a whole number"),
        ({"latency_ms": None}, "latency_ms must be a whole number"),
        ({"latency_ms": "150"}, "latency_ms must be a whole number"),
        ({"timeout_ms": 0}, "timeout_ms must be .* from 1"),
        ({"outcome": "delivered"}, "outcome must be accepted or unknown"),
        ({"outcome": []}, "outcome must be accepted or unknown"),
        ({"latency": 5}, "Only latency_ms, timeout_ms and outcome"),
    ],
)
def test_says_which_setting_is_wrong(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        simulated_answer(settings)
