"""Hosts, servers and what is kept about their health."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Collection

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Length, Now
from django.db.models.lookups import Exact

from otp_service.web.fields import EncryptedTextField
from servers.group_rules import LONGEST_MINUTES, FieldFault, group_faults, group_in_force
from servers.handles import normalised
from servers.rules import EVENT_LABELS, Event, InternalKind, RelayProtocol, ResetRule, Status

WHOLE_DAY_FROM = dt.time(0, 0, 0)
WHOLE_DAY_TO = dt.time(23, 59, 59)


class Host(models.Model):
    """A relay host: a machine that runs iMessage accounts."""

    class Protocol(models.TextChoices):
        NATIVE = RelayProtocol.NATIVE.value, "Native"
        BLUEBUBBLES = RelayProtocol.BLUEBUBBLES.value, "BlueBubbles"

    number = models.PositiveIntegerField(unique=True)
    name = models.CharField(max_length=100, blank=True)
    base_url = models.URLField(max_length=500)
    protocol = models.CharField(
        max_length=16,
        choices=Protocol.choices,
        default=Protocol.NATIVE,
        help_text="what it speaks; a BlueBubbles server has one account, whose unit has the host's number",
    )
    secret = EncryptedTextField()
    previous_secret = EncryptedTextField(null=True, blank=True)
    previous_secret_until = models.DateTimeField(null=True, blank=True)
    enabled = models.BooleanField(default=True)
    last_seen_at = models.DateTimeField(null=True, blank=True)
    offline_since = models.DateTimeField(null=True, blank=True, help_text="written by the watch over silent hosts")

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="host_previous_secret_has_an_end",
                condition=Q(previous_secret__isnull=True, previous_secret_until__isnull=True)
                | Q(previous_secret__isnull=False, previous_secret_until__isnull=False),
            ),
            models.CheckConstraint(name="host_protocol_known", condition=Q(protocol__in=["native", "bluebubbles"])),
        ]

    def __str__(self) -> str:
        return f"host {self.number}"

    def clean(self) -> None:
        if self.protocol == self.Protocol.BLUEBUBBLES and self.pk and self.servers.exclude(unit=self.number).exists():
            raise ValidationError({"number": "The unit on a BlueBubbles host has the host's number: move it first."})

    def secrets(self, now: dt.datetime) -> list[str]:
        """The secrets that are valid at `now`, the one that signs first."""
        if self.previous_secret and self.previous_secret_until and now < self.previous_secret_until:
            return [self.secret, self.previous_secret]
        return [self.secret]


class Group(models.Model):
    """Cooldown and send-interval parameters, in force during a window of the day (UTC).

    0 in a delay or an interval means "not set"; a delay or an interval is in force only when both of its
    ends are over 0. `failed_in_row` 0 means "not set" too: the default threshold applies.
    """

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    name = models.CharField(max_length=100, unique=True)
    priority = models.IntegerField(unique=True)
    failed_in_row = models.PositiveSmallIntegerField(default=0, validators=[MaxValueValidator(100)])
    cooldown_delay_from = models.PositiveIntegerField(
        default=0, validators=[MaxValueValidator(LONGEST_MINUTES)], help_text="minutes; 0: the ladder applies"
    )
    cooldown_delay_to = models.PositiveIntegerField(
        default=0, validators=[MaxValueValidator(LONGEST_MINUTES)], help_text="minutes; 0: the ladder applies"
    )
    send_from_message_interval = models.PositiveIntegerField(
        default=0, validators=[MaxValueValidator(LONGEST_MINUTES)], help_text="minutes; 0: the default"
    )
    send_to_message_interval = models.PositiveIntegerField(
        default=0, validators=[MaxValueValidator(LONGEST_MINUTES)], help_text="minutes; 0: the default"
    )
    from_time = models.TimeField(default=WHOLE_DAY_FROM)
    to_time = models.TimeField(default=WHOLE_DAY_TO, help_text="may lie before from_time: over midnight")
    reset_rule = models.CharField(
        max_length=16,
        blank=True,
        choices=[(rule.value, rule.value) for rule in ResetRule],
        help_text="empty: the default",
    )

    class Meta:
        constraints = [
            models.CheckConstraint(name="group_window_not_empty", condition=~Q(from_time=F("to_time"))),
            models.CheckConstraint(
                name="group_minutes_within_a_week",
                condition=Q(
                    cooldown_delay_from__lte=LONGEST_MINUTES,
                    cooldown_delay_to__lte=LONGEST_MINUTES,
                    send_from_message_interval__lte=LONGEST_MINUTES,
                    send_to_message_interval__lte=LONGEST_MINUTES,
                ),
            ),
            models.CheckConstraint(
                name="group_delay_not_inverted",
                condition=Q(cooldown_delay_from=0)
                | Q(cooldown_delay_to=0)
                | Q(cooldown_delay_from__lte=F("cooldown_delay_to")),
            ),
            models.CheckConstraint(
                name="group_interval_not_inverted",
                condition=Q(send_from_message_interval=0)
                | Q(send_to_message_interval=0)
                | Q(send_from_message_interval__lte=F("send_to_message_interval")),
            ),
            models.CheckConstraint(
                name="group_reset_rule_known", condition=Q(reset_rule__in=["", *(rule.value for rule in ResetRule)])
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean_fields(self, exclude: Collection[str] | None = None) -> None:
        """Leaves to `clean` what it says in the words that every caller reads."""
        super().clean_fields({*(exclude or ()), *(fault.field for fault in self._faults())})

    def clean(self) -> None:
        faults: dict[str, list[str]] = {}
        for fault in self._faults():
            faults.setdefault(fault.field, []).append(fault.detail)
        if faults:
            raise ValidationError(faults)

    def _faults(self) -> list[FieldFault]:
        """Without those of fields that hold nothing yet: a form says itself that they are needed."""
        return [fault for fault in group_faults(self) if getattr(self, fault.field) not in (None, "")]


class Server(models.Model):
    """A sender: one iMessage account (a unit) on a host."""

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    region = models.CharField(max_length=8)
    unit = models.PositiveIntegerField()
    host = models.ForeignKey(Host, on_delete=models.PROTECT, related_name="servers")
    status = models.CharField(max_length=16, choices=[(s.value, s.value) for s in Status], default=Status.NEW.value)
    name = models.CharField(max_length=100, blank=True)
    handle = models.CharField(max_length=254, help_text="the address that its messages come from")
    signed_in = models.BooleanField(default=True)
    signed_out_at = models.DateTimeField(null=True, blank=True)
    groups = models.ManyToManyField(Group, blank=True, related_name="servers")

    failed_in_row = models.IntegerField(default=0)
    cooldown = models.BooleanField(default=False)
    cooldown_times = models.IntegerField(default=0)
    cooldown_start_date = models.DateTimeField(null=True, blank=True)
    cooldown_end_date = models.DateTimeField(null=True, blank=True)
    cooldown_reason = models.CharField(max_length=64, blank=True)
    cooldown_warmup_at = models.DateTimeField(null=True, blank=True)
    cooldown_warmup_uuid = models.UUIDField(null=True, blank=True)
    cooldown_warmup_sent_date = models.DateTimeField(null=True, blank=True)
    cooldown_warmup_delivered = models.BooleanField(default=False)
    cooldown_extensions = models.IntegerField(default=0)
    fail_open_streak = models.IntegerField(default=0)
    released_at = models.DateTimeField(null=True, blank=True)
    preheating = models.BooleanField(default=False)
    preheat_started_at = models.DateTimeField(null=True, blank=True)
    preheat_repeats = models.SmallIntegerField(default=0, db_default=0, help_text="of the plan's last day")
    preheat_asked_at = models.DateTimeField(null=True, blank=True, help_text="when a person was asked to decide")

    next_send_date = models.DateTimeField(db_default=Now(), help_text="no client message before this time")
    tie = models.FloatField(default=0, help_text="drawn at each reservation; orders servers that were used at once")
    last_sent_at = models.DateTimeField(null=True, blank=True, help_text="when it was last given a client message")
    sends_day = models.DateField(null=True, blank=True, help_text="the day (UTC) that the next two count")
    sends_today = models.IntegerField(default=0, db_default=0)
    new_recipients_today = models.IntegerField(default=0, db_default=0)
    otp_hour = models.DateTimeField(null=True, blank=True, help_text="the hour (UTC) that the next one counts")
    otp_in_hour = models.IntegerField(default=0, db_default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["region", "unit"], name="server_unit_once_per_region"),
            models.UniqueConstraint(fields=["host", "unit"], name="server_unit_once_per_host"),
            models.CheckConstraint(name="server_status_known", condition=Q(status__in=[s.value for s in Status])),
            models.CheckConstraint(
                name="server_cooldown_iff_dates",
                condition=Q(cooldown=True, cooldown_start_date__isnull=False, cooldown_end_date__isnull=False)
                | Q(cooldown=False, cooldown_start_date__isnull=True, cooldown_end_date__isnull=True),
            ),
            models.CheckConstraint(
                name="server_warmup_only_in_cooldown",
                condition=Q(cooldown=True)
                | Q(
                    cooldown_warmup_at__isnull=True,
                    cooldown_warmup_uuid__isnull=True,
                    cooldown_warmup_sent_date__isnull=True,
                    cooldown_warmup_delivered=False,
                    cooldown_extensions=0,
                ),
            ),
            models.CheckConstraint(
                name="server_need_check_not_in_cooldown", condition=~Q(status=Status.NEED_CHECK.value, cooldown=True)
            ),
            models.CheckConstraint(
                name="server_counters_not_negative",
                condition=Q(
                    failed_in_row__gte=0, cooldown_times__gte=0, cooldown_extensions__gte=0, fail_open_streak__gte=0
                ),
            ),
            models.CheckConstraint(
                name="server_signed_out_at_only_signed_out",
                condition=Q(signed_in=False) | Q(signed_out_at__isnull=True),
            ),
            models.CheckConstraint(
                name="server_sends_not_negative",
                condition=Q(sends_today__gte=0, new_recipients_today__gte=0, otp_in_hour__gte=0),
            ),
            models.CheckConstraint(
                name="server_preheat_asked_only_in_preheat",
                condition=Q(preheating=True, preheat_repeats__gte=0)
                | Q(preheating=False, preheat_repeats=0, preheat_asked_at__isnull=True),
            ),
            models.CheckConstraint(
                name="server_preheating_iff_started",
                condition=Q(preheating=True, preheat_started_at__isnull=False)
                | Q(preheating=False, preheat_started_at__isnull=True),
            ),
        ]
        indexes = [
            # Reserving: least recently used of a region, only among those that may be picked at all.
            models.Index(
                fields=["region", "next_send_date", "tie"],
                name="server_reserve",
                condition=Q(status=Status.ACTIVE.value, cooldown=False, signed_in=True),
            ),
            models.Index(fields=["cooldown_end_date"], name="server_cooldown_due", condition=Q(cooldown=True)),
            models.Index(fields=["signed_out_at"], name="server_signed_out", condition=Q(signed_in=False)),
            models.Index(fields=["preheat_started_at"], name="server_preheating", condition=Q(preheating=True)),
            models.Index(fields=["handle"], name="server_by_handle"),
            models.Index(fields=["last_sent_at"], name="server_by_last_send", condition=Q(last_sent_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.region} {self.unit}"

    def clean(self) -> None:
        try:
            self.handle = normalised(self.handle)
        except ValueError as error:
            raise ValidationError({"handle": str(error)}) from None
        host = Host.objects.filter(pk=self.host_id).first()
        if host and host.protocol == Host.Protocol.BLUEBUBBLES and self.unit != host.number:
            raise ValidationError(
                {"unit": f"A BlueBubbles host has one account, whose unit has the host's number: {host.number}."}
            )

    def get_group_for_current_time(self, now: dt.datetime) -> Group | None:
        """The group in force at `now`: of those whose window covers it, the one of highest priority."""
        return group_in_force(self.groups.all(), now)


class ServerStatusHistory(models.Model):
    """One thing that happened to a server. Every change of its state or counters leaves exactly one row.

    `data` holds the figures behind `note`, old and new values among them; never a text or a recipient.
    """

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="history")
    event = models.PositiveSmallIntegerField(choices=[(e.value, EVENT_LABELS[e]) for e in Event])
    at = models.DateTimeField()
    note = models.TextField(blank=True)
    data = models.JSONField(default=dict)

    class Meta:
        verbose_name_plural = "server status history"
        constraints = [
            models.CheckConstraint(name="history_event_known", condition=Q(event__in=[e.value for e in Event])),
        ]
        indexes = [
            models.Index(fields=["server", "-at"], name="history_of_server"),
            models.Index(fields=["event", "at"], name="history_by_event"),
        ]

    def __str__(self) -> str:
        return EVENT_LABELS[Event(self.event)]


class ServerDelivery(models.Model):
    """A client message that a server delivered: what the ladder's reset counts."""

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="deliveries")
    at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["server", "at"], name="delivery_of_server"),
            models.Index(fields=["at"], name="delivery_to_remove"),
        ]


