"""STOP and START that people write back."""

from __future__ import annotations

import datetime as dt

import pytest

from otp_service.events.models import Event
from otp_service.messages.recipient_models import InvalidReport, Recipient
from otp_service.messages.recipients import (
    Preferences,
    note_answers,
    note_invalid,
    note_start,
    note_stop,
    preferences,
)
from otp_service.web.fields import recipient_hash

pytestmark = pytest.mark.django_db

NUMBER, OTHER = "+34600000000", "+34600000001"


def test_stop_and_start(now: dt.datetime) -> None:
    note_stop(NUMBER, now=now)
    assert preferences(NUMBER) == Preferences(stopped=True)
    note_start(NUMBER, now=now)
    assert preferences(NUMBER) == Preferences(stopped=False)


def test_each_change_leaves_an_event_and_a_repetition_none(now: dt.datetime) -> None:
    for _ in range(2):
        note_stop(NUMBER, now=now)
    for _ in range(2):
        note_start(NUMBER, now=now)
    told = [(e.data["by"], e.data["old"]["stopped"], e.data["new"]["stopped"]) for e in Event.objects.order_by("id")]
    assert told == [("recipient", False, True), ("recipient", True, False)]


def test_the_last_word_of_each_counts(now: dt.datetime) -> None:
    answers = [
        *((NUMBER, "Stop."), (OTHER, "stop"), (OTHER, "start"), (NUMBER, "who is this?")),
        ("ann@example.com", "stop"),
        ("12345", "stop"),
    ]
    note_answers(answers, now=now)
    assert (preferences(NUMBER).stopped, preferences(OTHER).stopped) == (True, False)
    assert Recipient.objects.count() == 2


def test_what_is_no_such_word_leaves_nothing(now: dt.datetime) -> None:
    note_answers([(NUMBER, "please stop"), (OTHER, "")], now=now)
    assert not Recipient.objects.exists()


def test_numbers_are_taken_by_ascending_hash(now: dt.datetime) -> None:
    note_answers([(f"+3460000000{digit}", "stop") for digit in range(8)], now=now)
    hashes = [bytes(row.recipient_hash) for row in Recipient.objects.order_by("id")]
    assert hashes == sorted(hashes)
    assert len(hashes) == 8


def test_a_number_that_answers_is_no_longer_taken_for_one_that_cannot_be(now: dt.datetime) -> None:
    note_invalid([(recipient_hash(NUMBER), "sms:a"), (recipient_hash(OTHER), "sms:a")], now=now)
    note_answers([(NUMBER, "stop"), (OTHER, "who is this?")], now=now)
    assert [bytes(report.recipient_hash) for report in InvalidReport.objects.all()] == [recipient_hash(OTHER)]
