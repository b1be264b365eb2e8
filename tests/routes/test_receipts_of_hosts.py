"""What a host reports about its own attempts, and about those of others."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from structlog.testing import capture_logs

from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState
from otp_service.events.models import Event
from otp_service.messages.models import Attempt
from otp_service.routes.models import OrphanReceipt
from otp_service.routes.receipts import STATES, apply_host_receipts
from servers.models import Server
from tests.factories import NOON, HostFactory
from tests.routes.steps import ACCEPTED, SECOND, attempt_of, events_of, host_of, in_flight, settled

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("state", "attempt", "message"),
    [
        (ReportedState.QUEUED, "accepted", "submitted"),
        (ReportedState.SENT, "sent", "submitted"),
        (ReportedState.DELIVERED, "delivered", "delivered"),
        (ReportedState.FAILED, "failed", "queued"),
        (ReportedState.NEVER, "not_submitted", "queued"),
        (ReportedState.UNKNOWN, "submitting", "sending"),
        (ReportedState.NOT_FOUND, "submitting", "sending"),
    ],
)
def test_each_state_has_its_effect(state: ReportedState, attempt: str, message: str) -> None:
    (one,) = in_flight()
    fault = ErrorClass.SENDER_FAULT if attempt in {"failed", "not_submitted"} else None
    apply_host_receipts(host_of(one).host_id, [Receipt(state, one.send.attempt_uuid, error_class=fault)], now=NOON)
    stands = attempt_of(one)
    assert (stands.state, stands.message.status) == (attempt, message)


def test_every_state_is_thought_of() -> None:
    assert set(ReportedState) - set(STATES) == {ReportedState.UNKNOWN, ReportedState.NOT_FOUND}


@pytest.mark.parametrize("by_guid", [False, True], ids=["by our id", "by its own id"])
def test_another_hosts_receipts_change_nothing(by_guid: bool) -> None:
    (one,) = in_flight()
    settled(one, ACCEPTED)
    Attempt.objects.filter(pk=one.attempt_id).update(provider_message_id="guid-1")
    stranger = HostFactory.create()
    ids: tuple[Any, str] = (None, "guid-1") if by_guid else (one.send.attempt_uuid, "")
    with capture_logs() as logs:
        for state in (ReportedState.DELIVERED, ReportedState.FAILED, ReportedState.SENT):
            assert apply_host_receipts(stranger.pk, [Receipt(state, *ids)], now=NOON) == 0
        assert apply_host_receipts(stranger.pk, [Receipt(None, *ids, read=True)], now=NOON) == 0
    attempt = attempt_of(one)
    assert (attempt.state, attempt.read_at, attempt.message.status) == ("accepted", None, "submitted")
    assert events_of(attempt.message) == ["message.submitted"]
    assert OrphanReceipt.objects.count() == (4 if by_guid else 0)
    assert [log["event"] for log in logs] == ([] if by_guid else ["receipt_for_nothing"] * 4)


def test_a_strangers_id_does_not_hide_a_known_one() -> None:
    one, other = in_flight(2)
    settled(one, ACCEPTED)
    Attempt.objects.filter(pk=one.attempt_id).update(provider_message_id="guid-1")
    receipt = Receipt(ReportedState.DELIVERED, other.send.attempt_uuid, "guid-1")
    apply_host_receipts(host_of(one).host_id, [receipt], now=NOON)
    assert (attempt_of(one).state, attempt_of(other).state) == ("delivered", "submitting")


def test_the_first_id_of_an_attempt_stays() -> None:
    (one,) = in_flight()
    for guid in ("guid-1", "guid-2"):
        receipt = Receipt(ReportedState.SENT, one.send.attempt_uuid, guid)
        apply_host_receipts(host_of(one).host_id, [receipt], now=NOON)
    assert attempt_of(one).provider_message_id == "guid-1"


def test_a_service_that_is_named_at_length_is_cut() -> None:
    (one,) = in_flight()
    receipt = Receipt(ReportedState.SENT, one.send.attempt_uuid, service="carrier-pigeon-express")
    apply_host_receipts(host_of(one).host_id, [receipt], now=NOON)
    assert attempt_of(one).service == "carrier-pigeon-e"


def test_the_time_of_reading_is_kept_once_and_told_once(now: dt.datetime) -> None:
    (one,) = in_flight()
    settled(one, ACCEPTED)
    read = Receipt(None, one.send.attempt_uuid, read=True)
    assert apply_host_receipts(host_of(one).host_id, [read, read], now=now) == 1
    assert apply_host_receipts(host_of(one).host_id, [read], now=now + SECOND) == 0
    attempt = attempt_of(one)
    assert (attempt.read_at, attempt.state) == (now, "accepted")
    event = Event.objects.get(type="message.read")
    assert (event.subject_uuid, event.client_id) == (attempt.message.uuid, attempt.message.client_id)
    assert event.data == {"status": "submitted", "lane": "otp", "reference": ""}


def test_a_sent_message_is_asked_about_when_nothing_more_comes(now: dt.datetime, settings: Any) -> None:
    settings.RECEIPT_WAIT = 90 * SECOND
    (one,) = in_flight()
    apply_host_receipts(host_of(one).host_id, [Receipt(ReportedState.SENT, one.send.attempt_uuid)], now=now)
    attempt = attempt_of(one)
    assert (attempt.check_at, attempt.sent_at) == (now + 90 * SECOND, now)
    apply_host_receipts(
        host_of(one).host_id, [Receipt(ReportedState.DELIVERED, one.send.attempt_uuid)], now=now + SECOND
    )
    attempt = attempt_of(one)
    assert (attempt.check_at, attempt.sent_at, attempt.finished_at) == (None, now, now + SECOND)


def test_no_receipts_are_no_work() -> None:
    assert apply_host_receipts(1, [], now=NOON) == 0


@pytest.mark.parametrize("rewritten", [0, 1], ids=["the older row is stored last", "the newer row is stored last"])
def test_one_id_for_two_attempts_means_the_newer(rewritten: int) -> None:
    both = in_flight(2)
    older, newer = both
    server_id = Attempt.objects.values_list("server_id").filter(pk=newer.attempt_id)
    Server.objects.filter(pk__in=server_id).update(host_id=host_of(older).host_id)
    for one in (*both, both[rewritten]):  # PostgreSQL finds a row that got another id behind the others
        settled(one, ACCEPTED)
        for guid in ("guid-0", "guid-1"):
            Attempt.objects.filter(pk=one.attempt_id).update(provider_message_id=guid)
    receipt = Receipt(ReportedState.DELIVERED, provider_message_id="guid-1")
    assert apply_host_receipts(host_of(older).host_id, [receipt], now=NOON) == 1
    assert (attempt_of(older).state, attempt_of(newer).state) == ("accepted", "delivered")
