"""What recipients want, and which routes called their numbers invalid. No number is kept: everything is by its hash."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Length
from django.db.models.lookups import Exact

from otp_service.messages.rules import Channel

_CHANNELS = [channel.value for channel in Channel]


class Recipient(models.Model):
    """What one number wants of us, whichever client writes to it.

    Quiet hours are in `time_zone`, the number's own at the time that they were set; they may go over midnight.
    """

    recipient_hash = models.BinaryField(max_length=32, unique=True)
    refused_channels = ArrayField(models.CharField(max_length=16), default=list, blank=True)
    quiet_from = models.TimeField(null=True, blank=True)
    quiet_to = models.TimeField(null=True, blank=True)
    time_zone = models.CharField(max_length=64, blank=True, help_text="IANA name, as in Europe/Madrid")
    stopped_at = models.DateTimeField(null=True, blank=True, help_text="when it answered STOP, if that still holds")
    changed_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(name="recipient_hash_is_32_bytes", condition=Exact(Length("recipient_hash"), 32)),
            models.CheckConstraint(
                name="recipient_channels_known", condition=Q(refused_channels__contained_by=_CHANNELS)
            ),
            models.CheckConstraint(
                name="recipient_quiet_hours_are_whole",
                condition=Q(quiet_from__isnull=True, quiet_to__isnull=True, time_zone="")
                | (Q(quiet_from__isnull=False, quiet_to__isnull=False) & ~Q(time_zone="")),
            ),
            models.CheckConstraint(name="recipient_quiet_hours_end", condition=~Q(quiet_from=F("quiet_to"))),
        ]

    def __str__(self) -> str:
        return f"recipient {bytes(self.recipient_hash).hex()[:12]}"


class InvalidReport(models.Model):
    """A route said that a number cannot be: the last time that it did. The next delivery to the number removes it."""

    recipient_hash = models.BinaryField(max_length=32)
    route = models.CharField(max_length=64)
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="invalid_report_hash_is_32_bytes", condition=Exact(Length("recipient_hash"), 32)
            ),
            models.UniqueConstraint(fields=["recipient_hash", "route"], name="invalid_report_once"),
        ]
        indexes = [models.Index(fields=["at"], name="invalid_report_to_remove")]

    def __str__(self) -> str:
        return f"recipient {bytes(self.recipient_hash).hex()[:12]} by {self.route}"
