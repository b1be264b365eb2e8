"""Campaigns as a whole: begun once for each key, paused, resumed and cancelled by their flows.

To pause half a million messages changes the campaign's row and a handful of flows. Locks: campaign, flows, messages;
a claim holds its flows, so what waits for them here has the last word.
"""

from __future__ import annotations

import enum
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db import connection, transaction
from django.db.models import QuerySet, Sum

from otp_service.core.errors import ServiceError
from otp_service.events import log as events
from otp_service.messages import queue
from otp_service.messages.campaign_lines import Lines
from otp_service.messages.campaign_load import CampaignCancelled, hold
from otp_service.messages.models import Campaign, CampaignCount, Flow
from otp_service.messages.rules import MessageStatus

State = Campaign.State


class UploadReused(ServiceError):
    """The key was used for another upload."""

    status = 422
    code = "idempotency_key_reused"
    title = "The request contradicts an earlier one"

    def __init__(self) -> None:
        super().__init__(
            "This Idempotency-Key was used for another upload, or with other parameters: take a new key for a new one."
        )


@dataclass(frozen=True, slots=True)
class NewCampaign:
    """What a client says of a campaign beside its lines."""

    key: str
    form: str
    name: str = ""
    weight: int = 1
    start: bool = True

    @property
    def seed(self) -> str:
        """What an upload with the same key must repeat beside its bytes."""
        return f"{self.form} {self.weight} {self.start} {self.name}"


def begin(client_id: int, asked: NewCampaign, lines: Lines, *, now: datetime) -> Campaign:
    """The campaign of this key: a new one, or that of an earlier upload, behind whose end `lines` then stands.

    Raises UploadReused if the earlier upload was another one.
    """
    new = Campaign(
        client_id=client_id,
        key=asked.key,
        form=asked.form,
        name=asked.name,
        weight=asked.weight,
        starts=asked.start,
        fingerprint=lines.at_start[0],
        created_at=now,
    )
    Campaign.objects.bulk_create([new], ignore_conflicts=True)
    campaign = Campaign.objects.get(client_id=client_id, key=asked.key)
    _go_on_behind(campaign, lines)
    return campaign


def _go_on_behind(campaign: Campaign, lines: Lines) -> None:
    if campaign.bytes_read:
        lines.skip(to_offset=campaign.bytes_read, to_number=campaign.lines_read)
    digests = lines.fingerprints() if campaign.bytes_read else lines.at_start
    if not any(hmac.compare_digest(bytes(campaign.fingerprint), digest) for digest in digests):
        raise UploadReused
    if campaign.loaded_at is not None and not lines.is_at_end():
        raise UploadReused


def finish(campaign: Campaign, lines: Lines, *, now: datetime) -> None:
    """The upload is whole: the flows go on, unless the campaign is to wait. Raises what `hold` raises."""
    with transaction.atomic():
        hold(campaign)
        row = Campaign.objects.get(pk=campaign.pk)
        row.bytes_read, row.lines_read, row.fingerprint = lines.offset, lines.number, lines.fingerprints()[0]
        row.loaded_at, row.state = now, State.RUNNING if row.starts else State.PAUSED
        row.save(update_fields=["bytes_read", "lines_read", "fingerprint", "loaded_at", "state"])
        if row.starts:
            _set_flows(row, Flow.State.ON)


# --- pause, resume, cancel -----------------------------------------------------------------------------------


class Change(enum.StrEnum):
    """What may be asked of a campaign, by its client or by a person."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"


#: What a change makes of a campaign that is whole, and of its flows.
_ENDS = {
    Change.PAUSE: (State.PAUSED, Flow.State.PAUSED),
    Change.RESUME: (State.RUNNING, Flow.State.ON),
    Change.CANCEL: (State.CANCELLED, Flow.State.CANCELLED),
}


def change(campaigns: QuerySet[Campaign], asked: Change, *, now: datetime, by: str) -> bool:
    """Pause, resume or cancel the one campaign of `campaigns`; False if it is so already.

    When a pause or a cancel has returned, no message is claimed any more. Raises Campaign.DoesNotExist, and
    CampaignCancelled for one that is to go on although it was cancelled.
    """
    with transaction.atomic():
        campaign = campaigns.select_for_update(no_key=True, of=("self",)).get()
        if not _apply(campaign, asked):
            return False
        events.record(f"campaign.{_ENDS[asked][0]}", at=now, subject_uuid=campaign.uuid, data={"by": by})
        return True


def _apply(campaign: Campaign, asked: Change) -> bool:
    state, flows = _ENDS[asked]
    if campaign.state == state:
        return False
    if campaign.state == State.CANCELLED:
        raise CampaignCancelled("It was cancelled, and that is for good: upload another one with a new key.")
    if campaign.state == State.LOADING and asked is not Change.CANCEL:
        return _say_whether_it_starts(campaign, asked is Change.RESUME)
    campaign.state = state
    campaign.save(update_fields=["state"])
    _set_flows(campaign, flows)
    return True


def _say_whether_it_starts(campaign: Campaign, starts: bool) -> bool:
    """While it is loading it is paused anyhow: what was asked holds from the end of its upload."""
    changed = campaign.starts != starts
    campaign.starts = starts
    campaign.save(update_fields=["starts"])
    return changed


def _set_flows(campaign: Campaign, state: Flow.State) -> None:
    """In order of ids, as everybody locks them; waits for the claims that hold them, and for no later one."""
    flow_ids = list(Flow.objects.filter(campaign=campaign).order_by("id").values_list("pk", flat=True))
    queue.wait_for_claims(flow_ids)
    Flow.objects.filter(pk__in=flow_ids).update(state=state)


# --- how far it is -------------------------------------------------------------------------------------------


def counts(campaigns: Iterable[Campaign]) -> Mapping[int, dict[str, int]]:
    """By campaign: how many of its messages stand where. Sums of counts, whatever the number of messages."""
    found = {campaign.pk: dict.fromkeys(map(str, MessageStatus), 0) for campaign in campaigns}
    rows = CampaignCount.objects.filter(campaign__in=found.keys()).values("campaign_id", "status")
    for row in rows.annotate(messages=Sum("n")).order_by():
        found[row["campaign_id"]][row["status"]] = row["messages"]
    return found


# Of campaigns with many rows only: what is folded already is not written again and again.
_FOLD = f"""
WITH many AS MATERIALIZED (
  SELECT campaign_id FROM {CampaignCount._meta.db_table} GROUP BY campaign_id HAVING count(*) > %(many)s
  ORDER BY campaign_id LIMIT 1
), old AS (
  DELETE FROM {CampaignCount._meta.db_table} WHERE id = ANY(ARRAY(
    SELECT id FROM {CampaignCount._meta.db_table} WHERE campaign_id = (SELECT campaign_id FROM many)
    ORDER BY id LIMIT %(batch)s FOR UPDATE SKIP LOCKED
  )) RETURNING campaign_id, status, n
), summed AS (
  INSERT INTO {CampaignCount._meta.db_table} (campaign_id, status, n)
  SELECT campaign_id, status, sum(n) FROM old GROUP BY campaign_id, status HAVING sum(n) <> 0
)
SELECT count(*) FROM old
"""  # noqa: S608 - the table's own name


def fold_counts(*, batch: int = 10_000, many: int = 50) -> int:
    """Sum up the counts of a campaign that has more than `many` rows; returns how many rows. Safe beside itself."""
    with connection.cursor() as cursor:
        cursor.execute(_FOLD, {"batch": batch, "many": many})
        (folded,) = cursor.fetchone()
    return int(folded)
