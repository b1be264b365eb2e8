"""Where demo data has no place, nothing happens."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management.base import CommandError
from pytest_django import Settings

from otp_service.messages.models import Client
from servers.models import Host
from tests.simulation.demo_runs import DemoRuns

pytestmark = pytest.mark.django_db


@pytest.fixture
def demo(settings: Settings, tmp_path: Path) -> DemoRuns:
    """The command, on an empty state folder."""
    return DemoRuns.local(settings, tmp_path)


def test_refuses_a_database_that_is_not_embedded(demo: DemoRuns, settings: Settings) -> None:
    settings.EMBEDDED = False
    with pytest.raises(CommandError, match="--force"):
        demo()
    assert not Host.objects.exists()
    assert not Client.objects.exists()
    assert not User.objects.exists()
    assert not demo.access_file.exists()


def test_fills_a_database_that_is_not_embedded_when_forced(demo: DemoRuns, settings: Settings) -> None:
    settings.EMBEDDED = False
    demo("--force")
    assert Host.objects.exists()


def test_refuses_to_change_the_password_of_an_administrator_who_was_there_before(demo: DemoRuns) -> None:
    User.objects.create_superuser("admin", password="a person's own")
    with pytest.raises(CommandError, match="user admin"):
        demo()
    assert User.objects.get().check_password("a person's own")
    assert not Host.objects.exists()
    assert not Client.objects.exists()


@pytest.mark.parametrize("port", ["0", "65536", "http"])
def test_refuses_a_port_that_is_none(demo: DemoRuns, port: str) -> None:
    with pytest.raises(CommandError, match="simulator-port"):
        demo("--simulator-port", port)
    assert not Host.objects.exists()


def test_names_the_file_that_cannot_be_written_and_makes_up_for_it_at_the_next_start(demo: DemoRuns) -> None:
    demo.state_dir.write_text("a file where the folder should be")
    with pytest.raises(CommandError, match=r"demo\.json cannot be written"):
        demo()
    demo.state_dir.unlink()
    demo()
    assert demo.access["username"] == "admin"
