"""An operator's scripts, over HTTP, against the web process as it runs in production."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otp_service.core.clock import utc_now
from servers.models import Server
from tests.factories import HostFactory, ServerFactory
from tests.flows.processes import Processes
from tests.http import Answer, call

pytestmark = [pytest.mark.django_db(transaction=True)]

KEY = "a-manage-key-of-a-flow-test"
PREFIX = "operators/of/the/fleet/"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path, MANAGE_SERVERS_API_AUTH_KEY=KEY, MANAGE_API_PREFIX=PREFIX) as started:
        started.start(started.web)
        yield started


@pytest.fixture
def servers() -> list[Server]:
    host = HostFactory.create(last_seen_at=utc_now())
    return [ServerFactory.create(host=host, unit=unit, next_send_date=utc_now()) for unit in (228, 229)]


class Script:
    """Calls with the key, as a script makes them."""

    def __init__(self, base: str) -> None:
        self.base = f"{base}/{PREFIX}"

    def call(self, method: str, path: str, body: Any = None, *, key: str = KEY, status: int = 200) -> Answer:
        answer = call(method, f"{self.base}{path}", body, {"Authorization": key})
        assert answer.status == status, answer
        return answer


def test_from_a_new_group_to_a_recovered_server(processes: Processes, servers: list[Server]) -> None:
    script = Script(processes.base)
    made = script.call(
        "POST", "groups/", {"name": "night", "priority": 1, "from_time": "22:00", "to_time": "08:00"}, status=201
    )
    group = f"groups/{made.body['uuid']}/"
    assert made.headers["Location"] == f"/{PREFIX}{group}"

    named = [{"region": "es", "unit": 228}, str(servers[1].uuid)]
    assert script.call("POST", f"{group}servers/", {"servers": named}).body == {"servers": 2, "changed": 2}
    assert script.call("POST", f"{group}servers/", {"servers": named}).body == {"servers": 2, "changed": 0}
    assert script.call("GET", group, key=f"Bearer {KEY}").body["servers"] == 2
    listed = script.call("GET", f"list/?group={made.body['uuid']}&region=es").body["results"]
    assert [row["unit"] for row in listed] == [229, 228]

    server = f"{servers[0].uuid}/"
    for action, status in (("need_check", "need_check"), ("recover", "active")):
        sent = {"action": action, "servers": named[:1], "reason": "tried by hand"}
        assert script.call("POST", "actions/", sent).body == {"servers": 1, "changed": 1}
        assert script.call("GET", server).body["status"] == status
    history = script.call("GET", f"{server}history/").body["results"]
    assert [(row["event"], row["data"]["by"]) for row in history] == [
        (107, "manage API"),
        (106, "manage API"),
        (114, "manage API"),
    ]

    assert script.call("DELETE", f"{group}?strict=1", status=409).body["code"] == "group_in_use"
    assert script.call("DELETE", group, status=204).body == ""
    assert script.call("GET", group, status=404).headers["Content-Type"] == "application/problem+json"


def test_strangers_and_bad_items_are_told_what_is_wrong(processes: Processes, servers: list[Server]) -> None:
    script = Script(processes.base)
    refused = script.call("GET", "hosts/", key="otp_of_a_client_or_made_up", status=401)
    assert 'Bearer realm="manage"' in refused.headers.values()
    assert script.call("GET", "hosts/").body["results"][0]["online"] is True
    sent = {"items": [{"server": {"region": "es", "unit": unit}, "groups": []} for unit in (228, 230)]}
    told = script.call("POST", "groups/assignments/", sent, status=400).body
    assert told["code"] == "invalid_items"
    assert [(row["index"], row["field"], row["code"]) for row in told["errors"]] == [(1, "server", "unknown_server")]
