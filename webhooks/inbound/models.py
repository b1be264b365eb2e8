"""What was posted to us, as it came."""

from __future__ import annotations

from django.db import models

from otp_service.web.fields import EncryptedTextField
from servers.models import Host


class RawCall(models.Model):
    """One accepted call of a relay host, kept as it came: it may echo texts, so it is encrypted."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="+")
    received_at = models.DateTimeField()
    body = EncryptedTextField()

    class Meta:
        indexes = [models.Index(fields=["received_at"], name="raw_call_to_remove")]


class ProviderCall(models.Model):
    """One genuine call of a provider, kept as it came: address and body may name recipients, so they are encrypted."""

    route = models.CharField(max_length=64)
    received_at = models.DateTimeField()
    said = EncryptedTextField()

    class Meta:
        indexes = [models.Index(fields=["received_at"], name="provider_call_to_remove")]


class RelayEvent(models.Model):
    """An event of a host that was applied: a repetition of its id changes nothing."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="+", db_index=False)
    event_id = models.UUIDField()
    type = models.CharField(max_length=64)
    received_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["host", "event_id"], name="relay_event_once")]
        indexes = [models.Index(fields=["received_at"], name="relay_event_to_remove")]
