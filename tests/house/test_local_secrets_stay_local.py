"""What `make up` left in the state folder is used by local runs, and never by a production that forgot a secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from otp_service.embedded import EmbeddedServers
from tests.house.fresh_settings import KEY, REQUIRED, read_settings

LOCAL_SECRETS = {"DJANGO_SECRET_KEY": "local", "FIELD_ENCRYPTION_KEYS": f"k1:{KEY}", "HASH_KEYS": f"h1:{KEY}"}
LOCAL_SERVERS = {"DATABASE_URL": "postgres://local/otp", "REDIS_URL": "unix:///local.sock?db=0", "pid": 1}


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    """The folder of a `make up` that runs, and the variable that names it."""
    (tmp_path / "secrets.json").write_text(json.dumps(LOCAL_SECRETS))
    (tmp_path / "embedded.json").write_text(json.dumps(LOCAL_SERVERS))
    return {"OTP_STATE_DIR": str(tmp_path)}


def test_shell_beside_a_local_run_is_part_of_it(state: dict[str, str]) -> None:
    read = read_settings(state)
    assert (read["SECRET_KEY"], read["DATABASE_URL"], read["EMBEDDED"]) == ("local", "postgres://local/otp", True)


@pytest.mark.parametrize("forgotten", REQUIRED)
def test_production_that_forgot_one_does_not_take_the_local_one(state: dict[str, str], forgotten: str) -> None:
    given = {name: value for name, value in REQUIRED.items() if name != forgotten}
    with pytest.raises(ImproperlyConfigured, match=f"^{forgotten} is not set"):
        read_settings(state | given)


@pytest.mark.parametrize("named", REQUIRED)
def test_one_value_that_is_named_is_enough_to_take_no_local_ones(state: dict[str, str], named: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="is not set"):
        read_settings(state | {named: REQUIRED[named]})


@pytest.mark.parametrize("named", REQUIRED)
def test_a_named_one_beside_a_run_that_says_it_is_local_wins(state: dict[str, str], named: str) -> None:
    read = read_settings(state | {"OTP_EMBEDDED": "1", named: REQUIRED[named]})
    used = {
        "DJANGO_SECRET_KEY": read["SECRET_KEY"],
        "DATABASE_URL": read["DATABASE_URL"],
        "REDIS_URL": read["REDIS_URL"],
    }
    expected = {**LOCAL_SECRETS, **LOCAL_SERVERS, named: REQUIRED[named]}
    assert used == {name: expected[name] for name in used}


def test_local_files_count_for_nothing_in_a_run_that_says_it_is_not_local(state: dict[str, str]) -> None:
    with pytest.raises(ImproperlyConfigured, match="is not set"):
        read_settings(state | {"OTP_EMBEDDED": "0"})


def test_secrets_alone_make_no_local_run(state: dict[str, str]) -> None:
    (Path(state["OTP_STATE_DIR"]) / "embedded.json").unlink()
    with pytest.raises(ImproperlyConfigured, match="is not set"):
        read_settings(state)


def test_production_beside_local_files_is_a_production(state: dict[str, str]) -> None:
    read = read_settings(state | REQUIRED)
    assert (read["SECRET_KEY"], read["EMBEDDED"], read["SESSION_COOKIE_SECURE"]) == ("given", False, True)


def test_local_run_on_servers_of_ones_own_is_handed_everything(tmp_path: Path) -> None:
    ones_own = {name: REQUIRED[name] for name in ("DATABASE_URL", "REDIS_URL")}
    with EmbeddedServers(tmp_path / "var", environ=ones_own) as servers:
        read = read_settings(servers.env)
        without_files = read_settings(servers.env | {"OTP_STATE_DIR": str(tmp_path)})
    assert (read["EMBEDDED"], read["DATABASE_URL"]) == (True, REQUIRED["DATABASE_URL"])
    assert without_files["SECRET_KEY"] == read["SECRET_KEY"]


@pytest.mark.parametrize("content", ["", "not JSON", "[]", "[1]", "null"])
def test_unreadable_file_is_as_none(state: dict[str, str], content: str) -> None:
    (Path(state["OTP_STATE_DIR"]) / "embedded.json").write_text(content)
    with pytest.raises(ImproperlyConfigured, match="is not set"):
        read_settings(state)
