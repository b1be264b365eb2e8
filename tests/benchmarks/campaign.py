"""A campaign of 500,000 lines, 1 % of them bad, against raw COPY of as many rows into the same table with its indexes.

The upload goes through the loader that the API uses: read, judged line by line, encrypted, stored with its places in
the queue. COPY is fed rows that are ready, by a process that does nothing else. Both start with empty tables, take
turns, and the best run of each counts.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

LINES = 500_000
BAD_EVERY = 100
RUNS = 2
BAR = 0.30  # of the rate of COPY
MEMORY_BAR = 200  # MB that the process may have at its peak
_BLOCK = 1_048_576


def run() -> dict[str, float]:
    """Measure both; returns rows per second of each, their ratio, and the peak of memory in MB."""
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    client = _client()
    best: dict[str, float] = {}
    with tempfile.TemporaryFile() as upload, tempfile.TemporaryFile() as rows:
        _write_upload(upload)
        for _ in range(RUNS):
            _keep_best(best, "campaign", lambda: _load(client, upload))
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            if not rows.tell():
                _write_rows(rows)
            _keep_best(best, "copy", lambda: _copy(rows))
    ratio = best["campaign"] / best["copy"]
    _report(best, ratio, memory)
    return {
        "campaign_rows_per_s": best["campaign"],
        "copy_rows_per_s": best["copy"],
        "campaign_ratio": ratio,
        "campaign_memory_mb": memory,
    }


def _report(best: dict[str, float], ratio: float, memory: float) -> None:
    print(f"\n{'raw COPY, with indexes':<40}{best['copy']:>12,.0f} rows/s")
    print(f"{f'campaign of {LINES:,} lines':<40}{best['campaign']:>12,.0f} rows/s")
    print(f"{'ratio':<40}{ratio:>12.2f}   {'reached' if ratio >= BAR else 'BELOW'} the bar of {BAR:.2f}")
    verdict = "within" if memory <= MEMORY_BAR else "OVER"
    print(f"{'peak memory of the process':<40}{memory:>12.0f} MB  {verdict} {MEMORY_BAR}\n")


def _client() -> Any:
    from tests.factories import ClientFactory

    return ClientFactory.create()


def _write_upload(upload: IO[bytes]) -> None:
    for n in range(LINES):
        to = f"+346{n % 100_000_000:08d}" if n % BAD_EVERY else f"+340{n:08d}"
        upload.write(
            b'{"to": "%s", "text": "Hello %d! Everything must go until Sunday: come and see.", "reference": "row-%d"}\n'
            % (to.encode(), n, n)
        )


def _keep_best(best: dict[str, float], name: str, measured: Callable[[], float]) -> None:
    _clean()
    best[name] = max(best.get(name, 0.0), measured())


def _clean() -> None:
    """Empty tables, as they were before the first run."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE otp_messages_message, otp_messages_ready, otp_messages_campaign CASCADE")
        cursor.execute("CHECKPOINT")


def _load(client: Any, upload: IO[bytes]) -> float:
    """Rows per second of the loader."""
    from otp_service.core.clock import utc_now
    from otp_service.messages import campaign_lines, campaign_load, campaigns

    upload.seek(0)
    started = time.perf_counter()
    now = utc_now()
    asked = campaigns.NewCampaign(key="bench", form="ndjson")
    lines = campaign_lines.Lines(upload, seed=asked.seed)
    campaign = campaigns.begin(client.pk, asked, lines, now=now)
    campaign_load.load(campaign, lines, campaign_lines.ndjson(lines), now=now)
    campaigns.finish(campaign, lines, now=now)
    rate = LINES / (time.perf_counter() - started)
    campaign.refresh_from_db()
    if (campaign.accepted, campaign.refused) != (LINES - LINES // BAD_EVERY, LINES // BAD_EVERY):
        raise RuntimeError(f"{campaign.accepted:,} accepted and {campaign.refused:,} refused")
    print(f"campaign: {rate:,.0f} rows/s", flush=True)
    return rate


def _write_rows(rows: IO[bytes]) -> None:
    """What the loader stored, as COPY gives it out."""
    from django.db import connection

    with connection.cursor() as cursor, cursor.copy(f"COPY {_TABLE} TO STDOUT") as copy:
        for block in copy:
            rows.write(block)


def _blocks(rows: IO[bytes]) -> Iterator[bytes]:
    rows.seek(0)
    while block := rows.read(_BLOCK):
        yield block


_TABLE = "otp_messages_message"


def _copy(rows: IO[bytes]) -> float:
    """Rows per second of COPY."""
    from django.db import connection

    started = time.perf_counter()
    with connection.cursor() as cursor:
        # The campaign's flows went with it; a row's own columns are what is measured.
        cursor.execute(f"ALTER TABLE {_TABLE} DISABLE TRIGGER ALL")
        with cursor.copy(f"COPY {_TABLE} FROM STDIN") as copy:
            for block in _blocks(rows):
                copy.write(block)
        count = cursor.rowcount
        cursor.execute(f"ALTER TABLE {_TABLE} ENABLE TRIGGER ALL")
    rate: float = count / (time.perf_counter() - started)
    print(f"COPY: {rate:,.0f} rows/s", flush=True)
    return rate
