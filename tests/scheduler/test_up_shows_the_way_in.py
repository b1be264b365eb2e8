"""What `manage.py up` prints when the service is ready."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import cast

import pytest
from django.conf import settings

from otp_service.simulation.demo_file import DemoAccess
from scheduler.local_stack import LocalStack, Options
from scheduler.management.commands.up import MANAGE_API_PREFIX, banner
from scheduler.supervisor import Supervisor

_ACCESS = DemoAccess(username="admin", password="pass-word", api_key="otp_key", to="+34600000001")
_OPTIONS = Options(port=9000, simulator_port=9001, demo_data=True)
_ENV = {"MANAGE_SERVERS_API_AUTH_KEY": "manage-key"}


def commands(text: str) -> list[list[str]]:
    """What can be pasted, as a shell reads it."""
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line.strip().startswith("curl ")]


def test_the_first_command_to_paste_posts_a_code_with_the_demo_key() -> None:
    words, *_ = commands(banner(_OPTIONS, _ACCESS, _ENV))
    assert "http://127.0.0.1:9000/api/v1/messages/" in words
    assert "Authorization: Bearer otp_key" in words
    assert json.loads(words[words.index("-d") + 1])["to"] == "+34600000001"


def test_the_second_command_to_paste_shows_the_newest_message_and_needs_nothing_filled_in() -> None:
    _, words, _ = commands(banner(_OPTIONS, _ACCESS, _ENV))
    assert words == [
        *("curl", "-sS", "http://127.0.0.1:9000/api/v1/messages/?limit=1"),
        *("-H", "Authorization: Bearer otp_key"),
    ]


@pytest.mark.parametrize("access", [_ACCESS, None], ids=["demo", "no demo"])
def test_the_last_command_to_paste_lists_the_groups_with_the_manage_key(access: DemoAccess | None) -> None:
    *_, words = commands(banner(_OPTIONS, access, _ENV))
    assert words == [
        *("curl", "-sS", f"http://127.0.0.1:9000/{settings.MANAGE_API_PREFIX}groups/"),
        *("-H", "Authorization: manage-key"),
    ]


def test_the_manage_api_is_shown_where_the_environment_puts_it() -> None:
    *_, words = commands(banner(_OPTIONS, _ACCESS, _ENV | {"MANAGE_API_PREFIX": "manage/"}))
    assert words[2] == "http://127.0.0.1:9000/manage/groups/"


def test_a_manage_key_with_a_quote_can_be_pasted() -> None:
    *_, words = commands(banner(_OPTIONS, _ACCESS, {"MANAGE_SERVERS_API_AUTH_KEY": "it's"}))
    assert words[-1] == "Authorization: it's"


def test_without_a_manage_key_there_is_no_such_command() -> None:
    assert len(commands(banner(_OPTIONS, _ACCESS, {}))) == 2


def test_the_prefix_is_the_one_that_the_settings_give() -> None:
    assert settings.MANAGE_API_PREFIX == MANAGE_API_PREFIX


def test_the_ledger_is_shown_where_the_simulator_runs_and_only_there() -> None:
    assert "http://127.0.0.1:9001/control/ledger" in banner(_OPTIONS, _ACCESS, _ENV)
    assert "ledger" not in banner(Options(port=9000, simulator_port=None, demo_data=True), _ACCESS, _ENV)


def test_the_way_into_the_admin_is_shown() -> None:
    text = banner(_OPTIONS, _ACCESS, _ENV)
    assert "http://127.0.0.1:9000/admin/" in text
    assert "admin / pass-word" in text


def test_without_a_demo_the_commands_that_make_accounts_are_named() -> None:
    text = banner(_OPTIONS, None, {})
    assert "createsuperuser" in text
    assert "create_client" in text
    assert "curl" not in text


def test_secrets_are_not_in_a_repr() -> None:
    assert "pass-word" not in repr(_ACCESS)
    assert "otp_key" not in repr(_ACCESS)
    assert "manage-key" not in repr(LocalStack(_OPTIONS, cast("Supervisor", None), Path(), _ENV))
