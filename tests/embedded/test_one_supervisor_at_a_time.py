"""Two supervisors of one state directory would fight over its servers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from otp_service.embedded import EmbeddedServerError
from tests.embedded.conftest import BOTH_GIVEN, DATABASE_GIVEN, MakeServers


def test_second_supervisor_is_refused_with_the_id_of_the_first(make_servers: MakeServers) -> None:
    refused = pytest.raises(EmbeddedServerError, match=rf"Process {os.getpid()} already runs .*OTP_STATE_DIR")
    with make_servers(environ=BOTH_GIVEN), refused:
        make_servers(environ=BOTH_GIVEN).start()
    make_servers(environ=BOTH_GIVEN).start()  # once the first has stopped


def test_a_refused_supervisor_does_not_touch_the_first_ones_servers(make_servers: MakeServers, state_dir: Path) -> None:
    with make_servers(environ=DATABASE_GIVEN) as first:
        second = make_servers(environ=DATABASE_GIVEN)
        with pytest.raises(EmbeddedServerError):
            second.start()
        second.stop()
        assert first.servers[0].is_ready()
        assert (state_dir / "embedded.json").exists()


def test_data_is_not_removed_under_a_running_supervisor(make_servers: MakeServers, state_dir: Path) -> None:
    with make_servers(environ=DATABASE_GIVEN) as first:
        with pytest.raises(EmbeddedServerError, match="already runs"):
            make_servers().remove()
        assert first.servers[0].is_ready()
        assert (state_dir / "secrets.json").exists()


def test_supervisors_of_two_state_directories_run_side_by_side(make_servers: MakeServers, tmp_path: Path) -> None:
    one = make_servers(tmp_path / "one", environ=DATABASE_GIVEN)
    two = make_servers(tmp_path / "two", environ=DATABASE_GIVEN)
    with one, two:
        assert one.urls["REDIS_URL"] != two.urls["REDIS_URL"]
        assert all(servers.servers[0].is_ready() for servers in (one, two))


def test_a_state_directory_that_cannot_be_made_is_named(make_servers: MakeServers, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedServerError, match=r"file/var.*Set OTP_STATE_DIR"):
        make_servers(tmp_path / "file" / "var").start()
