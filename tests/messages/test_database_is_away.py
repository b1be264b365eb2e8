"""PostgreSQL away: 503 with Retry-After, nothing accepted, and all is well when it is back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError, connection

from otp_service.messages.models import Message
from tests.messages.client_api import MESSAGES, ClientApi, code

pytestmark = pytest.mark.django_db(transaction=True)


def is_away(api: ClientApi) -> bool:
    answer = api.send(key="k")
    assert (answer.status_code, code(answer)) == (503, "database_away")
    return int(answer["Retry-After"]) > 0


@pytest.fixture
def dead_socket(api: ClientApi, tmp_path: Path) -> Iterator[None]:
    """The process looks for its database where none is."""
    connection.close()
    host = connection.settings_dict["HOST"]
    connection.settings_dict["HOST"] = str(tmp_path)
    yield
    connection.close()
    connection.settings_dict["HOST"] = host


@pytest.mark.usefixtures("dead_socket")
def test_says_so_when_it_cannot_connect(api: ClientApi) -> None:
    assert is_away(api)
    assert code(api.get(MESSAGES)) == "database_away"


@pytest.mark.parametrize("fault", [OperationalError, InterfaceError])
@pytest.mark.parametrize("part", ["otp_messages_apikey", "INSERT INTO otp_messages_message"])
def test_says_so_when_a_statement_breaks_off(api: ClientApi, fault: type[Exception], part: str) -> None:
    def break_off(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if part in sql:
            raise fault("the connection is lost")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(break_off):
        assert is_away(api)
    assert not Message.objects.exists()
    assert api.send(key="k").status_code == 202


def test_takes_a_new_connection_when_the_server_ended_the_old_one(api: ClientApi) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()

    def end_the_connection(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if "otp_messages_message" in sql:
            execute("SELECT pg_terminate_backend(%s)", [pid], False, context)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(end_the_connection):
        assert is_away(api)
    assert not Message.objects.exists()
    assert api.send(key="k").status_code == 202
