"""`create_host` and `create_server`: what they make can work, and what cannot work is refused with a sentence."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import time_machine
from django.core.management import CommandError, call_command
from django.test import Client

from otp_service.core.clock import utc_now
from otp_service.core.signing import signature_headers
from servers import creation, selection
from servers.models import Host, Server, ServerStatusHistory
from servers.rules import Event, Status
from tests.factories import NOON, HostFactory, ServerFactory
from tests.webhooks.relay_poster import event

pytestmark = pytest.mark.django_db

SERVER = {"region": "es", "unit": "5", "host_number": "7", "handle": "+34600123456"}


def run(*command: object) -> tuple[str, str]:
    """What it wrote to its two streams."""
    out, err = io.StringIO(), io.StringIO()
    call_command(*map(str, command), stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def printed(out: str, name: str) -> str:
    """The word after `name`."""
    words = out.split()
    return words[words.index(name) + 1]


def test_a_host_signs_with_the_secret_that_is_printed_and_posts_where_it_is_told(client: Client) -> None:
    out, err = run("create_host", 7, "https://relay.example/h/", "--name", "Attic")
    host = Host.objects.get()
    assert (host.number, host.name, host.base_url) == (7, "Attic", "https://relay.example/h")
    assert (host.enabled, host.last_seen_at, err) == (True, None, "")
    assert (printed(out, "secret"), printed(out, "webhooks")) == (host.secret, "/webhooks/relay/7/")
    heartbeat = json.dumps(event("heartbeat", unit=None)).encode()
    headers = signature_headers([printed(out, "secret")], message_id="m", now=utc_now(), body=heartbeat)
    client.post("/webhooks/relay/7/", heartbeat, content_type="application/json", headers=headers)
    host.refresh_from_db()
    assert host.last_seen_at is not None


def test_every_host_gets_a_secret_of_its_own() -> None:
    secrets = {printed(run("create_host", number, "http://relay.example")[0], "secret") for number in range(1, 6)}
    assert len(secrets) == 5


@pytest.mark.parametrize(
    "base_url",
    [
        "relay.example",
        "ftp://relay.example",
        "https://",
        "https:///path",
        "https://[::1",
        "https://relay.example/?a=b",
        "https://relay.example/#a",
        "https://no spaces.example",
        f"https://relay.example/{'a' * 500}",
    ],
)
def test_an_address_that_nobody_can_call_is_refused(base_url: str) -> None:
    with pytest.raises(CommandError, match=r"(?i)base_url"):
        run("create_host", 7, base_url)
    assert not Host.objects.exists()


@pytest.mark.parametrize(
    "base_url", ["http://10.0.0.5:8080", "https://[::1]:8443/hosts/7", "http://localhost:8900/hosts/7"]
)
def test_an_address_in_a_private_network_is_fine(base_url: str) -> None:
    run("create_host", 7, base_url)
    assert Host.objects.get().base_url == base_url


def test_a_number_that_is_taken_is_refused_and_its_host_keeps_its_secret() -> None:
    host = HostFactory.create(number=7)
    with pytest.raises(CommandError, match="There is a host 7 already"):
        run("create_host", 7, "https://relay.example")
    assert Host.objects.get().secret == host.secret


@pytest.mark.parametrize("number", [2**31, 2**63])
def test_a_number_that_the_database_cannot_hold_is_refused(number: int) -> None:
    with pytest.raises(CommandError, match="number: "):
        run("create_host", number, "https://relay.example")


@time_machine.travel(NOON, tick=False)
def test_a_server_may_send_at_once_and_its_history_says_since_when() -> None:
    HostFactory.create(number=7)
    out, err = run("create_server", *SERVER.values(), "--name", "Fifth")
    server = Server.objects.get()
    assert (server.region, server.unit, server.host.number, server.name) == ("es", 5, 7, "Fifth")
    assert (server.handle, server.status, server.next_send_date) == ("+34600123456", Status.ACTIVE, NOON)
    assert selection.may_send(now=NOON) == 1
    row = ServerStatusHistory.objects.get()
    assert (row.server, row.event, row.at) == (server, Event.MARKED_ACTIVE, NOON)
    assert row.data == {"old": {"status": "new"}, "new": {"status": "active"}}
    assert str(server.uuid) in out
    assert err == ""


def test_servers_that_are_made_together_take_turns_by_chance() -> None:
    HostFactory.create(number=7)
    for unit in range(1, 5):
        run("create_server", "es", unit, 7, f"+3460000000{unit}")
    assert len(set(Server.objects.values_list("tie", flat=True))) == 4


@pytest.mark.parametrize(
    ("handle", "stored"),
    [
        ("+34 600 123 456", "+34600123456"),
        ("0034600123456", "+34600123456"),
        ("sender@relay.example", "sender@relay.example"),
    ],
)
def test_a_handle_is_a_number_or_an_e_mail_address(handle: str, stored: str) -> None:
    HostFactory.create(number=7)
    run("create_server", *(SERVER | {"handle": handle}).values())
    assert Server.objects.get().handle == stored


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        pytest.param({"handle": "600123456"}, "HANDLE: It is neither.*international form", id="a national number"),
        pytest.param({"handle": "+3460012"}, "HANDLE: It is neither.*No such number", id="a short number"),
        pytest.param({"handle": "sender@"}, "HANDLE: It has an @", id="half an e-mail address"),
        pytest.param(
            {"handle": f"a@{'b' * 60}.{'c' * 60}.{'d' * 60}.{'e' * 60}.{'f' * 9}.com"}, "(?i)handle", id="long"
        ),
        pytest.param({"region": "es_madrid"}, "region: .*8 characters", id="a region of nine letters"),
        pytest.param({"region": ""}, "region: ", id="no region"),
        pytest.param({"unit": str(2**31)}, "unit: ", id="a unit that the database cannot hold"),
        pytest.param({"host_number": "8"}, "There is no host 8: create_host makes one", id="no such host"),
    ],
)
def test_a_server_that_could_not_work_is_refused(wrong: dict[str, str], sentence: str) -> None:
    HostFactory.create(number=7)
    with pytest.raises(CommandError, match=sentence):
        run("create_server", *(SERVER | wrong).values())
    assert not Server.objects.exists()


@pytest.mark.parametrize(
    "where",
    [
        pytest.param({"region": "es"}, id="in its region"),
        pytest.param({"region": "pt", "here": True}, id="on its host"),
    ],
)
def test_a_unit_that_is_taken_is_refused(where: dict[str, Any]) -> None:
    host = HostFactory.create(number=7)
    other = host if where.pop("here", False) else HostFactory.create(number=8)
    ServerFactory.create(unit=5, host=other, **where)
    with pytest.raises(CommandError, match=rf"There is a unit 5 already: {where['region']} 5 on host {other.number}\."):
        run("create_server", *SERVER.values())
    assert Server.objects.count() == 1


def test_the_same_unit_in_another_region_on_another_host_is_fine() -> None:
    HostFactory.create(number=7)
    ServerFactory.create(unit=5, region="pt", host=HostFactory.create(number=8))
    run("create_server", *SERVER.values())
    assert Server.objects.count() == 2


def test_a_server_that_somebody_makes_at_the_same_moment_is_refused_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ServerFactory.create(unit=5, host=HostFactory.create(number=7))
    monkeypatch.setattr(creation, "_refuse_taken", lambda *_args: None)  # as if it had been looked for before
    with pytest.raises(CommandError, match="at this moment"):
        run("create_server", *SERVER.values())
    assert ServerStatusHistory.objects.count() == 0


def test_a_region_that_serves_no_number_is_made_with_a_warning() -> None:
    HostFactory.create(number=7)
    _, err = run("create_server", *(SERVER | {"region": "xx"}).values())
    assert "no number is served by the pool xx" in err
    assert Server.objects.get().region == "xx"