class RecipientLink(models.Model):
    """The server that last delivered to a recipient: it is asked first the next time (the sticky server)."""

    recipient_hash = models.BinaryField(max_length=32, primary_key=True)
    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="recipients")
    first_at = models.DateTimeField()
    delivered_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(name="link_hash_is_32_bytes", condition=Exact(Length("recipient_hash"), 32)),
        ]
        indexes = [
            models.Index(fields=["server", "first_at"], name="link_new_recipients"),
            models.Index(fields=["delivered_at"], name="link_to_remove"),
        ]


class ChatPreheat(models.Model):
    """Two servers that talk in turns; the one that it is for begins.

    `due_at` is when the next message is due, or, while one is `awaited`, until when it is waited for.
    """

    class Outcome(models.TextChoices):
        FINISHED = "finished"  # every message arrived
        SMS = "sms"  # one fell back to SMS: its sender is in Need Check
        FAILED = "failed"  # one could not be sent
        UNANSWERED = "unanswered"  # nothing was heard of one
        STOPPED = "stopped"  # one of the two left the rotation

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="chats")
    partner = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="chats_as_partner")
    planned = models.PositiveSmallIntegerField(help_text="messages, of both together")
    made = models.PositiveSmallIntegerField(default=0)
    awaited = models.BooleanField(default=False)
    due_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(max_length=16, blank=True, choices=Outcome.choices)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["server"], name="chat_one_of_server", condition=Q(ended_at__isnull=True)),
            models.CheckConstraint(name="chat_not_with_itself", condition=~Q(server=F("partner"))),
            models.CheckConstraint(
                name="chat_ended_iff_outcome",
                condition=Q(ended_at__isnull=True, due_at__isnull=False, outcome="")
                | Q(
                    ended_at__isnull=False,
                    due_at__isnull=True,
                    awaited=False,
                    outcome__in=["finished", "sms", "failed", "unanswered", "stopped"],
                ),
            ),
            models.CheckConstraint(name="chat_not_longer_than_planned", condition=Q(made__lte=F("planned"))),
        ]
        indexes = [models.Index(fields=["due_at"], name="chat_due", condition=Q(ended_at__isnull=True))]

    def __str__(self) -> str:
        return f"{self.server} with {self.partner}"


