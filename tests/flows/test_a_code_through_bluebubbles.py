"""A code goes through a BlueBubbles server; what became of it is asked at its Mac, and never believed of a post."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django.live_server_helper import LiveServer

from otp_service.core.clock import utc_now
from otp_service.messages.models import Attempt
from otp_service.routes import submissions
from otp_service.simulation.bluebubbles_host import Quirks
from servers.hosts import webhook_path
from servers.models import Host, Server
from tests.bluebubbles_thread import BlueBubblesThread
from tests.deadline import eventually
from tests.factories import HostFactory, ServerFactory
from tests.flows.conftest import Api, status_of
from tests.http import call

pytestmark = pytest.mark.usefixtures("dispatching")

NUMBER = "+34600000000"
UNIT, PASSWORD = 228, "p&ss w=rd"
NO_POSTS = Quirks(update_after=None)


@pytest.fixture
def server(transactional_db: None) -> Server:
    host = HostFactory.create(number=UNIT, protocol="bluebubbles", secret=PASSWORD, last_seen_at=utc_now())
    return ServerFactory.create(host=host, unit=UNIT, next_send_date=utc_now() - dt.timedelta(minutes=1))


@pytest.fixture
def mac(server: Server, live_server: LiveServer, quirks: Quirks) -> Iterator[BlueBubblesThread]:
    url = live_server.url + webhook_path(server.host)
    with BlueBubblesThread(number=UNIT, password=PASSWORD, webhook_url=url, quirks=quirks) as mac:
        Host.objects.filter(pk=server.host_id).update(base_url=mac.base_url)
        yield mac


def hint(live_server: LiveServer, server: Server, **data: Any) -> None:
    """Somebody who knows the address says that a message was delivered."""
    event = {"type": "updated-message", "data": {"isFromMe": True, "isDelivered": True, "error": 0, **data}}
    assert call("POST", live_server.url + webhook_path(server.host), event).status == 200


@pytest.mark.parametrize("quirks", [NO_POSTS])
def test_a_code_is_delivered_as_soon_as_a_post_hints_at_it(
    api: Api, mac: BlueBubblesThread, server: Server, live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submissions, "POLL_WAIT", dt.timedelta(minutes=10))
    message_id = api.send()
    attempt = eventually(lambda: Attempt.objects.exclude(provider_message_id="").first())
    assert attempt is not None
    mac.settle()
    hint(live_server, server, guid=attempt.provider_message_id)
    seen = api.ends(message_id)
    assert seen["status"] == "delivered"
    assert [str(send.attempt_id) for send in mac.sends(NUMBER)] == [seen["attempts"][0]["id"]]


@pytest.mark.parametrize("quirks", [NO_POSTS])
def test_a_code_is_delivered_where_every_post_is_lost(
    api: Api, mac: BlueBubblesThread, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submissions, "POLL_WAIT", dt.timedelta(milliseconds=200))
    settings.RECEIPT_WAIT = dt.timedelta(seconds=1)
    assert api.ends(api.send())["status"] == "delivered"


@pytest.mark.parametrize("quirks", [Quirks(answers_500_after_sending=True)])
def test_a_code_that_left_without_a_clear_answer_is_found_on_the_mac(api: Api, mac: BlueBubblesThread) -> None:
    seen = api.ends(api.send())
    assert [attempt["state"] for attempt in seen["attempts"]] == ["delivered"]
    assert len(mac.sends(NUMBER)) == 1


@pytest.mark.parametrize("quirks", [Quirks(signed_out=True)])
def test_a_forged_delivery_is_asked_about_and_not_believed(
    api: Api, mac: BlueBubblesThread, server: Server, live_server: LiveServer
) -> None:
    message_id = api.send()
    attempt = eventually(lambda: Attempt.objects.filter(state="unknown").first())
    assert attempt is not None
    eventually(lambda: Attempt.objects.get().checks_made > 0)
    Attempt.objects.update(check_at=utc_now() + dt.timedelta(minutes=10), checks_made=5)
    hint(live_server, server, guid=str(uuid.uuid4()), tempGuid=str(attempt.uuid))
    eventually(lambda: (asked := Attempt.objects.get().check_at) and asked < utc_now() + dt.timedelta(minutes=4))
    eventually(lambda: (asked := Attempt.objects.get().check_at) and asked > utc_now() + dt.timedelta(seconds=90))
    assert (Attempt.objects.get().state, Attempt.objects.get().provider_message_id) == ("unknown", "")
    assert status_of(message_id) == "submitted"
