"""One adapter speaks to each host in the host's own protocol."""

from __future__ import annotations

import uuid
from dataclasses import replace
from urllib.parse import urlsplit

import aiohttp
import pytest

from otp_service.core.clock import utc_now
from otp_service.core.http import Call
from servers.relay.base import HostAddress, Known
from servers.relay.registry import Relays
from servers.rules import RelayProtocol
from tests.servers.relay.contract_base import NUMBER, SECRET, TEXT, a_send
from tests.servers.relay.peers import answers, peer

ATTEMPT = uuid.UUID("0b8f7d0e-3c7a-4a2e-9a55-6f1d2c3b4a59")


@pytest.mark.parametrize(
    ("protocol", "paths"),
    [
        (RelayProtocol.NATIVE, ["/v1/sends", f"/v1/sends/{ATTEMPT}", f"/v1/sends/{ATTEMPT}", "/v1/health"]),
        (
            RelayProtocol.BLUEBUBBLES,
            ["/api/v1/message/text", "/api/v1/message/query", "/api/v1/ping", "/api/v1/server/info"],
        ),
    ],
)
async def test_every_call_is_made_in_the_hosts_protocol(
    session: aiohttp.ClientSession, protocol: RelayProtocol, paths: list[str]
) -> None:
    relays, known = Relays(), Known(NUMBER, (TEXT,), utc_now())
    async with peer(answers(504)) as host:
        address = HostAddress(1, 228, host.base_url, (SECRET,), protocol)
        await relays.submit(session, address, replace(a_send(), unit=228))
        await relays.query(session, address, ATTEMPT, known)
        await relays.tombstone(session, address, ATTEMPT)
        await relays.check(session, address)

    assert [urlsplit(request.path).path for request in host.requests] == paths


def test_every_protocol_is_spoken() -> None:
    assert set(Relays().adapters) == set(RelayProtocol)


def test_a_call_shows_no_password_of_its_address() -> None:
    assert "hunter2" not in repr(Call("GET", "https://mac.example/api/v1/ping?password=hunter2"))