class InternalSend(models.Model):
    """A message from one of our servers to another; never a client's Message."""

    class State(models.TextChoices):
        SUBMITTING = "submitting"
        NOT_SUBMITTED = "not_submitted"
        ACCEPTED = "accepted"
        UNKNOWN = "unknown"
        SENT = "sent"
        DELIVERED = "delivered"
        FAILED = "failed"

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    kind = models.CharField(max_length=16, choices=[(k.value, k.value) for k in InternalKind])
    sender = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="internal_sends")
    receiver = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="internal_receipts")
    state = models.CharField(max_length=16, choices=State.choices, default=State.SUBMITTING)
    guid = models.CharField(max_length=200, blank=True)
    service = models.CharField(max_length=16, blank=True)
    error_code = models.IntegerField(null=True, blank=True)
    created_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    check_at = models.DateTimeField(null=True, blank=True, help_text="when its host is asked about it")
    chat = models.ForeignKey(ChatPreheat, null=True, blank=True, on_delete=models.CASCADE, related_name="sends")

    class Meta:
        constraints = [
            # One of a kind is on its way to the host at a time: two runs at once send one warm-up.
            models.UniqueConstraint(
                fields=["sender", "kind"], name="internal_one_submitting", condition=Q(state="submitting")
            ),
            models.CheckConstraint(name="internal_not_to_itself", condition=~Q(sender=F("receiver"))),
            models.CheckConstraint(name="internal_kind_known", condition=Q(kind__in=[k.value for k in InternalKind])),
            models.CheckConstraint(
                name="internal_finished_iff_ended",
                condition=Q(state__in=["not_submitted", "delivered", "failed"], finished_at__isnull=False)
                | Q(state__in=["submitting", "accepted", "unknown", "sent"], finished_at__isnull=True),
            ),
        ]
        indexes = [
            models.Index(fields=["sender", "created_at"], name="internal_of_sender"),
            models.Index(fields=["receiver", "created_at"], name="internal_of_receiver"),
            models.Index(fields=["guid"], name="internal_by_guid", condition=~Q(guid="")),
            models.Index(fields=["check_at"], name="internal_to_ask", condition=Q(check_at__isnull=False)),
            models.Index(fields=["created_at"], name="internal_to_remove"),
        ]


