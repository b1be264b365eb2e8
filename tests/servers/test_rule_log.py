"""A change of the figures of sender health is an Event."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from otp_service import settings as otp_settings
from otp_service.events.models import Event
from servers.rule_log import FIGURES, record_figures
from tests.racing import Racer


@pytest.mark.django_db
def test_the_figures_are_logged_once_and_again_when_one_of_them_differs(now: dt.datetime, settings: Any) -> None:
    assert record_figures(now=now)
    assert not record_figures(now=now)
    settings.FAILED_IN_ROW = 3
    settings.RELEASE_PAUSE = dt.timedelta(minutes=5)
    assert record_figures(now=now)
    first, second = Event.objects.order_by("id")
    assert first.type == second.type == "rules.changed"
    assert first.data["new"].keys() == set(FIGURES)
    assert second.data["old"] == {"FAILED_IN_ROW": 2, "RELEASE_PAUSE": 600}
    assert second.data["new"] == {"FAILED_IN_ROW": 3, "RELEASE_PAUSE": 300}


@pytest.mark.django_db
def test_texts_are_not_logged(now: dt.datetime, settings: Any) -> None:
    record_figures(now=now)
    assert settings.WARMUP_TEXTS[0] not in str(Event.objects.get().data)


def test_every_setting_of_sender_health_is_a_figure_but_the_texts() -> None:
    source = Path(otp_settings.__file__).read_text()
    _, _, section = source.partition("# --- sender health")
    section, _, _ = section.partition("# --- dispatcher")
    names = set(re.findall(r"^([A-Z][A-Z0-9_]+) = ", section, re.MULTILINE))
    assert len(names) > 40
    assert names - {"WARMUP_TEXTS"} == set(FIGURES) - {"RECEIPT_WAIT"}


@pytest.mark.django_db(transaction=True)
def test_two_that_start_at_once_log_one_change(now: dt.datetime) -> None:
    with transaction.atomic():
        assert record_figures(now=now)
        second = Racer(lambda: record_figures(now=now))
        second.wait_until_blocked()
    assert second.result() is False
    assert Event.objects.count() == 1
