"""A client posts a code; it is on the phone once, whatever the server it goes through does; the client can see it."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from otp_service.core.clock import utc_now
from otp_service.messages.models import Attempt
from servers.models import Server, ServerStatusHistory
from servers.rules import Event
from tests.deadline import eventually
from tests.flows.conftest import Api, Fleet

pytestmark = pytest.mark.usefixtures("dispatching")

NUMBER = "+34600000000"


def test_a_code_is_delivered_once_and_the_client_sees_it(api: Api, fleet: Fleet) -> None:
    fleet.build()
    seen = api.ends(api.send())
    assert seen["status"] == "delivered"
    assert [attempt["state"] for attempt in seen["attempts"]] == ["delivered"]
    assert [str(send.attempt_id) for send in fleet.relay.sends(to=NUMBER)] == [seen["attempts"][0]["id"]]


@pytest.fixture
def only_this_one_first(fleet: Fleet) -> Any:
    """Two hosts of two servers each; all but the first rest until they are let go."""

    def build() -> tuple[Server, Any]:
        first, *others = fleet.build(servers_per_host=2)
        rest = Server.objects.filter(id__in=[server.id for server in others])
        rest.update(next_send_date=utc_now() + dt.timedelta(days=1))
        return first, lambda: rest.update(next_send_date=utc_now() - dt.timedelta(minutes=1))

    return build


def test_a_code_goes_through_another_host_when_the_first_server_is_dead(
    api: Api, fleet: Fleet, only_this_one_first: Any
) -> None:
    dead, let_the_others_go = only_this_one_first()
    fleet.behave(dead, "dead")
    message_id = api.send()
    eventually(lambda: Attempt.objects.filter(server=dead, state="failed").exists())
    let_the_others_go()
    seen = api.ends(message_id)
    assert [attempt["state"] for attempt in seen["attempts"]] == ["failed", "delivered"]
    assert Attempt.objects.get(number=2).server.host_id != dead.host_id  # type: ignore[union-attr]  # it has one
    assert len(fleet.relay.sends(to=NUMBER)) == 1
    assert list(ServerStatusHistory.objects.values_list("server", "event")) == [(dead.id, Event.SEND_FAILED)]


@pytest.mark.parametrize(
    ("behaviour", "parameters"),
    [
        ("reports_twice", {}),
        ("reports_out_of_order", {}),
        ("reports_before_answering", {}),
        ("error_500_after_sending", {}),
        ("drops_webhooks", {"p": 1.0}),
        ("slow", {"seconds": 0.5}),
        ("falls_back_to_sms", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_copy_is_sent_however_the_server_reports(
    api: Api, fleet: Fleet, behaviour: str, parameters: dict[str, Any], settings: Any
) -> None:
    settings.RECEIPT_WAIT = dt.timedelta(seconds=0.5)
    for server in fleet.build():
        fleet.behave(server, behaviour, **parameters)
    seen = api.ends(api.send())
    assert seen["status"] == "delivered"
    assert [str(send.attempt_id) for send in fleet.relay.sends(to=NUMBER)] == [seen["attempts"][0]["id"]]
    assert not ServerStatusHistory.objects.filter(event=Event.SEND_FAILED).exists()


def test_what_may_have_been_sent_is_not_sent_again_when_the_host_cannot_say(
    api: Api, fleet: Fleet, settings: Any
) -> None:
    settings.RECEIPT_WAIT = dt.timedelta(seconds=0.5)
    for server in fleet.build():
        fleet.behave(server, "accepts_and_never_reports")
    message_id = api.send()
    counted = ServerStatusHistory.objects.filter(event=Event.SEND_FAILED)
    eventually(lambda: counted.count() == 1)  # the host was there, took it, and has no outcome
    assert counted.get().data["reason"] == "timeout_125"
    seen = api.get(message_id).body
    assert (seen["status"], seen["finished_at"], len(seen["attempts"])) == ("submitted", None, 1)
    assert len(fleet.relay.sends(to=NUMBER)) == 1


def test_a_signed_out_server_is_not_chosen(api: Api, fleet: Fleet) -> None:
    signed_out, *_ = fleet.build(hosts=1, servers_per_host=2)
    fleet.behave(signed_out, "signed_out")
    eventually(lambda: not Server.objects.get(id=signed_out.id).signed_in)
    Server.objects.exclude(id=signed_out.id).update(next_send_date=utc_now())  # the other one is used more lately
    seen = api.ends(api.send())
    assert seen["status"] == "delivered"
    assert Attempt.objects.get().server_id != signed_out.id


def test_failures_in_a_row_put_a_server_into_cooldown(api: Api, fleet: Fleet) -> None:
    servers = fleet.build(hosts=1, servers_per_host=1)
    fleet.behave(servers[0], "dead")
    first = api.send(max_attempts=1)
    assert api.ends(first)["reason"] == "attempts_exhausted"
    assert api.ends(api.send(max_attempts=1))["status"] == "failed"
    dead = Server.objects.get()
    assert (dead.failed_in_row, dead.cooldown, dead.cooldown_times) == (2, True, 1)
    events = list(ServerStatusHistory.objects.order_by("id").values_list("event", flat=True))
    assert events == [Event.SEND_FAILED, Event.SEND_FAILED, Event.COOLDOWN_STARTED]
