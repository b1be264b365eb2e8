"""Clients, their keys and messages, and the attempts to deliver them."""

from __future__ import annotations

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Length
from django.db.models.lookups import Exact

from otp_service.core.outcomes import ErrorClass, Submission
from otp_service.messages.campaign_models import Campaign, CampaignCount, CampaignRefusal
from otp_service.messages.rules import (
    ENDED,
    AttemptState,
    Channel,
    Lane,
    MessageStatus,
    OnLateFirst,
    OnUnknown,
    Reason,
)
from otp_service.web.fields import EncryptedTextField
from servers.models import Server

__all__ = [
    "ApiKey",
    "Attempt",
    "Campaign",
    "CampaignCount",
    "CampaignRefusal",
    "Client",
    "Flow",
    "IdempotencyKey",
    "Message",
    "Ready",
]

_ENDED = sorted(status.value for status in ENDED)


class Client(models.Model):
    """An application that posts messages."""

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    name = models.CharField(max_length=100, unique=True)
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name


class ApiKey(models.Model):
    """A key of a client. Only a prefix and a SHA-256 of its 256 random bits are kept."""

    client = models.ForeignKey(Client, on_delete=models.CASCADE, related_name="api_keys")
    prefix = models.CharField(max_length=12, unique=True, help_text="the part that tells keys apart; no secret")
    digest = models.BinaryField(max_length=32)
    scopes = ArrayField(models.CharField(max_length=32), default=list)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(name="api_key_digest_is_32_bytes", condition=Exact(Length("digest"), 32)),
        ]

    def __str__(self) -> str:
        return f"{self.prefix}…"


class Flow(models.Model):
    """The unit of fairness and pausing: messages of one client, lane and campaign with the same possible routes."""

    class State(models.TextChoices):
        ON = "on"
        PAUSED = "paused"
        CANCELLED = "cancelled"  # for good: what is still queued of it is ended by a sweep

    client = models.ForeignKey(Client, on_delete=models.CASCADE, related_name="flows")
    lane = models.CharField(max_length=16)
    pools = ArrayField(models.CharField(max_length=8), help_text="regions that may serve it, in order")
    channels = ArrayField(
        models.CharField(max_length=16),
        db_default=Value([Channel.IMESSAGE.value, Channel.SMS.value]),
        help_text="kinds of ways out, the preferred one first",
    )
    campaign = models.ForeignKey(
        Campaign, on_delete=models.CASCADE, null=True, blank=True, related_name="flows", db_index=False
    )
    weight = models.PositiveSmallIntegerField(default=1, db_default=1, help_text="its share beside others of its lane")
    state = models.CharField(max_length=16, choices=State.choices, default=State.ON)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["client", "lane", "pools", "channels"],
                name="flow_once_of_client",
                condition=Q(campaign__isnull=True),
            ),
            models.UniqueConstraint(
                fields=["campaign", "pools", "channels"],
                name="flow_once_of_campaign",
                condition=Q(campaign__isnull=False),
            ),
            models.CheckConstraint(name="flow_lane_known", condition=Q(lane__in=[lane.value for lane in Lane])),
            models.CheckConstraint(name="flow_is_in_a_state", condition=Q(state__in=["on", "paused", "cancelled"])),
            models.CheckConstraint(name="flow_has_a_pool", condition=Q(pools__len__gt=0)),
            models.CheckConstraint(name="flow_has_weight", condition=Q(weight__gte=1)),
        ]
        indexes = [
            # The dispatcher looks for otp by flows, of which campaigns make any number.
            models.Index(fields=["id"], name="flow_of_otp", condition=Q(lane=Lane.OTP.value, state="on")),
        ]

    def __str__(self) -> str:
        return f"{self.lane} of client {self.client_id} to {', '.join(self.pools)}"


