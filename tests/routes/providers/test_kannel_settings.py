"""What a Kannel route is set up with, and how its health is asked for."""

from __future__ import annotations

import socket
from typing import Any

import aiohttp
import pytest

from otp_service.routes.providers.kannel import CREDENTIALS, SETTINGS, Kannel, read_settings
from tests.routes.providers import kannel_routes
from tests.routes.providers.kannel_routes import route, said, words
from tests.servers.relay.peers import answers, peer

URL = "http://kannel.example:13013/cgi-bin/sendsms"


def test_what_may_be_set_is_read() -> None:
    status_url = "https://kannel.example/status.xml"
    gateway = read_settings(
        {"url": URL, "smsc": "main", "max_messages": 255, "status_url": status_url},
        {**kannel_routes.CREDENTIALS, "status_password": "another"},
    )
    assert (gateway.url, gateway.smsc, gateway.status_url, gateway.status_password) == (
        URL,
        "main",
        status_url,
        "another",
    )
    assert gateway.max_messages == 255
    assert (gateway.username, gateway.password, gateway.receipt_token) == ("our-user", "s3cret pass", "receipt-token")
    assert not [secret for secret in ("s3cret pass", "receipt-token", "another") if secret in repr(gateway)]
    assert set(gateway.__slots__) == {*SETTINGS, *CREDENTIALS}


@pytest.mark.parametrize(
    ("settings", "credentials", "named"),
    [
        pytest.param({"url": None}, {}, "url", id="no address"),
        pytest.param({"url": 5}, {}, "url", id="a number for an address"),
        pytest.param({"url": "kannel.example/sendsms"}, {}, "url", id="no scheme"),
        pytest.param({"url": "http://kannel.example:x/"}, {}, "url", id="no port"),
        pytest.param({"url": "http://me:s3cret@kannel.example/"}, {}, "url", id="a log-in in it"),
        pytest.param({"url": URL + "?password=s3cret"}, {}, "url", id="a query in it"),
        pytest.param({"status_url": "ftp://kannel.example"}, {}, "status_url", id="a status page by FTP"),
        pytest.param({"smsc": "two\nlines"}, {}, "smsc", id="an SMSC of two lines"),
        pytest.param({"smsc": 3}, {}, "smsc", id="a number for an SMSC"),
        pytest.param({"max_messages": 0}, {}, "max_messages", id="no part"),
        pytest.param({"max_messages": 256}, {}, "max_messages", id="too many parts"),
        pytest.param({"max_messages": True}, {}, "max_messages", id="yes for a number of parts"),
        pytest.param({"max_messages": "3"}, {}, "max_messages", id="a text for a number of parts"),
        pytest.param({"uri": URL}, {}, "url", id="a setting that is none"),
        pytest.param({}, {"username": ""}, "username", id="no user"),
        pytest.param({}, {"password": "s3cret\r\n"}, "password", id="a password with a line break"),
        pytest.param({}, {"password": "s3cretñ"}, "password", id="a password that is not ASCII"),
        pytest.param({}, {"password": "s3cret" * 30}, "password", id="a password without end"),
        pytest.param({}, {"receipt_token": ""}, "receipt_token", id="no token"),
        pytest.param({}, {"status_password": " s3cret"}, "status_password", id="a status password with a blank"),
        pytest.param({}, {"token": "s3cret"}, "receipt_token", id="a credential that is none"),
    ],
)
def test_a_wrong_setting_is_named_and_no_secret_shown(
    settings: dict[str, Any], credentials: dict[str, str], named: str
) -> None:
    with pytest.raises(ValueError, match=rf"\b{named}\b.*\.$") as raised:
        read_settings({"url": URL, **settings}, {**kannel_routes.CREDENTIALS, **credentials})
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("status", "case", "smsc", "ok"),
    [
        pytest.param(200, "status_online", "", True, id="online"),
        pytest.param(200, "status_online", "fake", True, id="its own SMSC online"),
        pytest.param(200, "status_online", "main", False, id="another SMSC online"),
        pytest.param(200, "status_connecting", "", False, id="no SMSC online"),
        pytest.param(200, "accepted", "", False, id="another page"),
        pytest.param(403, "status_online", "", False, id="no admittance"),
    ],
)
async def test_health_is_that_of_its_status_page(
    session: aiohttp.ClientSession, status: int, case: str, smsc: str, ok: bool
) -> None:
    async with peer(said(status, case)) as kannel:
        spec = route(kannel.base_url, status_url=f"{kannel.base_url}/status.xml", smsc=smsc)
        health = await Kannel().check(session, spec)
    assert health.ok is ok
    assert [(request.method, request.path) for request in kannel.requests] == [("GET", "/status.xml")]


async def test_a_kannel_that_is_told_to_rest_is_not_healthy(session: aiohttp.ClientSession) -> None:
    page = words("status_online").replace(b"<status>running", b"<status>suspended")
    async with peer(answers(200, page)) as kannel:
        spec = route(kannel.base_url, status_url=f"{kannel.base_url}/status.xml")
        health = await Kannel().check(session, spec)
    assert (health.ok, health.detail) == (False, "Kannel is suspended.")


async def test_without_a_status_page_nothing_is_asked(session: aiohttp.ClientSession) -> None:
    async with peer(answers(200)) as kannel:
        health = await Kannel().check(session, route(kannel.base_url))
    assert health.ok
    assert kannel.requests == []


async def test_a_status_page_that_is_not_there_is_not_healthy(session: aiohttp.ClientSession) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        base_url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        health = await Kannel().check(session, route(base_url, status_url=f"{base_url}/status.xml"))
    assert not health.ok
