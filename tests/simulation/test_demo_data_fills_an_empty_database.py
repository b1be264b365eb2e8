"""The first start: what the demo consists of."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from pathlib import Path

import phonenumbers
import pytest
from django.db.models import Count
from pytest_django import Settings

from otp_service.core.signing import sign
from otp_service.simulation import demo
from servers.models import Group, Host, Server, ServerStatusHistory
from servers.rules import Event, Status
from tests.simulation.demo_runs import DemoRuns

pytestmark = pytest.mark.django_db

#: Region → the country that its handles belong to.
COUNTRIES = {"es": "ES", "zp": "ES", "vj": "ES", "pt": "PT", "ua": "UA", "us": "US"}


@pytest.fixture
def fleet(settings: Settings, tmp_path: Path, now: dt.datetime, rng: random.Random) -> demo.Prepared:
    """An empty database, filled."""
    runs = DemoRuns.local(settings, tmp_path)
    return demo.prepare(simulator_port=8900, access_file=runs.access_file, now=now, rng=rng)


def test_says_how_many_hosts_and_servers_it_made(fleet: demo.Prepared) -> None:
    assert fleet == demo.Prepared(hosts=12, servers=69, moved_hosts=0, new_access=True)
    assert (Host.objects.count(), Server.objects.count()) == (12, 69)


def test_every_host_is_where_the_simulator_plays_it_and_can_sign(fleet: demo.Prepared) -> None:
    hosts = list(Host.objects.all())
    assert all(host.base_url == f"http://127.0.0.1:8900/hosts/{host.number}" for host in hosts)
    assert all(sign(host.secret, "id", 0, b"") for host in hosts)
    assert len({host.secret for host in hosts}) == len(hosts)


def test_has_every_region_and_more_of_es_and_zp(fleet: demo.Prepared) -> None:
    by_region = Counter(Server.objects.values_list("region", flat=True))
    assert set(by_region) == {"es", "zp", "vj", "pt", "ua", "us"}
    assert [region for region, _ in by_region.most_common(2)] == ["es", "zp"]


def test_every_server_may_send_at_once(fleet: demo.Prepared, now: dt.datetime) -> None:
    ready = Server.objects.filter(status=Status.ACTIVE, signed_in=True, cooldown=False, next_send_date__lt=now)
    assert ready.count() == fleet.servers


def test_servers_take_turns_from_the_start(fleet: demo.Prepared) -> None:
    assert Server.objects.values("next_send_date").distinct().count() == fleet.servers


def test_no_server_has_anything_behind_it(fleet: demo.Prepared) -> None:
    untouched = Server.objects.filter(failed_in_row=0, cooldown_times=0, fail_open_streak=0, preheating=False)
    assert untouched.count() == fleet.servers


def test_every_handle_is_a_valid_number_of_its_region(fleet: demo.Prepared) -> None:
    for region, handle in Server.objects.values_list("region", "handle"):
        number = phonenumbers.parse(handle, None)
        assert phonenumbers.is_valid_number(number), handle
        assert phonenumbers.region_code_for_number(number) == COUNTRIES[region]
        assert phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164) == handle


def test_no_handle_is_given_twice_or_is_the_number_to_send_to(fleet: demo.Prepared) -> None:
    handles = set(Server.objects.values_list("handle", flat=True))
    assert len(handles) == fleet.servers
    assert demo.RECIPIENT not in handles


@pytest.mark.parametrize(
    ("name", "cooldown"),
    [
        ("Shortest", (10, 30)),
        ("Shortest #2", (15, 25)),
        ("Short", (15, 45)),
        ("Short #2", (15, 45)),
        ("Medium", (30, 90)),
    ],
)
def test_has_the_groups_of_the_source(fleet: demo.Prepared, name: str, cooldown: tuple[int, int]) -> None:
    group = Group.objects.get(name=name)
    assert (group.cooldown_delay_from, group.cooldown_delay_to) == cooldown
    assert group.failed_in_row == 2
    assert (group.send_from_message_interval, group.send_to_message_interval) == (8, 12)
    assert (group.from_time, group.to_time) == (dt.time(0, 0), dt.time(23, 59, 59))
    assert group.servers.exists()


def test_has_five_groups_of_distinct_priority(fleet: demo.Prepared) -> None:
    assert Group.objects.values("priority").distinct().count() == Group.objects.count() == 5


def test_about_a_fifth_of_the_servers_are_in_one_group_each_and_the_rest_in_none(fleet: demo.Prepared) -> None:
    per_server = Counter(Server.objects.annotate(n=Count("groups")).values_list("n", flat=True))
    assert set(per_server) == {0, 1}
    assert 0.18 <= per_server[1] / fleet.servers <= 0.25


def test_most_hosts_with_a_server_in_a_group_have_servers_without_one(fleet: demo.Prepared) -> None:
    with_group = set(Server.objects.filter(groups__isnull=False).values_list("host__number", flat=True))
    without = set(Server.objects.filter(groups__isnull=True).values_list("host__number", flat=True))
    assert with_group <= without


@pytest.mark.parametrize(
    ("unit", "host", "group"),
    [
        (243, 460, "Short #2"),
        (237, 460, "Shortest #2"),
        (235, 458, "Short #2"),
        (240, 460, "Shortest #2"),
        (239, 460, "Shortest #2"),
    ],
)
def test_the_units_that_the_source_names_are_where_it_names_them(
    fleet: demo.Prepared, unit: int, host: int, group: str
) -> None:
    server = Server.objects.get(region="ua", unit=unit)
    assert server.host.number == host
    assert [member.name for member in server.groups.all()] == [group]


def test_units_228_to_243_are_in_the_two_groups_of_the_source(fleet: demo.Prepared) -> None:
    cluster = Server.objects.filter(region="ua", unit__range=(228, 243))
    assert set(cluster.values_list("host__number", flat=True)) == {458, 460}
    assert set(cluster.values_list("groups__name", flat=True)) == {"Short #2", "Shortest #2"}


def test_every_entry_into_a_group_leaves_its_row(fleet: demo.Prepared, now: dt.datetime) -> None:
    rows = ServerStatusHistory.objects.filter(event=Event.GROUPS_CHANGED, at=now).select_related("server")
    told = {row.server_id: row.data["new"]["groups"] for row in rows}
    members = Server.objects.filter(groups__isnull=False)
    assert told == {server.pk: [str(group.uuid) for group in server.groups.all()] for server in members}
    assert rows.count() == len(told)


def test_groups_of_a_person_keep_their_priority(
    settings: Settings, tmp_path: Path, now: dt.datetime, rng: random.Random
) -> None:
    Group.objects.create(name="Night", priority=7)
    runs = DemoRuns.local(settings, tmp_path)
    demo.prepare(simulator_port=8900, access_file=runs.access_file, now=now, rng=rng)
    assert Group.objects.get(name="Night").priority == 7
    assert sorted(Group.objects.values_list("priority", flat=True)) == [7, 8, 9, 10, 11, 12]
