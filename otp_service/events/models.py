"""Event: an append-only row that says that something changed."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q


class Event(models.Model):
    """One change, written in the transaction that made it.

    No foreign keys: `client_id` names the client that may know of it (null: the whole fleet), and
    `subject_uuid` what it is about. `data` never holds a text, a code or a full number.
    """

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    type = models.CharField(max_length=64)
    at = models.DateTimeField()
    client_id = models.BigIntegerField(null=True, blank=True)
    subject_uuid = models.UUIDField()
    data = models.JSONField(default=dict)
    fanned_out_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            # Readers take what has no mark, never "id greater than the last": ids are not in commit order.
            models.Index(fields=["id"], name="event_to_fan_out", condition=Q(fanned_out_at__isnull=True)),
            models.Index(fields=["subject_uuid", "id"], name="event_by_subject"),
            # What people and the fleet did, for those who look back. Several events are written for each message, and
            # they are looked for by their subject: here they would cost a write each.
            models.Index(fields=["type", "-id"], name="event_by_type", condition=Q(client_id__isnull=True)),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.uuid}"
