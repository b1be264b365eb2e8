"""The secrets of an embedded installation."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from otp_service.core.crypto import parse_keys
from otp_service.embedded import EmbeddedServerError, EmbeddedServers
from otp_service.embedded.secret_keys import read_or_make_secrets, write_private_json
from tests.embedded.conftest import BOTH_GIVEN


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Does not exist yet."""
    return tmp_path / "secrets.json"


def test_the_file_is_for_its_owner_alone(path: Path) -> None:
    read_or_make_secrets(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_second_reading_gives_the_same(path: Path) -> None:
    assert read_or_make_secrets(path) == read_or_make_secrets(path)


def test_two_installations_differ_in_every_secret(path: Path, tmp_path: Path) -> None:
    one, other = read_or_make_secrets(path), read_or_make_secrets(tmp_path / "other.json")
    names = {"DJANGO_SECRET_KEY", "FIELD_ENCRYPTION_KEYS", "HASH_KEYS", "MANAGE_SERVERS_API_AUTH_KEY"}
    assert one.keys() == other.keys() == names
    assert not set(one.values()) & set(other.values())


def test_the_keys_are_what_the_service_reads(path: Path) -> None:
    made = read_or_make_secrets(path)
    assert parse_keys(made["FIELD_ENCRYPTION_KEYS"]).keys() == {"k1"}
    assert parse_keys(made["HASH_KEYS"]).keys() == {"h1"}
    assert len(made["DJANGO_SECRET_KEY"]) >= 50


def test_a_secret_that_is_missing_is_added_and_the_others_stay(path: Path) -> None:
    write_private_json(path, {"HASH_KEYS": "h1:kept"})
    made = read_or_make_secrets(path)
    assert made["HASH_KEYS"] == "h1:kept"
    assert json.loads(path.read_text()) == made


@pytest.mark.parametrize("content", ["", "{", "[]"], ids=["empty", "cut off", "a list"])
def test_a_spoilt_file_is_refused_and_kept(path: Path, content: str) -> None:
    path.write_text(content)
    with pytest.raises(EmbeddedServerError, match=r"secrets\.json is not readable"):
        read_or_make_secrets(path)
    assert path.read_text() == content


def test_a_secret_of_the_environment_wins(tmp_path: Path) -> None:
    with EmbeddedServers(tmp_path / "var", environ={**BOTH_GIVEN, "HASH_KEYS": "h2:given"}) as servers:
        assert servers.env["HASH_KEYS"] == "h2:given"
        assert servers.env["OTP_EMBEDDED"] == "1"
        assert servers.env["OTP_STATE_DIR"] == str(tmp_path / "var")
