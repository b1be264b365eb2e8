"""What `manage.py up` prints when the service is ready."""

from __future__ import annotations

import json
import shlex

from scheduler.local_stack import DemoAccess
from scheduler.management.commands.up import banner

_ACCESS = DemoAccess(username="admin", password="pass-word", api_key="otp_key", to="+34600000001")


def test_the_command_to_paste_posts_a_code_with_the_demo_key() -> None:
    text = banner(9000, _ACCESS)
    pasted = text[text.index("curl -sS -X POST") : text.index("  See what")]
    words = shlex.split(pasted.replace("\\\n", " "))
    assert "http://127.0.0.1:9000/api/v1/messages/" in words
    assert "Authorization: Bearer otp_key" in words
    assert json.loads(words[words.index("-d") + 1])["to"] == "+34600000001"


def test_the_way_into_the_admin_is_shown() -> None:
    text = banner(9000, _ACCESS)
    assert "http://127.0.0.1:9000/admin/" in text
    assert "admin / pass-word" in text


def test_without_a_demo_the_commands_that_make_accounts_are_named() -> None:
    text = banner(9000, None)
    assert "createsuperuser" in text
    assert "create_client" in text
    assert "curl" not in text


def test_secrets_are_not_in_a_repr() -> None:
    assert "pass-word" not in repr(_ACCESS)
    assert "otp_key" not in repr(_ACCESS)
