"""Later starts change what must change, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django import Settings

from otp_service.core.signing import new_secret
from otp_service.messages.models import ApiKey, Client
from servers.models import Group, Host, Server
from tests.simulation.demo_runs import DemoRuns

pytestmark = pytest.mark.django_db


@pytest.fixture
def demo(settings: Settings, tmp_path: Path) -> DemoRuns:
    """The command, on an empty state folder."""
    return DemoRuns.local(settings, tmp_path)


def host_at(number: int) -> None:
    """A host that a person entered, on the simulator's port."""
    Host.objects.create(number=number, base_url=f"http://127.0.0.1:8900/hosts/{number}", secret=new_secret())


def everything() -> list[list[object]]:
    """What the tables hold, to compare."""
    return [list(model.objects.order_by("pk").values()) for model in (Host, Server, Group, Client, ApiKey)]


def test_a_second_start_says_that_data_is_there_and_changes_nothing(demo: DemoRuns) -> None:
    demo("--simulator-port", "8900")
    before, access = everything(), demo.access
    assert demo("--simulator-port", "8900") == "data is there\n"
    assert everything() == before
    assert demo.access == access


def test_another_port_moves_the_hosts_and_nothing_else(demo: DemoRuns) -> None:
    demo("--simulator-port", "8900")
    servers, access = list(Server.objects.order_by("pk").values()), demo.access
    assert demo("--simulator-port", "8901") == "data is there; 12 demo hosts have a new port\n"
    assert {host.base_url for host in Host.objects.all()} == {
        f"http://127.0.0.1:8901/hosts/{host.number}" for host in Host.objects.all()
    }
    assert list(Server.objects.order_by("pk").values()) == servers
    assert demo.access == access


def test_without_a_port_the_hosts_stay_where_they_are(demo: DemoRuns) -> None:
    demo("--simulator-port", "8901")
    assert demo() == "data is there\n"
    assert Host.objects.get(number=458).base_url == "http://127.0.0.1:8901/hosts/458"


def test_a_demo_host_that_was_given_a_real_address_keeps_it(demo: DemoRuns) -> None:
    demo("--simulator-port", "8900")
    Host.objects.filter(number=458).update(base_url="https://relay.example.com")
    demo("--simulator-port", "8901")
    assert Host.objects.get(number=458).base_url == "https://relay.example.com"
    assert Host.objects.get(number=460).base_url == "http://127.0.0.1:8901/hosts/460"


def test_a_host_that_is_not_of_the_demo_keeps_its_address(demo: DemoRuns) -> None:
    demo("--simulator-port", "8900")
    host_at(9_000)
    demo("--simulator-port", "8901")
    assert Host.objects.get(number=9_000).base_url == "http://127.0.0.1:8900/hosts/9000"


def test_a_fleet_that_the_demo_did_not_make_is_left_alone(demo: DemoRuns) -> None:
    host_at(458)
    before = everything()
    assert demo("--simulator-port", "8901") == "data is there\n"
    assert everything() == before
    assert not demo.access_file.exists()


def test_a_demo_whose_hosts_were_removed_is_filled_again_with_the_same_client(demo: DemoRuns) -> None:
    demo()
    access = demo.access
    Server.objects.all().delete()
    Host.objects.all().delete()
    assert "69 servers on 12 hosts" in demo()
    assert (Client.objects.count(), ApiKey.objects.count(), Group.objects.count()) == (1, 1, 5)
    assert demo.access == access
