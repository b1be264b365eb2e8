"""Routes and their limits, dispatchers, and receipts that came before we knew what they are about."""

from __future__ import annotations

import json
from decimal import Decimal
from functools import reduce
from operator import or_

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Func, Q, Value
from django.db.models.lookups import Regex

from otp_service.messages.plan import SENDER_NAME
from otp_service.messages.rules import Channel, Lane
from otp_service.routes.parts import Encoding
from otp_service.routes.route_rules import RouteKind, channel_of, channels_of, name_pattern, simulated_answer
from otp_service.web.fields import EncryptedTextField

_LONGEST_CALL_MS = 120_000
_LEAST_TPS, _MOST_TPS = 0.001, 100_000.0
_DAY_S = 86_400
_MOST_PARTS = 255  # what the number of a part can count
_MOST_WEIGHT = 1_000
_MOST_PRICE = Decimal(1_000)
_PREFIX = r"\+[1-9][0-9]{0,14}"
_CURRENCY = "[A-Z]{3}"
#: Kinds that have nothing to log in to.
_OWN_KINDS = [RouteKind.IMESSAGE_POOL.value, RouteKind.SIMULATED.value]


def _all_match(column: str, pattern: str) -> Regex:
    """Whether each item of an array is like the pattern, which has no commas. An empty array is."""
    ended = Func(F(column), Value(""), function="array_append")  # so that each item, an empty one too, has its comma
    joined = Func(ended, Value(","), function="array_to_string", output_field=models.TextField())
    return Regex(joined, f"^(({pattern}),)*$")


