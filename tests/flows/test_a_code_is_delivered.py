"""A client posts a code; it is on the phone; the client can see it."""

from __future__ import annotations

import pytest

from tests.flows.conftest import Api, Fleet

pytestmark = pytest.mark.usefixtures("dispatching")


def test_a_code_is_delivered_once_and_the_client_sees_it(api: Api, fleet: Fleet) -> None:
    fleet.build()
    message_id = api.send()
    seen = api.ends(message_id)
    assert seen["status"] == "delivered"
    assert [str(send.attempt_id) for send in fleet.relay.sends(to="+34600000000")] == [seen["attempts"][0]["id"]]
    assert seen["attempts"][0]["state"] == "delivered"


def test_a_code_goes_through_another_host_when_the_first_server_is_dead(api: Api, fleet: Fleet) -> None:
    dead, *others = fleet.build()
    for server in others:
        server.next_send_date = server.next_send_date.replace(year=2027)
        server.save(update_fields=["next_send_date"])
    fleet.behave(dead, "dead")
    message_id = api.send()
    for server in others:
        server.next_send_date = server.next_send_date.replace(year=2020)
        server.save(update_fields=["next_send_date"])
    seen = api.ends(message_id)
    assert seen["status"] == "delivered"
