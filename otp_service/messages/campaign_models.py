"""Campaigns, the lines of their uploads that were refused, and how many of their messages stand where."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Length
from django.db.models.lookups import Exact

from otp_service.messages.rules import MessageStatus

MAX_WEIGHT = 100


class Campaign(models.Model):
    """Promotional messages that were uploaded in one piece, and are paused, resumed and cancelled as one.

    `fingerprint` is of the upload's first `bytes_read` bytes: the same upload again goes on from there.
    """

    class State(models.TextChoices):
        LOADING = "loading"  # its upload is not whole yet: nothing is sent; the loader moves it on
        RUNNING = "running"  # its messages are sent; a client or a person moves it on
        PAUSED = "paused"  # nothing is sent until it is resumed
        CANCELLED = "cancelled"  # end: what had not been handed over is not sent

    class Form(models.TextChoices):
        NDJSON = "ndjson"
        CSV = "csv"

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    client = models.ForeignKey(
        "otp_messages.Client", on_delete=models.CASCADE, related_name="campaigns", db_index=False
    )
    name = models.CharField(max_length=100, blank=True)
    key = models.CharField(max_length=255, help_text="the Idempotency-Key of its upload")
    form = models.CharField(max_length=8, choices=Form.choices)
    weight = models.PositiveSmallIntegerField(default=1, help_text="its share beside other promo traffic")
    starts = models.BooleanField(default=True, help_text="whether it is sent as soon as its upload is whole")
    state = models.CharField(max_length=16, choices=State.choices, default=State.LOADING)
    fingerprint = models.BinaryField(max_length=32, help_text="keyed hash of what was read: no number in clear")
    bytes_read = models.BigIntegerField(default=0)
    lines_read = models.BigIntegerField(default=0)
    accepted = models.BigIntegerField(default=0)
    refused = models.BigIntegerField(default=0)
    created_at = models.DateTimeField()
    loaded_at = models.DateTimeField(null=True, blank=True, help_text="when its upload was whole")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["client", "key"], name="campaign_key_once"),
            models.CheckConstraint(
                name="campaign_state_known",
                condition=Q(state__in=["loading", "running", "paused", "cancelled"]),
            ),
            models.CheckConstraint(name="campaign_form_known", condition=Q(form__in=["ndjson", "csv"])),
            models.CheckConstraint(
                name="campaign_runs_when_it_is_whole",
                condition=Q(state="loading", loaded_at__isnull=True)
                | Q(state__in=["running", "paused"], loaded_at__isnull=False)
                | Q(state="cancelled"),
            ),
            models.CheckConstraint(name="campaign_weight_bounded", condition=Q(weight__gte=1, weight__lte=MAX_WEIGHT)),
            models.CheckConstraint(
                name="campaign_lines_add_up",
                condition=Q(accepted__gte=0, refused__gte=0, lines_read__gte=F("accepted") + F("refused")),
            ),
            models.CheckConstraint(name="campaign_fingerprint_is_32_bytes", condition=Exact(Length("fingerprint"), 32)),
        ]
        indexes = [models.Index(fields=["client", "-id"], name="campaign_of_client")]

    def __str__(self) -> str:
        return self.name or str(self.uuid)


class CampaignRefusal(models.Model):
    """A line of an upload that was not accepted, and why. Never its text, and never a whole number."""

    campaign = models.ForeignKey(Campaign, on_delete=models.CASCADE, related_name="refusals", db_index=False)
    line = models.BigIntegerField(help_text="the first line of the upload is 1")
    field = models.CharField(max_length=64, blank=True)
    code = models.CharField(max_length=64)
    detail = models.CharField(max_length=500)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["campaign", "line"], name="campaign_refusal_once")]


class CampaignCount(models.Model):
    """`n` more (or less) messages of a campaign came to stand at `status`; what stands there is the sum.

    Rows are only added: by the loader, and by a trigger of the message table, so that the sums are exact whoever
    moves a message. `campaign_counts.fold` keeps them few.
    """

    campaign = models.ForeignKey(Campaign, on_delete=models.CASCADE, related_name="counts")
    status = models.CharField(max_length=16, choices=[(s.value, s.value) for s in MessageStatus])
    n = models.BigIntegerField()
