"""Routes and their limits, dispatchers, and receipts that came before we knew what they are about."""

from __future__ import annotations

from functools import reduce
from operator import or_

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from otp_service.messages.rules import Channel, Lane
from otp_service.routes.route_rules import RouteKind, channel_of, channels_of, name_pattern, simulated_answer

_LONGEST_CALL_MS = 120_000
_LEAST_TPS, _MOST_TPS = 0.001, 100_000.0


class Route(models.Model):
    """A way out: the iMessage pool of a region, or one provider account."""

    name = models.CharField(
        max_length=64,
        unique=True,
        help_text="the channel, a colon and a word of lower-case letters, digits, - and _, as in sms:one; "
        "of a pool its region: imessage:es",
    )
    channel = models.CharField(max_length=16, choices=[(c.value, c.value) for c in Channel])
    kind = models.CharField(
        max_length=16,
        choices=[(kind.value, kind.value) for kind in RouteKind],
        help_text="imessage_pool: the servers of one region. simulated: answers by itself and delivers nothing; "
        "left out unless SIMULATED_ROUTES is on",
    )
    enabled = models.BooleanField(default=True, help_text="whether messages may take it")
    lanes = ArrayField(
        models.CharField(max_length=16, choices=[(lane.value, lane.value) for lane in Lane]),
        default=list,
        blank=True,
        help_text="the lanes whose messages may take it; none chosen: all of them",
    )
    priority = models.SmallIntegerField(
        default=0, help_text="of several routes of one channel, the one of highest priority is tried first"
    )
    expected_ms = models.PositiveIntegerField(
        default=1_000,
        validators=[MinValueValidator(1), MaxValueValidator(_LONGEST_CALL_MS)],
        help_text="milliseconds that a call takes when all is well; fewer calls are made at once while it takes longer",
    )
    in_flight_cap = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="calls at once, of all dispatchers together; empty: no limit of its own",
    )
    tps = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(_LEAST_TPS), MaxValueValidator(_MOST_TPS)],
        help_text="calls a second, of all dispatchers together, and up to those of one second at once; "
        "0.1 is one in ten seconds; empty: no limit",
    )
    daily_quota = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="calls from midnight to midnight UTC; empty: no limit",
    )
    settings = models.JSONField(
        default=dict,
        blank=True,
        help_text="of a simulated route, as JSON: latency_ms (milliseconds until it answers), "
        "timeout_ms (a call is given up then), outcome (accepted or unknown)",
    )

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="route_name_kind_and_channel_agree",
                condition=reduce(
                    or_,
                    (
                        Q(kind=kind.value, channel=channel.value, name__regex=name_pattern(kind, channel))
                        for kind in RouteKind
                        for channel in channels_of(kind)
                    ),
                ),
            ),
            models.CheckConstraint(
                name="route_lanes_known", condition=Q(lanes__contained_by=[lane.value for lane in Lane])
            ),
            models.CheckConstraint(
                name="route_expected_in_range", condition=Q(expected_ms__gte=1, expected_ms__lte=_LONGEST_CALL_MS)
            ),
            models.CheckConstraint(
                name="route_in_flight_cap_positive", condition=Q(in_flight_cap=None) | Q(in_flight_cap__gte=1)
            ),
            models.CheckConstraint(
                name="route_tps_in_range", condition=Q(tps=None) | Q(tps__gte=_LEAST_TPS, tps__lte=_MOST_TPS)
            ),
            models.CheckConstraint(
                name="route_daily_quota_positive", condition=Q(daily_quota=None) | Q(daily_quota__gte=1)
            ),
            models.CheckConstraint(
                name="route_settings_only_where_read", condition=Q(kind=RouteKind.SIMULATED.value) | Q(settings={})
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """The channel is what the name begins with."""
        if self.kind not in list(RouteKind):
            return  # the field's own fault says so
        try:
            self.channel = channel_of(RouteKind(self.kind), self.name)
        except ValueError as error:
            raise ValidationError({"name": str(error)}) from None
        if fault := self._settings_fault():
            raise ValidationError({"settings": fault})

    def _settings_fault(self) -> str:
        if not isinstance(self.settings, dict):
            return 'Write a JSON object, as in {"latency_ms": 150}.'
        if self.kind == RouteKind.IMESSAGE_POOL:
            return "A pool has no settings." if self.settings else ""
        try:
            simulated_answer(self.settings)
        except ValueError as error:
            return str(error)
        return ""


class RouteDay(models.Model):
    """How many calls of a route's daily quota are taken. A route without a quota has no such row."""

    route = models.CharField(max_length=64, help_text="the route's name")
    day = models.DateField(help_text="UTC")
    used = models.PositiveIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["route", "day"], name="route_day_once")]

    def __str__(self) -> str:
        return f"{self.route} on {self.day}"


class Dispatcher(models.Model):
    """A dispatcher process, by its last heartbeat. Caps and rates are divided among those that live."""

    id = models.UUIDField(primary_key=True)
    name = models.CharField(max_length=100)
    started_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()
    stats = models.JSONField(default=dict, help_text="its slots and calls in flight, as it last said")

    def __str__(self) -> str:
        return self.name


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
