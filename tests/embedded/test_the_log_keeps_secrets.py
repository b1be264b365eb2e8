"""What a statement that fails carries does not reach PostgreSQL's log."""

from __future__ import annotations

import psycopg
import pytest

from otp_service.embedded import EmbeddedServers


def test_a_statement_that_fails_is_logged_without_its_values(shared_servers: EmbeddedServers) -> None:
    with (
        psycopg.connect(shared_servers.urls["DATABASE_URL"], autocommit=True) as connection,
        pytest.raises(psycopg.errors.DivisionByZero),
    ):
        connection.execute("SELECT 1 / 0 AS canary_in_a_statement")
    log = (shared_servers.state_dir / "postgres.log").read_text()
    assert "division by zero" in log
    assert "canary_in_a_statement" not in log