class StormBrake(models.Model):
    """A storm: a large part of a host's or a region's servers reached their threshold within minutes."""

    class Scope(models.TextChoices):
        HOST = "host"
        REGION = "region"

    scope = models.CharField(max_length=8, choices=Scope.choices)
    name = models.CharField(max_length=20, help_text="the host's number, or the region")
    mode = models.CharField(max_length=8, help_text="STORM_BRAKE when it began: shadow changes nothing")
    share = models.FloatField(help_text="the largest share so far of those that sent")
    on_at = models.DateTimeField()
    calm_since = models.DateTimeField(null=True, blank=True)
    off_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["scope", "name"], name="storm_one_a_scope", condition=Q(off_at__isnull=True)
            ),
            models.CheckConstraint(name="storm_scope_known", condition=Q(scope__in=["host", "region"])),
            models.CheckConstraint(name="storm_mode_known", condition=Q(mode__in=["shadow", "enforce"])),
        ]
        indexes = [models.Index(fields=["on_at"], name="storm_by_time")]

    def __str__(self) -> str:
        return f"storm of {self.scope} {self.name}"


class SweepTime(models.Model):
    """When a sweep of the timetable is to work next: beat ticks more often, and finds it here."""

    name = models.CharField(max_length=40, primary_key=True)
    next_at = models.DateTimeField()
    last_at = models.DateTimeField(null=True, blank=True, help_text="when it last began")

    def __str__(self) -> str:
        return self.name
