"""Settings of sender health: what they give by default, and what the system checks refuse."""

from __future__ import annotations

import datetime as dt

import pytest
from django.core.checks import run_checks
from pytest_django import Settings

from servers import rules
from servers.checks import check_host_offline_after, check_ladders
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
    assert default_policy() == rules.Policy(
        threshold=3,
        ladder=rules.LADDERS["five_step"],
        send_interval=(1.0, 2.0),
        reset_rule=rules.ResetRule.EITHER,
        reset_deliveries=5,
        reset_deliveries_preheating=1,
        reset_window=dt.timedelta(hours=1),
        warmup_min_margin=dt.timedelta(minutes=1),
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
    assert message.hint == "Set it to one of: five_step, standard."


@pytest.mark.parametrize(("seconds", "refused"), [(10, True), (11, False), (90, False)])
def test_hosts_that_are_alive_must_not_look_offline(settings: Settings, seconds: int, refused: bool) -> None:
    settings.HOST_OFFLINE_AFTER = dt.timedelta(seconds=seconds)
    assert [message.id for message in check_host_offline_after()] == (["servers.E003"] if refused else [])