class Message(models.Model):
    """What a client asked to have delivered, once."""

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    client = models.ForeignKey(Client, on_delete=models.PROTECT, related_name="messages", db_index=False)
    flow = models.ForeignKey(Flow, on_delete=models.PROTECT, related_name="messages", db_index=False)
    # The flow's, which has a foreign key of its own: it stands here for the index of references.
    campaign = models.ForeignKey(
        Campaign, on_delete=models.PROTECT, null=True, blank=True, related_name="+", db_index=False, db_constraint=False
    )
    lane = models.CharField(max_length=16, choices=[(lane.value, lane.value) for lane in Lane])
    to = EncryptedTextField()
    to_hash = models.BinaryField(max_length=32)
    text = EncryptedTextField()
    region = models.CharField(max_length=8, blank=True, help_text="the pool that the client asked for, if any")
    channels = ArrayField(models.CharField(max_length=16))
    addresses = EncryptedTextField(
        null=True, blank=True, help_text="where it goes on channels that numbers do not reach: JSON by channel"
    )
    sender_name = models.CharField(max_length=20, blank=True, db_default="", help_text="that it is to be sent under")
    reference = models.CharField(max_length=255, blank=True)
    supersede_key = models.CharField(
        max_length=255, blank=True, db_default="", help_text="a newer message of this key cancels it while it is unsent"
    )
    metadata = models.JSONField(default=dict)

    created_at = models.DateTimeField(help_text="when it was accepted")
    event_at = models.DateTimeField(help_text="when the client's own event happened: its lifetime counts from here")
    expires_at = models.DateTimeField()
    first_attempt_by = models.DateTimeField(null=True, blank=True)
    on_late_first = models.CharField(max_length=8, choices=[(o.value, o.value) for o in OnLateFirst])
    max_attempts = models.PositiveSmallIntegerField()
    max_routes = models.PositiveSmallIntegerField(default=3, db_default=3, help_text="that it may be tried over")
    on_unknown = models.CharField(
        max_length=8,
        choices=[(o.value, o.value) for o in OnUnknown],
        default=OnUnknown.HOLD.value,
        db_default=OnUnknown.HOLD.value,
    )
    copies_left = models.PositiveSmallIntegerField(
        default=1, db_default=1, help_text="extra copies that may still leave while nobody knows whether one has"
    )

    status = models.CharField(max_length=16, choices=[(s.value, s.value) for s in MessageStatus])
    attempts_made = models.PositiveSmallIntegerField(default=0, help_text="the number of its newest attempt")
    attempts_charged = models.PositiveSmallIntegerField(default=0, help_text="those that max_attempts counts")
    run_after = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    withdrawn = models.CharField(
        max_length=32, blank=True, db_default="", help_text="why nothing more of it may leave, once it was handed over"
    )
    final_reason = models.CharField(max_length=32, blank=True)
    final_error_code = models.IntegerField(null=True, blank=True)
    final_route = models.CharField(max_length=64, blank=True)
    final_server = models.ForeignKey(Server, on_delete=models.SET_NULL, null=True, blank=True, db_index=False)
    refusals = models.JSONField(
        null=True, blank=True, help_text="why no route took it when it was last looked at: reasons by route"
    )

    class Meta:
        permissions = [("reveal_message", "Can see the text and the whole number of a message")]
        # Few indexes, and none on a column that changes before the end: updates stay inside their page (HOT).
        constraints = [
            models.CheckConstraint(name="message_lane_known", condition=Q(lane__in=[lane.value for lane in Lane])),
            models.CheckConstraint(
                name="message_status_known", condition=Q(status__in=[s.value for s in MessageStatus])
            ),
            models.CheckConstraint(
                name="message_finished_iff_ended",
                condition=Q(status__in=_ENDED, finished_at__isnull=False)
                | (~Q(status__in=_ENDED) & Q(finished_at__isnull=True)),
            ),
            models.CheckConstraint(
                name="message_run_after_iff_waiting",
                condition=Q(status=MessageStatus.WAITING.value, run_after__isnull=False)
                | (~Q(status=MessageStatus.WAITING.value) & Q(run_after__isnull=True)),
            ),
            models.CheckConstraint(
                name="message_reason_iff_not_delivered",
                condition=Q(status__in=["failed", "expired", "cancelled"], final_reason__in=[r.value for r in Reason])
                | (~Q(status__in=["failed", "expired", "cancelled"]) & Q(final_reason="")),
            ),
            models.CheckConstraint(name="message_lifetime", condition=Q(expires_at__gt=F("event_at"))),
            models.CheckConstraint(
                name="message_attempts_bounded", condition=Q(attempts_charged__lte=F("attempts_made"))
            ),
            models.CheckConstraint(
                name="message_charged_within_max", condition=Q(attempts_charged__lte=F("max_attempts"))
            ),
            models.CheckConstraint(name="message_may_be_attempted", condition=Q(max_attempts__gte=1)),
            models.CheckConstraint(
                name="message_on_late_first_known", condition=Q(on_late_first__in=[o.value for o in OnLateFirst])
            ),
            models.CheckConstraint(name="message_may_have_a_route", condition=Q(max_routes__gte=1)),
            models.CheckConstraint(
                name="message_on_unknown_known", condition=Q(on_unknown__in=[o.value for o in OnUnknown])
            ),
            models.CheckConstraint(name="message_to_hash_is_32_bytes", condition=Exact(Length("to_hash"), 32)),
            models.UniqueConstraint(
                fields=["campaign", "reference"],
                name="message_reference_once",
                condition=Q(campaign__isnull=False) & ~Q(reference=""),
            ),
        ]
        indexes = [
            models.Index(fields=["client", "-id"], name="message_of_client"),
            models.Index(fields=["client", "reference"], name="message_by_reference", condition=~Q(reference="")),
            models.Index(fields=["to_hash"], name="message_by_recipient"),
            # No condition on the state: an update must not leave the page for it.
            models.Index(
                fields=["client", "supersede_key"], name="message_to_supersede", condition=~Q(supersede_key="")
            ),
            models.Index(fields=["expires_at"], name="message_to_expire", condition=Q(finished_at__isnull=True)),
            models.Index(fields=["run_after"], name="message_to_stage", condition=Q(run_after__isnull=False)),
            models.Index(
                fields=["first_attempt_by"],
                name="message_late_first",
                condition=Q(finished_at__isnull=True, on_late_first=OnLateFirst.EXPIRE.value),
            ),
        ]

    def __str__(self) -> str:
        return str(self.uuid)


