"""What each event of a relay host does."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from otp_service.events.models import Event
from otp_service.routes.models import OrphanReceipt
from servers.models import Host, Server, ServerStatusHistory
from servers.rules import Event as ServerEvent
from tests.factories import ServerFactory
from tests.routes.steps import ACCEPTED, attempt_of, events_of, message_of, settled
from tests.webhooks.relay_poster import RelayPoster, about, event
from webhooks.inbound.models import RawCall, RelayEvent

PAYLOADS = sorted(Path(__file__).parent.joinpath("payloads", "native").glob("*.json"))


def test_a_success_makes_an_attempt_sent_and_keeps_its_id(poster: RelayPoster, now: dt.datetime) -> None:
    (one,) = poster.in_flight()
    settled(one, ACCEPTED)
    sent = event("message_sent", **about(one), guid="guid-1", success=True, service="iMessage")
    assert poster.posts(sent).counts == (1, 0)
    attempt = attempt_of(one)
    assert (attempt.state, attempt.provider_message_id, attempt.service) == ("sent", "guid-1", "imessage")
    assert (attempt.sent_at, attempt.message.status) == (now, "submitted")


@dataclass(frozen=True)
class Failure:
    """A code that a host reports, and what follows: for the attempt, its message and its server."""

    code: int | None
    kept: int
    error_class: str
    message: str
    counted: int


@pytest.mark.parametrize(
    ("kind", "data"), [("message_sent", {"success": False}), ("message_failed", {"detail": "no luck"})]
)
@pytest.mark.parametrize(
    "failure",
    [
        Failure(120, 120, "sender_fault", "queued", 1),
        Failure(125, 125, "sender_fault", "queued", 1),
        Failure(130, 130, "sender_fault", "queued", 1),
        Failure(22, 22, "recipient_unreachable", "queued", 0),
        Failure(140, 140, "throttled", "waiting", 0),
        Failure(4711, 4711, "sender_fault", "queued", 1),
        Failure(None, 125, "sender_fault", "queued", 1),
    ],
    ids=lambda failure: str(failure.code),
)
def test_a_failure_ends_an_attempt_by_its_code(
    poster: RelayPoster, kind: str, data: dict[str, Any], failure: Failure
) -> None:
    (one,) = poster.in_flight()
    settled(one, ACCEPTED)
    poster.posts(event(kind, **about(one), error_code=failure.code, **data))
    attempt = attempt_of(one)
    assert (attempt.state, attempt.error_class, attempt.error_code) == ("failed", failure.error_class, failure.kept)
    assert attempt.message.status == failure.message
    assert attempt.server is not None
    assert attempt.server.failed_in_row == failure.counted
    rows = attempt.server.history.filter(event=ServerEvent.SEND_FAILED).values_list("data__reason", flat=True)
    assert list(rows) == [kind] * failure.counted


@pytest.mark.parametrize("by_guid", [False, True], ids=["by our id", "by its own id"])
def test_a_delivery_ends_the_message(poster: RelayPoster, now: dt.datetime, by_guid: bool) -> None:
    (one,) = poster.in_flight()
    Server.objects.update(failed_in_row=1)
    poster.posts(event("message_sent", **about(one), guid="guid-1", success=True))
    name: dict[str, Any] = {"guid": "guid-1"} if by_guid else about(one)
    assert poster.posts(event("delivered", **name, service="sms")).counts == (1, 0)
    attempt = attempt_of(one)
    assert (attempt.state, attempt.service, attempt.finished_at) == ("delivered", "sms", now)
    assert (attempt.message.status, attempt.message.finished_at) == ("delivered", now)
    assert attempt.server is not None
    assert attempt.server.failed_in_row == 0
    assert attempt.server.deliveries.count() == 1
    assert events_of(attempt.message) == ["message.submitted", "message.delivered"]


def test_reading_is_kept(poster: RelayPoster, now: dt.datetime) -> None:
    (one,) = poster.in_flight()
    poster.posts(event("message_sent", **about(one), guid="guid-1", success=True))
    poster.posts(event("read", guid="guid-1"))
    assert attempt_of(one).read_at == now
    assert events_of(message_of(one)) == ["message.submitted", "message.read"]


def test_what_came_before_its_attempts_acceptance_is_not_lost(poster: RelayPoster) -> None:
    (one,) = poster.in_flight()
    poster.posts(event("delivered", guid="guid-1"))
    assert OrphanReceipt.objects.count() == 1
    poster.posts(event("message_sent", **about(one), guid="guid-1", success=True))
    settled(one, ACCEPTED)
    assert (attempt_of(one).state, message_of(one).status) == ("delivered", "delivered")


def test_what_can_change_nothing_any_more_is_accepted(poster: RelayPoster) -> None:
    (one,) = poster.in_flight()
    name = about(one)
    poster.posts(event("delivered", **name))
    assert poster.posts(event("message_sent", **name, success=True)).counts == (1, 0)
    assert poster.posts(event("message_failed", **name, error_code=120)).counts == (1, 0)
    assert (attempt_of(one).state, message_of(one).status) == ("delivered", "delivered")


def test_what_is_about_nothing_of_ours_is_accepted(poster: RelayPoster) -> None:
    strange = event("delivered", attempt_id="0b8f7d0e-3c7a-4a2e-9a55-6f1d2c3b4a59")
    assert poster.posts(strange).counts == (1, 0)
    assert not OrphanReceipt.objects.exists()


def test_a_unit_that_signs_out_is_written_down_once(poster: RelayPoster, now: dt.datetime) -> None:
    server = ServerFactory.create(host=poster.host, unit=31)
    same_unit_elsewhere = ServerFactory.create(region="zp", unit=31)
    for _ in range(2):
        assert poster.posts(event("unit_status", unit=31, signed_in=False, detail="kicked")).counts == (1, 0)
    server.refresh_from_db()
    same_unit_elsewhere.refresh_from_db()
    assert (server.signed_in, same_unit_elsewhere.signed_in) == (False, True)
    row = ServerStatusHistory.objects.get()
    assert (row.server_id, row.event) == (server.pk, 120)
    assert row.data == {
        "old": {"signed_in": True, "signed_out_at": None},
        "new": {"signed_in": False, "signed_out_at": now.isoformat()},
    }
    poster.posts(event("unit_status", unit=31, signed_in=True))
    server.refresh_from_db()
    assert server.signed_in
    assert ServerStatusHistory.objects.count() == 2


def test_the_status_of_a_unit_that_we_do_not_have_is_accepted(poster: RelayPoster) -> None:
    assert poster.posts(event("unit_status", unit=99, signed_in=False)).counts == (1, 0)
    assert not ServerStatusHistory.objects.exists()


def test_the_last_word_about_a_unit_in_a_list_stands(poster: RelayPoster) -> None:
    server = ServerFactory.create(host=poster.host, unit=31)
    words = [event("unit_status", unit=31, signed_in=signed_in) for signed_in in (False, True, False)]
    assert poster.posts(words).counts == (3, 0)
    server.refresh_from_db()
    assert not server.signed_in
    assert ServerStatusHistory.objects.count() == 3


def test_a_list_reaches_a_server_in_its_order(poster: RelayPoster) -> None:
    (first,) = poster.in_flight()
    failed = event("message_failed", **about(first), error_code=120)
    delivered = event("delivered", **about(first))
    poster.posts([failed, delivered])
    server = attempt_of(first).server
    assert server is not None
    assert list(server.history.order_by("id").values_list("event", flat=True)) == [
        ServerEvent.SEND_FAILED,
        ServerEvent.COUNTERS_RESET,
    ]


def test_a_sign_out_and_a_failure_in_one_list_both_count(poster: RelayPoster) -> None:
    (one,) = poster.in_flight()
    unit = attempt_of(one).server
    assert unit is not None
    other = ServerFactory.create(host=poster.host)
    failed = event("message_failed", **about(one), error_code=130, unit=unit.unit)
    signed_out = [event("unit_status", unit=server.unit, signed_in=False) for server in (other, unit)]
    assert poster.posts([failed, *signed_out]).counts == (3, 0)
    unit.refresh_from_db()
    other.refresh_from_db()
    assert (unit.signed_in, unit.failed_in_row, other.signed_in) == (False, 1, False)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("heartbeat", {"queue": 3, "version": "1.2"}),
        ("inbound", {"from": "+34600000001", "to": "a@example.org"}),
        ("typing_indicator", {}),
    ],
)
def test_every_call_shows_that_the_host_is_alive(
    poster: RelayPoster, now: dt.datetime, kind: str, data: dict[str, Any]
) -> None:
    Host.objects.update(last_seen_at=now - dt.timedelta(hours=1))
    assert poster.posts(event(kind, **data)).counts == (1, 0)
    assert Host.objects.get().last_seen_at == now


def test_an_event_of_a_type_that_we_do_not_know_is_kept(poster: RelayPoster) -> None:
    assert poster.posts(event("typing_indicator", chat=["a", {"b": None}])).counts == (1, 0)
    assert RelayEvent.objects.get().type == "typing_indicator"
    assert RawCall.objects.count() == 1
    assert not Event.objects.exists()


@pytest.mark.parametrize("path", PAYLOADS, ids=lambda path: path.stem)
def test_real_payloads_are_accepted(poster: RelayPoster, path: Path) -> None:
    document = json.loads(path.read_bytes())
    events = document if isinstance(document, list) else [document]
    assert poster.posts(path.read_bytes()).counts == (len(events), 0)


def test_another_hosts_attempt_cannot_be_moved(poster: RelayPoster) -> None:
    (one,) = poster.in_flight()
    stranger = RelayPoster(ServerFactory.create().host, poster.client)
    assert stranger.posts(event("delivered", **about(one))).counts == (1, 0)
    assert attempt_of(one).state == "submitting"
