"""Receipts that came before we knew what they are about."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class OrphanReceipt(models.Model):
    """A receipt that names only the other side's id, which no attempt of ours carries yet.

    The host was faster than our commit, or its first webhook got lost. Matched when an attempt learns that
    id, else removed by a sweep after a day. `scope` is the host: ids are unique per host only.
    """

    scope = models.CharField(max_length=64)
    provider_message_id = models.CharField(max_length=200)
    receipt = models.JSONField(help_text="state, service, error code and time; never a text")
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(name="orphan_has_an_id", condition=~Q(provider_message_id="")),
        ]
        indexes = [
            models.Index(fields=["scope", "provider_message_id"], name="orphan_by_id"),
            models.Index(fields=["at"], name="orphan_to_remove"),
        ]