class Ready(models.Model):
    """A message that may be claimed now. Claiming deletes the row; the wide message row stays where it is.

    `due_at` orders a flow: the earliest first. No foreign keys: this table is written and deleted at the
    speed of the dispatcher, always in a transaction that holds the message.
    """

    message_id = models.BigIntegerField(primary_key=True)
    flow_id = models.BigIntegerField()
    due_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "ready"
        indexes = [models.Index(fields=["flow_id", "due_at", "message_id"], name="ready_claim")]


class Attempt(models.Model):
    """One submission of a message over one route, and for iMessage one server."""

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="attempts", db_index=False)
    number = models.PositiveSmallIntegerField(help_text="1 is the first attempt of its message")
    route = models.CharField(max_length=64)
    server = models.ForeignKey(
        Server, on_delete=models.PROTECT, null=True, blank=True, related_name="+", db_index=False
    )
    is_last = models.BooleanField(help_text="decided before the call: no further attempt is possible")
    state = models.CharField(max_length=16, choices=[(s.value, s.value) for s in AttemptState])
    token = models.UUIDField(help_text="names the claim: what comes back under another token is not its result")
    lease_until = models.DateTimeField(help_text="by the database's clock; later it is rescued")
    claimed_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True, blank=True)
    check_at = models.DateTimeField(null=True, blank=True, help_text="when the other side is asked about it")
    checks_made = models.PositiveSmallIntegerField(default=0)
    submission = models.CharField(max_length=16, blank=True, choices=[(s.value, s.value) for s in Submission])
    provider_message_id = models.CharField(max_length=200, blank=True)
    service = models.CharField(max_length=16, blank=True)
    error_class = models.CharField(max_length=32, blank=True, choices=[(e.value, e.value) for e in ErrorClass])
    error_code = models.IntegerField(null=True, blank=True)
    raw_reply = EncryptedTextField(null=True, blank=True)
    duration_ms = models.PositiveIntegerField(null=True, blank=True)
    possible_duplicate = models.BooleanField(
        default=False, db_default=False, help_text="another copy may have been on its way when this one was started"
    )
    parts = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="of its text, where its route counts them"
    )
    cost = models.DecimalField(
        max_digits=12, decimal_places=6, null=True, blank=True, help_text="if its provider takes it, by our price list"
    )
    currency = models.CharField(max_length=3, blank=True, db_default="")
    refusals = models.JSONField(null=True, blank=True, help_text="why other routes were passed over: reasons by route")
    sent_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    read_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["message", "number"], name="attempt_number_once"),
            # The predicate is a column that settling does not filter by: a plan made while the table was
            # empty would otherwise scan this index for every settle.
            models.UniqueConstraint(fields=["message"], name="attempt_one_open", condition=Q(settled_at__isnull=True)),
            models.CheckConstraint(name="attempt_state_known", condition=Q(state__in=[s.value for s in AttemptState])),
            models.CheckConstraint(
                name="attempt_submission_known", condition=Q(submission__in=["", *(s.value for s in Submission)])
            ),
            models.CheckConstraint(
                name="attempt_error_class_known", condition=Q(error_class__in=["", *(e.value for e in ErrorClass)])
            ),
            models.CheckConstraint(
                name="attempt_settled_iff_not_submitting",
                condition=Q(state=AttemptState.SUBMITTING.value, settled_at__isnull=True)
                | (~Q(state=AttemptState.SUBMITTING.value) & Q(settled_at__isnull=False)),
            ),
            models.CheckConstraint(
                name="attempt_finished_iff_ended",
                condition=Q(state__in=["not_submitted", "delivered", "failed"], finished_at__isnull=False)
                | Q(state__in=["submitting", "unknown", "accepted", "sent"], finished_at__isnull=True),
            ),
            models.CheckConstraint(
                name="attempt_cost_iff_currency",
                condition=Q(cost__isnull=True, currency="") | (Q(cost__gte=0, parts__isnull=False) & ~Q(currency="")),
            ),
        ]
        indexes = [
            models.Index(fields=["lease_until"], name="attempt_to_rescue", condition=Q(settled_at__isnull=True)),
            models.Index(fields=["server", "-id"], name="attempt_of_server", condition=Q(server__isnull=False)),
            models.Index(fields=["check_at"], name="attempt_to_ask", condition=Q(check_at__isnull=False)),
            models.Index(
                fields=["provider_message_id"], name="attempt_by_provider_id", condition=~Q(provider_message_id="")
            ),
        ]

    def __str__(self) -> str:
        return str(self.uuid)


class IdempotencyKey(models.Model):
    """What a client's key was answered with. Lives IDEMPOTENCY_KEY_LIFE at least."""

    client = models.ForeignKey(Client, on_delete=models.CASCADE, related_name="+", db_index=False)
    key = models.CharField(max_length=255)
    fingerprint = models.BinaryField(max_length=32, help_text="keyed hash of the request: no code in clear")
    response = models.JSONField()
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["client", "key"], name="idempotency_key_once"),
            models.CheckConstraint(
                name="idempotency_fingerprint_is_32_bytes", condition=Exact(Length("fingerprint"), 32)
            ),
        ]
        indexes = [models.Index(fields=["created_at"], name="idempotency_to_remove")]


from otp_service.messages.recipient_models import InvalidReport, Recipient  # noqa: E402, F401 - Django finds models here
