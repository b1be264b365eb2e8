"""Settings of sender health: what they give by default, and what the system checks refuse."""

from __future__ import annotations

import datetime as dt

import pytest
from django.core.checks import run_checks
from pytest_django import Settings

from servers import rules
from servers.checks import check_host_offline_after, check_ladders, check_storm_shares
from servers.groups import default_policy


def test_as_shipped_the_settings_give_the_figures_of_the_rules() -> None:
    assert default_policy() == rules.Policy()


def test_each_setting_reaches_the_rules(settings: Settings) -> None:
    settings.FAILED_IN_ROW = 3
    settings.COOLDOWN_LADDER = "five_step"
    settings.SEND_INTERVAL_MINUTES = (1.0, 2.0)
    settings.RESET_RULE = "either"
    settings.RESET_DELIVERIES = 5
    settings.RESET_DELIVERIES_PREHEATING = 1
    settings.RESET_WINDOW = dt.timedelta(hours=1)
    settings.WARMUP_MIN_MARGIN = dt.timedelta(minutes=1)
    settings.LONG_COOLDOWN_MINUTES = 50
    settings.WARMUP_AFTER_LONG_MINUTES = (15, 16)
    settings.WARMUP_AFTER_SHORT_MINUTES = (3, 4)
    settings.WARMUP_LEAD = dt.timedelta(minutes=70)
    settings.WARMUP_PROOF_WINDOW = dt.timedelta(hours=2)
    settings.VERDICT_DELAY = dt.timedelta(minutes=2)
    settings.EXTENSION_MINUTES = (5, 6)
    settings.MAX_EXTENSIONS = 1
    settings.FAIL_OPEN_LIMIT = 5
    settings.PREHEAT_PACE = 0.5
    settings.HEALTH_SPEED = 60
    assert default_policy() == rules.Policy(
        threshold=3,
        ladder=rules.LADDERS["five_step"],
        send_interval=(1.0, 2.0),
        reset_rule=rules.ResetRule.EITHER,
        reset_deliveries=5,
        reset_deliveries_preheating=1,
        reset_window=dt.timedelta(hours=1),
        warmup_min_margin=dt.timedelta(minutes=1),
        long_cooldown=50,
        warmup_after_long=(15, 16),
        warmup_after_short=(3, 4),
        warmup_lead=dt.timedelta(minutes=70),
        proof_window=dt.timedelta(hours=2),
        verdict_delay=dt.timedelta(minutes=2),
        extension=(5, 6),
        max_extensions=1,
        fail_open_limit=5,
        preheat_pace=0.5,
        minute=dt.timedelta(seconds=1),
    )


def test_as_shipped_the_checks_find_nothing() -> None:
    assert [message for message in run_checks() if message.id and message.id.startswith("servers.")] == []


@pytest.mark.parametrize("ladder", [(), ((120, 60),)], ids=["empty", "inverted"])
def test_a_ladder_that_cannot_be_climbed_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, ladder: rules.Ladder
) -> None:
    monkeypatch.setitem(rules.LADDERS, "five_step", ladder)
    (message,) = check_ladders()
    assert message.id == "servers.E001"
    assert "five_step" in message.msg
    assert message.hint


def test_a_ladder_that_does_not_exist_is_refused_with_those_that_do(settings: Settings) -> None:
    settings.COOLDOWN_LADDER = "six_step"
    (message,) = check_ladders()
    assert message.id == "servers.E002"
    assert "five_step, standard" in (message.hint or "")


@pytest.mark.parametrize("steps", ["", "120-60", "0-10"])
def test_steps_that_cannot_be_climbed_are_refused(settings: Settings, steps: str) -> None:
    settings.COOLDOWN_LADDER = steps
    assert [message.id for message in check_ladders()] == ["servers.E002"]


def test_a_ladder_may_be_written_out(settings: Settings) -> None:
    settings.COOLDOWN_LADDER = "10-20, 30-30"
    assert check_ladders() == []
    assert default_policy().ladder == ((10, 20), (30, 30))


@pytest.mark.parametrize(("off", "refused"), [(0.29, False), (0.3, True)])
def test_a_storm_must_not_end_before_it_begins(settings: Settings, off: float, refused: bool) -> None:
    settings.STORM_ON_SHARE, settings.STORM_OFF_SHARE = 0.3, off
    assert [message.id for message in check_storm_shares()] == (["servers.E004"] if refused else [])


@pytest.mark.parametrize(("seconds", "refused"), [(10, True), (11, False), (90, False)])
def test_hosts_that_are_alive_must_not_look_offline(settings: Settings, seconds: int, refused: bool) -> None:
    settings.HOST_OFFLINE_AFTER = dt.timedelta(seconds=seconds)
    assert [message.id for message in check_host_offline_after()] == (["servers.E003"] if refused else [])
