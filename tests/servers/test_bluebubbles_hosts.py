"""Hosts that are BlueBubbles servers: made with a password, one unit with the host's number, and asked all the time."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pytest
import time_machine
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.test import Client

from otp_service.simulation.bluebubbles_host import Quirks
from scheduler import host_check
from servers.creation import CreationRefused, create_server
from servers.hosts import address_of, webhook_path
from servers.models import Host, Server
from servers.rules import RelayProtocol
from tests.bluebubbles_thread import BlueBubblesThread
from tests.factories import NOON, HostFactory, ServerFactory

pytestmark = pytest.mark.django_db

UNIT, PASSWORD = 4_000_228, "p&ss w=rd"
NEW = {"number": 7, "name": "Attic", "base_url": "https://mac.example", "protocol": "bluebubbles"}


def mac_host(**fields: Any) -> Host:
    return HostFactory.create(**{"number": UNIT, "protocol": "bluebubbles", "secret": PASSWORD, **fields})


def test_the_command_prints_the_password_and_the_address_to_post_to() -> None:
    out = io.StringIO()
    call_command("create_host", "7", "https://mac.example", "--protocol", "bluebubbles", stdout=out)
    host = Host.objects.get()
    assert host.protocol == "bluebubbles"
    assert out.getvalue().split()[:4] == ["secret", host.secret, "webhooks", webhook_path(host)]
    assert webhook_path(host).startswith("/webhooks/bluebubbles/7.")
    assert host.secret not in webhook_path(host)


def test_a_protocol_that_nobody_speaks_is_refused() -> None:
    with pytest.raises(CommandError, match="protocol"):
        call_command("create_host", "7", "https://mac.example", "--protocol", "morse")
    with pytest.raises(IntegrityError, match="host_protocol_known"), transaction.atomic():
        HostFactory.create(protocol="morse")


def test_its_address_says_what_it_speaks() -> None:
    assert address_of(mac_host(), now=NOON).protocol is RelayProtocol.BLUEBUBBLES
    assert address_of(HostFactory.create(), now=NOON).protocol is RelayProtocol.NATIVE


@pytest.mark.parametrize(("protocol", "fits"), [("bluebubbles", False), ("native", True)])
def test_its_one_unit_has_its_number(protocol: str, fits: bool) -> None:
    mac_host(protocol=protocol)
    if fits:
        create_server("es", UNIT + 1, UNIT, "+34600123456", now=NOON)
    else:
        with pytest.raises(CreationRefused, match=f"unit: A BlueBubbles host has one account.*{UNIT}"):
            create_server("es", UNIT + 1, UNIT, "+34600123456", now=NOON)
        create_server("es", UNIT, UNIT, "+34600123456", now=NOON)
    assert Server.objects.count() == 1


# --- the admin -----------------------------------------------------------------------------------------


def edit(host: Host, **changes: Any) -> Mapping[str, Any]:
    return {"number": host.number, "name": host.name, "base_url": host.base_url, "enabled": "on", **changes}


@time_machine.travel(NOON, tick=False)
def test_the_page_after_adding_one_shows_its_password_and_its_secret_address(admin_client: Client) -> None:
    page = admin_client.post("/admin/servers/host/add/", NEW)
    host = Host.objects.get()
    shown = page.content.decode()
    assert f"Password of {host}" in shown
    assert f"http://testserver{webhook_path(host)}" in shown
    assert host.protocol == "bluebubbles"
    again = admin_client.get(f"/admin/servers/host/{host.pk}/change/").content.decode()
    assert webhook_path(host) not in again


def test_what_a_host_speaks_is_not_edited(admin_client: Client) -> None:
    host = HostFactory.create()
    admin_client.post(f"/admin/servers/host/{host.pk}/change/", edit(host, name="Attic", protocol="bluebubbles"))
    host.refresh_from_db()
    assert (host.name, host.protocol) == ("Attic", "native")


@pytest.mark.parametrize(("protocol", "number"), [("bluebubbles", UNIT), ("native", UNIT + 1)])
def test_its_number_stays_while_a_unit_has_it(admin_client: Client, protocol: str, number: int) -> None:
    host = mac_host(protocol=protocol)
    ServerFactory.create(host=host, unit=UNIT)
    admin_client.post(f"/admin/servers/host/{host.pk}/change/", edit(host, number=UNIT + 1))
    host.refresh_from_db()
    assert host.number == number


# --- the check -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("signed_out", [True, False])
def test_whether_its_unit_is_signed_in_is_asked_although_it_was_heard_of_just_now(signed_out: bool) -> None:
    with BlueBubblesThread(number=UNIT, password=PASSWORD, quirks=Quirks(signed_out=signed_out)) as mac:
        host = mac_host(base_url=mac.base_url, last_seen_at=NOON)
        server = ServerFactory.create(host=host, unit=UNIT, signed_in=signed_out)
        assert host_check.call_silent_hosts(now=NOON) == 1
    server.refresh_from_db()
    assert server.signed_in is not signed_out
