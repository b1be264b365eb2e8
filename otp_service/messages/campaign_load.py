"""Loading a campaign: some thousand lines at a time, each chunk in a transaction of its own.

A chunk's messages, their places in the queue, what was refused, and how far the upload was read come to be together:
whatever ends the upload in between, the same upload again goes on behind the last chunk. The flows are paused until
all is there. Locks: campaign, flows, messages.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, islice
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F

from otp_service.core.errors import ServiceError
from otp_service.messages.campaign_lines import Fault, Lines, Record
from otp_service.messages.campaign_rows import Row, Rows
from otp_service.messages.intake import COLUMNS, insert_of
from otp_service.messages.models import Campaign, CampaignCount, CampaignRefusal, Flow, Ready
from otp_service.messages.rules import Lane, MessageStatus

CHUNK = 5_000  # records
MAX_KEPT_REFUSALS = 100_000  # of a campaign; all of them are counted

_FlowKind = tuple[tuple[str, ...], tuple[str, ...]]  # pools, channels
_REPEATED = Fault("repeated", "The reference stands in an earlier line: each line needs its own, or none.", "reference")

#: Columns that are the same in all messages of a campaign, or made here.
_SAME = {
    "uuid": "gen_random_uuid()",
    "campaign_id": "%(campaign)s",
    "lane": f"'{Lane.PROMO.value}'",
    "supersede_key": "''",
    "copies_left": "%(copies)s",
}
#: What is copied, in the order of a Row; metadata is copied as it is written.
_COPIED = (
    {"line": "bigint"} | {name: kind for name, kind in COLUMNS.items() if name not in _SAME} | {"metadata": "text"}
)
_VALUES = {name: f'"{name}"' for name in COLUMNS} | {"metadata": "metadata::jsonb"} | _SAME
_DEFINED = ", ".join(f'"{name}" {kind}' for name, kind in _COPIED.items())
_STAGE = f"CREATE TEMP TABLE campaign_chunk ({_DEFINED}) ON COMMIT DROP"
_COPY = "COPY campaign_chunk FROM STDIN (FORMAT BINARY)"

# Returns the lines whose reference was there before.
_STORE = f"""
WITH added AS (
  {insert_of(_VALUES)} FROM campaign_chunk
  ON CONFLICT (campaign_id, reference) WHERE campaign_id IS NOT NULL AND reference <> '' DO NOTHING
  RETURNING id, flow_id, LEAST(first_attempt_by, expires_at) AS due_at, reference
), ready AS (
  INSERT INTO {Ready._meta.db_table} (message_id, flow_id, due_at) SELECT id, flow_id, due_at FROM added
)
SELECT chunk.line FROM campaign_chunk chunk
WHERE reference <> '' AND NOT EXISTS (SELECT 1 FROM added WHERE added.reference = chunk.reference)
"""  # noqa: S608 - names of our tables and columns


class UploadOvertaken(ServiceError):
    """Somebody else loads the same campaign."""

    status = 409
    code = "upload_in_progress"
    title = "The request conflicts with another"

    def __init__(self) -> None:
        super().__init__(
            "Another upload with this Idempotency-Key is being read: send it again later, with the same key and body.",
            retry_after_s=5,
        )


class CampaignCancelled(ServiceError):
    """The campaign was cancelled while its upload was read, or before."""

    status = 409
    code = "campaign_cancelled"
    title = "The campaign was cancelled"


@dataclass(slots=True)
class _Chunk:
    """What some lines became, and how far the upload was read with them."""

    rows: list[Row] = field(default_factory=list)
    refused: dict[int, Fault] = field(default_factory=dict)  # by line
    bytes_read: int = 0
    lines_read: int = 0
    fingerprint: bytes = b""


def load(campaign: Campaign, lines: Lines, records: Iterable[Record], *, now: datetime) -> None:
    """Store what `records` still has; `campaign` follows. Raises UploadOvertaken and CampaignCancelled."""
    flows: dict[_FlowKind, int] = {}
    with closing(_one_ahead(_chunks(lines, records, now))) as chunks:
        for chunk in chunks:
            _store(campaign, chunk, flows, now)


def _one_ahead(chunks: Iterator[_Chunk]) -> Generator[_Chunk, None, None]:
    """The next chunk is made while PostgreSQL stores the one before."""
    with ThreadPoolExecutor(1) as maker:
        upcoming = maker.submit(next, chunks, None)
        while (chunk := upcoming.result()) is not None:
            upcoming = maker.submit(next, chunks, None)
            yield chunk


def _chunks(lines: Lines, records: Iterable[Record], now: datetime) -> Iterator[_Chunk]:
    """Touches no database: it runs in a thread of its own."""
    rows, remaining = Rows(now), iter(records)
    while (first := next(remaining, None)) is not None:
        chunk, references = _Chunk(), set()  # type: tuple[_Chunk, set[str]]
        for line, found in chain([first], islice(remaining, CHUNK - 1)):
            row = found if isinstance(found, Fault) else rows.row(line, found)
            if isinstance(row, Fault):
                chunk.refused[line] = row
            elif row.reference and row.reference in references:
                chunk.refused[line] = _REPEATED
            else:
                references.add(row.reference)
                chunk.rows.append(row)
        chunk.bytes_read, chunk.lines_read, chunk.fingerprint = lines.offset, lines.number, lines.fingerprints()[0]
        yield chunk


def _store(campaign: Campaign, chunk: _Chunk, flows: dict[_FlowKind, int], now: datetime) -> None:
    with transaction.atomic():
        kept = hold(campaign)
        _add_flows(campaign, flows, {(row.pools, row.channels) for row in chunk.rows})
        repeated = _insert(campaign, chunk.rows, flows, now) if chunk.rows else []
        chunk.refused |= dict.fromkeys(repeated, _REPEATED)
        _keep(campaign, chunk.refused, room=MAX_KEPT_REFUSALS - kept)
        accepted = len(chunk.rows) - len(repeated)
        if accepted:
            CampaignCount.objects.create(campaign=campaign, status=MessageStatus.QUEUED.value, n=accepted)
        Campaign.objects.filter(pk=campaign.pk).update(
            bytes_read=chunk.bytes_read,
            lines_read=chunk.lines_read,
            fingerprint=chunk.fingerprint,
            accepted=F("accepted") + accepted,
            refused=F("refused") + len(chunk.refused),
        )
    campaign.bytes_read = chunk.bytes_read


def hold(campaign: Campaign) -> int:
    """Lock the campaign as it was when it was read; returns how many lines it has refused.

    Raises UploadOvertaken and CampaignCancelled.
    """
    row = Campaign.objects.select_for_update(no_key=True).only("state", "bytes_read", "refused").get(pk=campaign.pk)
    if row.state == Campaign.State.CANCELLED:
        raise CampaignCancelled("It was cancelled: nothing more is read. Start another one with a new Idempotency-Key.")
    if row.bytes_read != campaign.bytes_read or row.state != Campaign.State.LOADING:
        raise UploadOvertaken
    return row.refused


def _add_flows(campaign: Campaign, flows: dict[_FlowKind, int], kinds: set[_FlowKind]) -> None:
    """Make the flows that are missing, paused, and remember the id of each."""
    missing = sorted(kinds - flows.keys())
    if not missing:
        return
    new = [
        Flow(
            client_id=campaign.client_id,
            campaign=campaign,
            lane=Lane.PROMO.value,
            pools=list(pools),
            channels=list(channels),
            weight=campaign.weight,
            state=Flow.State.PAUSED,
        )
        for pools, channels in missing
    ]
    Flow.objects.bulk_create(new, ignore_conflicts=True)  # an earlier upload may have made some
    for pools, channels, flow_id in Flow.objects.filter(campaign=campaign).values_list("pools", "channels", "id"):
        flows[tuple(pools), tuple(channels)] = flow_id


def _insert(campaign: Campaign, rows: Sequence[Row], flows: Mapping[_FlowKind, int], now: datetime) -> list[int]:
    """Store messages; returns the lines whose reference an earlier line had."""
    with connection.cursor() as cursor:
        cursor.execute(_STAGE)
        with cursor.copy(_COPY) as copy:
            copy.set_types(list(_COPIED.values()))
            for row in rows:
                copy.write_row(_written(row, flows))
        parameters: dict[str, Any] = {
            "client_id": campaign.client_id,
            "campaign": campaign.pk,
            "created_at": now,
            "copies": settings.DUPLICATE_BUDGET,
        }
        cursor.execute(_STORE, parameters)
        repeated = [line for (line,) in cursor.fetchall()]
        cursor.execute("DROP TABLE campaign_chunk")
    return repeated


def _written(row: Row, flows: Mapping[_FlowKind, int]) -> tuple[Any, ...]:
    line, pools, to, to_hash, text, region, channels, *rest = row
    return (line, flows[pools, channels], to, to_hash, text, region, list(channels), *rest)


def _keep(campaign: Campaign, refused: Mapping[int, Fault], *, room: int) -> None:
    """Write down why lines were refused, the first ones first, as long as there is room."""
    CampaignRefusal.objects.bulk_create(
        CampaignRefusal(campaign=campaign, line=line, field=fault.field, code=fault.code, detail=fault.detail)
        for line, fault in islice(sorted(refused.items(), key=lambda item: item[0]), max(room, 0))
    )
