"""The queries that run all the time read the beginning of an index, whatever the size of the fleet."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection

from servers import selection
from servers.cooldown import due_servers
from servers.models import Server
from tests.factories import HostFactory, ServerFactory

pytestmark = pytest.mark.django_db
FLEET = 20_000
#: What tells the servers of the fleet apart; the rest of their columns are those of one server that is copied.
EACH = {
    "uuid": "gen_random_uuid()",
    "region": "(ARRAY['es', 'zp', 'vj', 'pt'])[1 + number % 4]",
    "unit": "number",
    "host_id": "(%(hosts)s::bigint[])[1 + number % 100]",
    "next_send_date": "%(now)s + (random() - 0.5) * interval '20 min'",
    "tie": "random()",
    "cooldown": "number % 20 = 0",
    "cooldown_start_date": "CASE WHEN number % 20 = 0 THEN %(now)s END",
    "cooldown_end_date": "CASE WHEN number % 20 = 0 THEN %(now)s + (random() - 0.1) * interval '2 h' END",
}


@pytest.fixture(params=["never analysed", "analysed"])
def hosts(request: pytest.FixtureRequest, now: dt.datetime) -> list[int]:
    """Hosts of a fleet of 20,000 servers, half of which are free, on tables that the planner knows or does not."""
    made = [host.pk for host in HostFactory.create_batch(100)]
    pattern = ServerFactory.create(region="ua")
    copied = [field.column for field in Server._meta.concrete_fields if field.column not in {*EACH, "id"}]
    statement = (
        f"INSERT INTO servers_server ({', '.join([*EACH, *copied])}) SELECT {', '.join([*EACH.values(), *copied])} "
        "FROM generate_series(1, %(fleet)s) AS number, "
        f"(SELECT {', '.join(copied)} FROM servers_server WHERE id = %(pattern)s) AS pattern"
    )
    parameters: dict[str, Any] = {"hosts": made, "now": now, "fleet": FLEET, "pattern": pattern.pk}
    with connection.cursor() as cursor:
        cursor.execute(statement.replace("number % ", "number %% "), parameters)
        if request.param == "analysed":
            cursor.execute("ANALYZE servers_server")
    return made


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in nodes(child))]


def explain(statement: str, parameters: Any = None) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
        (document,) = cursor.fetchone()
    return nodes(document[0]["Plan"])


def assert_reads_an_index(plan: list[dict[str, Any]], index: str) -> None:
    kinds = {node["Node Type"] for node in plan}
    assert not kinds & {"Sort", "Seq Scan", "Bitmap Heap Scan", "Hash Join"}, kinds
    assert {node["Index Name"] for node in plan if "Index Name" in node} == {index}
    assert sum(node.get("Rows Removed by Filter", 0) for node in plan) == 0


def test_candidates_are_the_beginning_of_the_index(now: dt.datetime, hosts: list[int]) -> None:
    query = selection.lock_candidates("es", hosts, now, most=58).query
    plan = explain(*query.sql_with_params())
    assert_reads_an_index(plan, "server_reserve")
    assert max(node["Actual Rows"] for node in plan) == 58


def test_candidates_without_those_taken_are_the_beginning_of_the_index(now: dt.datetime, hosts: list[int]) -> None:
    taken = [server.pk for server in selection.lock_candidates("es", hosts, now, most=5)]
    query = selection.lock_candidates("es", hosts, now, most=58, without=taken).query
    plan = explain(*query.sql_with_params())
    kinds = {node["Node Type"] for node in plan}
    assert not kinds & {"Sort", "Seq Scan", "Bitmap Heap Scan"}, kinds
    assert sum(node.get("Rows Removed by Filter", 0) for node in plan) == len(taken)


def test_servers_are_taken_by_their_ids(now: dt.datetime, hosts: list[int]) -> None:
    ids = [server.pk for server in selection.lock_candidates("es", hosts, now, most=50)]
    parameters = {
        "ids": ids,
        "dates": [now] * len(ids),
        "ties": [0.5] * len(ids),
        "news": [1] * len(ids),
        "otps": [0] * len(ids),
        "now": now,
        "day": now.date(),
        "hour": now,
    }
    plan = explain(selection._TAKE, parameters)
    assert "Seq Scan" not in {node["Node Type"] for node in plan}


def test_the_first_free_one_is_the_first_of_the_index(now: dt.datetime, hosts: list[int]) -> None:
    query = selection.otherwise_eligible(hosts).filter(region="es").order_by("next_send_date", "tie")[:1].query
    assert_reads_an_index(explain(*query.sql_with_params()), "server_reserve")


def test_free_servers_are_counted_no_further_than_the_cap(now: dt.datetime, hosts: list[int]) -> None:
    plan = explain(selection._FREE_BY_POOL, {"now": now, "hosts": hosts, "cap": 100})
    assert "Seq Scan" not in {node["Node Type"] for node in plan}
    assert max(node["Actual Rows"] for node in plan if node["Node Type"] != "Recursive Union") <= 100


def test_cooldowns_that_are_due_are_read_from_their_index(now: dt.datetime, hosts: list[int]) -> None:
    plan = explain(*due_servers(now)[:200].query.sql_with_params())
    assert {node["Index Name"] for node in plan if "Index Name" in node} == {"server_cooldown_due"}
    assert "Seq Scan" not in {node["Node Type"] for node in plan}