def _whole(pattern: str, sentence: str) -> RegexValidator:
    return RegexValidator(rf"\A(?:{pattern})\Z", f"Write {sentence}.")


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
        help_text="imessage_pool: the servers of one region. twilio: an API that speaks as Twilio's does. "
        "kannel: a Kannel gateway. smpp: an SMSC. http_json: any JSON API, described by the settings. "
        "simulated: answers by itself and delivers nothing; left out unless SIMULATED_ROUTES is on",
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
    weight = models.PositiveSmallIntegerField(
        default=1,
        db_default=1,
        validators=[MinValueValidator(1), MaxValueValidator(_MOST_WEIGHT)],
        help_text="its share beside others of the same priority: 2 is twice as many messages as 1",
    )
    prefixes = ArrayField(
        models.CharField(max_length=16, validators=[_whole(_PREFIX, "the beginning of a number, as in +34")]),
        default=list,
        db_default=Value([]),
        blank=True,
        size=1_000,
        help_text="beginnings of the numbers that it serves, by commas, as in +34, +35191; empty: all numbers",
    )
    sender_names = ArrayField(
        models.CharField(
            max_length=20, validators=[_whole(SENDER_NAME, "a sender name: printable ASCII without commas")]
        ),
        default=list,
        db_default=Value([]),
        blank=True,
        size=1_000,
        help_text="sender names that it may use, by commas: the first one where a message asks for none; "
        "empty: only messages that ask for none",
    )
    encodings = ArrayField(
        models.CharField(max_length=8, choices=[(encoding.value, encoding.value) for encoding in Encoding]),
        default=list,
        db_default=Value([]),
        blank=True,
        help_text="what its texts may be: gsm7 (Latin letters), ucs2 (everything); none chosen: both",
    )
    max_parts = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(_MOST_PARTS)],
        help_text="of how many parts a text may be at most; empty: no limit",
    )
    delivery_s = models.PositiveIntegerField(
        default=10,
        db_default=10,
        validators=[MaxValueValidator(_DAY_S)],
        help_text="seconds from the call to the phone when all is well; "
        "a message that would come after its end does not take this route",
    )
    has_receipts = models.BooleanField(
        default=True, db_default=True, help_text="whether its provider reports what became of a message"
    )
    receipt_wait_s = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(_DAY_S)],
        help_text="seconds to wait for a report before the provider is asked, or no more is expected; "
        "empty: as RECEIPT_WAIT_S says",
    )
    can_query = models.BooleanField(
        default=False, db_default=False, help_text="whether its provider can be asked what became of a message"
    )
    opens_at = models.TimeField(
        null=True, blank=True, help_text="UTC; it is used from then on each day; both empty: at all hours"
    )
    closes_at = models.TimeField(
        null=True, blank=True, help_text="UTC; until then; earlier than it opens: over midnight"
    )
    cost_per_part = models.DecimalField(
        max_digits=10,
        decimal_places=6,
        null=True,
        blank=True,
        validators=[MinValueValidator(Decimal(0)), MaxValueValidator(_MOST_PRICE)],
        help_text="what one part of a text costs; empty: not known",
    )
    currency = models.CharField(
        max_length=3,
        blank=True,
        default="",
        db_default="",
        validators=[_whole(_CURRENCY, "three capitals, as in EUR")],
        help_text="of the cost, as in EUR; empty where no cost is known",
    )
    settings = models.JSONField(
        default=dict,
        blank=True,
        help_text="as JSON, by its kind. Of a simulated route: latency_ms (milliseconds until it answers), "
        "timeout_ms (a call is given up then), outcome (accepted or unknown)",
    )
    credentials = EncryptedTextField(
        null=True, blank=True, help_text="a JSON object of passwords, tokens and keys by name; never shown"
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
                name="route_settings_only_where_read",
                condition=~Q(kind=RouteKind.IMESSAGE_POOL.value) | Q(settings={}),
            ),
            models.CheckConstraint(
                name="route_credentials_only_where_read", condition=~Q(kind__in=_OWN_KINDS) | Q(credentials=None)
            ),
            models.CheckConstraint(name="route_weight_in_range", condition=Q(weight__gte=1, weight__lte=_MOST_WEIGHT)),
            models.CheckConstraint(name="route_prefixes_begin_numbers", condition=_all_match("prefixes", _PREFIX)),
            models.CheckConstraint(
                name="route_sender_names_printable", condition=_all_match("sender_names", SENDER_NAME)
            ),
            models.CheckConstraint(
                name="route_encodings_known",
                condition=Q(encodings__contained_by=[encoding.value for encoding in Encoding]),
            ),
            models.CheckConstraint(
                name="route_max_parts_in_range",
                condition=Q(max_parts=None) | Q(max_parts__gte=1, max_parts__lte=_MOST_PARTS),
            ),
            models.CheckConstraint(name="route_delivery_in_range", condition=Q(delivery_s__lte=_DAY_S)),
            models.CheckConstraint(
                name="route_receipt_wait_in_range",
                condition=Q(receipt_wait_s=None) | Q(receipt_wait_s__gte=1, receipt_wait_s__lte=_DAY_S),
            ),
            models.CheckConstraint(
                name="route_hours_both_or_none",
                condition=Q(opens_at=None, closes_at=None)
                | (Q(opens_at__isnull=False, closes_at__isnull=False) & ~Q(opens_at=F("closes_at"))),
                violation_error_message="Give both hours, and different ones, or none.",
            ),
            models.CheckConstraint(
                name="route_cost_in_range",
                condition=Q(cost_per_part=None) | Q(cost_per_part__gte=0, cost_per_part__lte=_MOST_PRICE),
            ),
            models.CheckConstraint(
                name="route_cost_has_its_currency",
                condition=Q(cost_per_part=None, currency="")
                | Q(cost_per_part__isnull=False, currency__regex=f"^{_CURRENCY}$"),
                violation_error_message="Give the cost and its currency, or neither.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def given_credentials(self) -> dict[str, str]:
        """The credentials by name. Raises CryptoError where they cannot be opened."""
        return dict(json.loads(self.credentials)) if self.credentials else {}

    def clean(self) -> None:
        """The channel is what the name begins with. What an outside provider's settings must be, its module says."""
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
        if self.kind != RouteKind.SIMULATED:
            return ""
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


from otp_service.routes.breaker_models import Breaker, ProbeTicket  # noqa: E402, F401 - Django finds models here
from otp_service.routes.owner_models import RouteOwner  # noqa: E402, F401 - Django finds models here
