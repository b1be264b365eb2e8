"""The sockets' folder is the only guard of a server that trusts whoever reaches it."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from otp_service.embedded import EmbeddedServerError, EmbeddedServers, places
from otp_service.embedded.places import (
    LONGEST_SOCKET_NAME,
    SOCKET_PATH_LIMIT_BYTES,
    make_private_folder,
    prepare_places,
)
from tests.embedded.conftest import DATABASE_GIVEN, MakeServers, query

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root's servers change to nobody; CI runs as root")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Not made yet."""
    return tmp_path / "run"


def test_a_missing_folder_is_made_for_us_alone(folder: Path) -> None:
    make_private_folder(folder, None)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert make_private_folder(folder, None) == folder  # and taken again


def test_a_folder_that_others_may_enter_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o711)
    with pytest.raises(EmbeddedServerError, match=r"run is not a folder of mode 700"):
        make_private_folder(folder, None)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o711


def test_a_link_to_a_folder_of_ours_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EmbeddedServerError, match="not a folder of mode 700"):
        make_private_folder(folder, None)


def test_a_strangers_folder_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    ours = folder.stat().st_uid
    somebody_else = places.Account(uid=ours + 1, gid=folder.stat().st_gid)
    with pytest.raises(EmbeddedServerError, match=f"belongs to user id {ours + 1}"):
        make_private_folder(folder, somebody_else)


def test_servers_do_not_start_on_a_run_directory_that_somebody_opened(
    make_servers: MakeServers, state_dir: Path
) -> None:
    state_dir.mkdir()
    run_dir = prepare_places(state_dir, durable=False).run_dir
    run_dir.chmod(0o777)
    with pytest.raises(EmbeddedServerError, match="Remove it, or set OTP_STATE_DIR"):
        make_servers(environ=DATABASE_GIVEN).start()


def test_a_long_and_odd_path_under_a_private_home_gets_a_short_run_directory(
    make_servers: MakeServers, tmp_path: Path
) -> None:
    private = tmp_path / 'Ein "langer", Pfad'
    private.mkdir(mode=0o700)
    deep = private / ("x" * 120) / "var"
    with make_servers(deep) as servers:
        run_dir = servers.servers[0].places.run_dir
        assert len(os.fsencode(run_dir / LONGEST_SOCKET_NAME)) <= SOCKET_PATH_LIMIT_BYTES
        assert stat.S_IMODE(run_dir.stat().st_mode) == 0o700
        assert query(servers.urls["DATABASE_URL"], "SELECT 1") == 1
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


def test_a_moved_state_directory_keeps_its_identity_and_a_copied_one_does_not(state_dir: Path, tmp_path: Path) -> None:
    state_dir.mkdir()
    original = _identity_after_preparing(state_dir)
    shutil.copytree(state_dir, tmp_path / "copy")
    copy = _identity_after_preparing(tmp_path / "copy")
    state_dir.rename(tmp_path / "moved")
    moved = _identity_after_preparing(tmp_path / "moved")
    assert copy != original
    assert moved == original


def test_a_missing_wheel_is_named(monkeypatch: pytest.MonkeyPatch, state_dir: Path) -> None:
    monkeypatch.setattr(places, "_WHEELS", {"no-such-wheel-as-this": ("bin",)})
    state_dir.mkdir()
    with pytest.raises(EmbeddedServerError, match=r"no-such-wheel-as-this.*requirements-dev\.lock"):
        places.installed_software()


@only_root
class TestAsRoot:
    """Root's servers run as nobody, from folders that only root can change."""

    def test_data_belongs_to_nobody_and_software_to_root(self, shared_servers: EmbeddedServers) -> None:
        found = shared_servers.servers[0].places
        data, software = (found.home / "postgres").stat(), found.postgres_bin.parents[2].stat()
        account = places.unprivileged_account()
        assert (data.st_uid, stat.S_IMODE(data.st_mode)) == (account.uid, 0o700)
        assert (software.st_uid, stat.S_IMODE(software.st_mode)) == (0, 0o755)

    def test_the_servers_run_as_nobody(self, shared_servers: EmbeddedServers) -> None:
        owners = {Path(f"/proc/{server.pid}").stat().st_uid for server in shared_servers.servers}
        assert owners == {places.unprivileged_account().uid}

    def test_a_home_that_others_can_change_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state_dir: Path
    ) -> None:
        monkeypatch.setattr(places, "ROOT_HOME", tmp_path / "otp-embedded")
        (tmp_path / "otp-embedded").mkdir()
        (tmp_path / "otp-embedded").chmod(0o777)
        state_dir.mkdir()
        with pytest.raises(EmbeddedServerError, match="only root can change"):
            prepare_places(state_dir, durable=True)

    def test_a_machine_without_setpriv_is_told_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch, state_dir: Path
    ) -> None:
        monkeypatch.setattr(places, "setpriv_path", lambda: None)
        state_dir.mkdir()
        with pytest.raises(EmbeddedServerError, match="util-linux"):
            prepare_places(state_dir, durable=False)


def _identity_after_preparing(state_dir: Path) -> str:
    prepared = prepare_places(state_dir, durable=False)
    prepared.run_dir.rmdir()
    if prepared.home != state_dir:
        prepared.home.rmdir()
    return str(json.loads((state_dir / "identity.json").read_text())["id"])
