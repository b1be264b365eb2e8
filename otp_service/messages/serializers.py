"""What clients write to us and read from us."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError

from otp_service.core import phone_numbers
from otp_service.messages import plan
from otp_service.messages.models import Attempt, Message
from otp_service.messages.plan import DEFAULT_CHANNELS, MAX_LIFETIME, NewMessage
from otp_service.messages.rules import Channel, Lane, MessageStatus, OnLateFirst, OnUnknown, Reason
from otp_service.web.pagination import PageQuerySerializer
from otp_service.web.strict_fields import (
    MomentField,
    StrictCharField,
    StrictChoiceField,
    StrictIntegerField,
    StrictSerializer,
)

MAX_TEXT = 1600  # characters: about ten SMS parts
MAX_TOKEN = 4096  # characters of a push token
MAX_METADATA = 4096  # bytes of JSON
MAX_METADATA_DEPTH = 5
#: Unicode categories of what shows nothing by itself: controls, format characters, spaces, marks, unassigned.
_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Cs", "Zl", "Zp", "Zs", "Mn", "Me"})
_BLANKS = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # letters and symbols by category, yet drawn as nothing
_LAYOUT = "\n\r\t"
_WEEK_S = int(MAX_LIFETIME.total_seconds())

# --- written by clients -----------------------------------------------------------------------------------


class PhoneNumberField(StrictCharField):
    """A number in international form; becomes E.164."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=32, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        try:
            return phone_numbers.parse(super().to_internal_value(data))
        except phone_numbers.PhoneNumberError as error:
            raise ValidationError(error.detail, code=error.code) from None


@extend_schema_field({"type": "object", "additionalProperties": {}})
class MetadataField(serializers.Field[Any, Any, Any, Any]):
    """A small JSON object of the client's own."""

    default_error_messages = {
        "invalid": "Send a JSON object.",
        "too_large": f"{MAX_METADATA} bytes of JSON at most.",
        "too_deep": f"{MAX_METADATA_DEPTH} levels of objects and lists at most.",
        "null_characters_not_allowed": "The character U+0000 cannot be stored.",
    }

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, dict):
            self.fail("invalid")
        for depth, text in _depths_and_texts(data):
            if depth > MAX_METADATA_DEPTH:
                self.fail("too_deep")
            if "\x00" in text:
                self.fail("null_characters_not_allowed")
        if len(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()) > MAX_METADATA:
            self.fail("too_large")
        return data

    def to_representation(self, value: Any) -> Any:
        return value


def _depths_and_texts(value: Any, depth: int = 0) -> Iterator[tuple[int, str]]:
    """Every container, as its depth, and every string in it; containers before what is in them."""
    if isinstance(value, str):
        yield depth, value
    if not isinstance(value, dict | list):
        return
    yield depth + 1, ""
    for inner in value:
        yield from _depths_and_texts(inner, depth + 1)
        if isinstance(value, dict):
            yield from _depths_and_texts(value[inner], depth + 1)


def _is_visible(character: str) -> bool:
    return unicodedata.category(character) not in _UNSEEN and character not in _BLANKS


class ChannelsField(serializers.ListField):
    """Kinds of ways out, the preferred one first."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=StrictChoiceField(Channel), allow_empty=False, max_length=len(Channel), **kwargs)
        self.error_messages["not_a_list"] = "Send a JSON list of channels."

    def to_internal_value(self, data: Any) -> tuple[str, ...]:  # type: ignore[override]  # a value, not to be changed
        channels = tuple(super().to_internal_value(data))
        if len(set(channels)) < len(channels):
            raise ValidationError("Name each channel once.", code="repeated")
        return channels


class AddressesSerializer(StrictSerializer):
    """Where a message goes on channels that numbers do not reach."""

    push = StrictCharField(required=False, max_length=MAX_TOKEN, help_text="the token of the app on the phone")

    def validate_push(self, token: str) -> str:
        """Refuse what no provider would give out."""
        if not token.isprintable() or token.isspace():
            raise ValidationError("Send printable characters.", code="invalid")
        return token


class NewMessageSerializer(StrictSerializer):
    """A message to deliver. Only `to` and `text` are needed; the lane decides what is not given."""

    to = PhoneNumberField(help_text="the recipient in international form, as in +34600000000")
    text = StrictCharField(max_length=MAX_TEXT, help_text="kept as it is, encrypted, and never shown again")
    lane = StrictChoiceField(Lane, required=False, help_text=f"{Lane.TRANSACTIONAL} if not given")
    channels = ChannelsField(
        required=False, help_text=f"in order of preference; {', '.join(DEFAULT_CHANNELS)} if not given"
    )
    addresses = AddressesSerializer(required=False, help_text="needed for push: encrypted, and never shown again")
    sender_name = StrictCharField(
        required=False,
        max_length=20,
        help_text="that it is to be sent under, where there are names: only routes that may use it are taken",
    )
    region = StrictCharField(required=False, max_length=8, help_text="the pool to send from; else the number decides")
    ttl_s = StrictIntegerField(required=False, min_value=1, max_value=_WEEK_S, help_text="lifetime, or give expires_at")
    expires_at = MomentField(required=False, help_text="end of its lifetime, instead of ttl_s")
    created_at = MomentField(
        required=False,
        help_text="when the event happened that it tells of, if that is not now: its lifetime began then",
    )
    first_attempt_within_s = StrictIntegerField(
        required=False, min_value=1, max_value=_WEEK_S, help_text="how soon the first attempt is due"
    )
    on_late_first = StrictChoiceField(
        OnLateFirst, required=False, help_text="what becomes of it when the first attempt is late"
    )
    max_attempts = StrictIntegerField(required=False, min_value=1, max_value=10)
    max_routes = StrictIntegerField(
        required=False, min_value=1, max_value=10, help_text="how many routes it may be tried over"
    )
    on_unknown = StrictChoiceField(
        OnUnknown,
        required=False,
        help_text="when nobody can say whether a copy has left: `hold`, or `race` another one over another route",
    )
    reference = StrictCharField(
        required=False, allow_blank=True, max_length=255, help_text="yours; messages can be found by it"
    )
    supersede_key = StrictCharField(
        required=False,
        max_length=255,
        help_text="yours: earlier messages with the same one are cancelled, unless they have been handed over",
    )
    metadata = MetadataField(
        required=False, help_text=f"yours; {MAX_METADATA} bytes and {MAX_METADATA_DEPTH} levels at most"
    )

    def validate_text(self, text: str) -> str:
        """Refuse a text without a visible character, and control characters that no phone shows."""
        if not any(map(_is_visible, text)):
            raise ValidationError("There is nothing to read in it.", code="blank")
        if any(unicodedata.category(character) == "Cc" and character not in _LAYOUT for character in text):
            raise ValidationError(
                "Control characters are not allowed, except line breaks and tabs.", code="control_characters"
            )
        return text

    def validate_sender_name(self, name: str) -> str:
        """What routes may be given as theirs."""
        if not re.fullmatch(plan.SENDER_NAME, name):
            raise ValidationError(
                "Send printable ASCII characters without commas, and spaces inside only.", code="invalid"
            )
        return name

    def validate_region(self, region: str) -> str:
        """Refuse a pool that is not ours."""
        pools = sorted({pool for row in settings.POOLS_BY_PREFIX.values() for pool in row})
        if region not in pools:
            raise ValidationError(f"One of {', '.join(pools)} is allowed.", code="invalid_choice")
        return region

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse two ends of one lifetime, and one that the lane does not allow."""
        if "ttl_s" not in attrs:
            return attrs
        if "expires_at" in attrs:
            raise ValidationError({"expires_at": ErrorDetail("Give ttl_s or expires_at, not both.", "not_both")})
        lane = settings.LANE_DEFAULTS[attrs.get("lane", Lane.TRANSACTIONAL)]
        if attrs["ttl_s"] < lane["min_ttl_s"]:
            raise ValidationError({"ttl_s": ErrorDetail(plan.lifetime_sentence(lane), "lifetime_out_of_range")})
        return attrs

    def parsed(self, data: Any) -> NewMessage:
        """The request in a body. Raises ValidationError."""
        return NewMessage(**self.run_validation(data))


class MessageQuerySerializer(PageQuerySerializer):
    """Which messages to list."""

    status = StrictChoiceField(MessageStatus, required=False)
    lane = StrictChoiceField(Lane, required=False)
    reference = StrictCharField(required=False, max_length=255)
    to = PhoneNumberField(required=False, help_text="the whole number; its + is written %2B in an address")
    created_from = MomentField(required=False, help_text="created at this time or later")
    created_to = MomentField(required=False, help_text="created before this time")


# --- read by clients --------------------------------------------------------------------------------------


class _OrNull(serializers.CharField):
    """An empty string of ours is null outside."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_null=True, **kwargs)

    def to_representation(self, value: str) -> str | None:  # type: ignore[override]  # null is what it is for
        return value or None


class LinksSerializer(serializers.Serializer[Any]):
    """Where to go on."""

    self = serializers.CharField()


class AcceptedSerializer(serializers.Serializer[Any]):
    """What is answered when a message was accepted."""

    id = serializers.UUIDField()
    status = serializers.CharField(help_text=MessageStatus.QUEUED.value)
    lane = serializers.ChoiceField(choices=[lane.value for lane in Lane])
    created_at = serializers.DateTimeField(help_text="when its lifetime began")
    expires_at = serializers.DateTimeField()
    links = LinksSerializer()


class AttemptSerializer(serializers.ModelSerializer[Attempt]):
    """One attempt to deliver a message."""

    id = serializers.UUIDField(source="uuid")
    error_class = _OrNull(help_text="whose fault it was")
    started_at = serializers.DateTimeField(source="claimed_at")
    settled_at = serializers.DateTimeField(allow_null=True, help_text="when the other side's answer was known")
    possible_duplicate = serializers.BooleanField(
        help_text="nobody could say whether an earlier copy had left when it was started"
    )
    parts = serializers.IntegerField(allow_null=True, help_text="of its text, where its route counts them")
    cost = serializers.DecimalField(
        12, 6, allow_null=True, coerce_to_string=True, help_text="if its provider takes it, by our price list"
    )
    currency = _OrNull(help_text="of the cost, as in EUR")

    class Meta:
        model = Attempt
        fields = [
            "id",
            "number",
            "route",
            "state",
            "error_class",
            "error_code",
            "possible_duplicate",
            "parts",
            "cost",
            "currency",
            "started_at",
            "settled_at",
            "finished_at",
        ]


class MessageSerializer(serializers.ModelSerializer[Message]):
    """Where a message stands. Its text is never shown, its recipient masked."""

    id = serializers.UUIDField(source="uuid")
    outcome = serializers.SerializerMethodField(help_text="`unknown` while nobody can say whether it was sent")
    reason = _OrNull(source="final_reason", help_text=f"why it was not delivered: {', '.join(Reason)}")
    error_code = serializers.IntegerField(source="final_error_code", allow_null=True)
    to = serializers.SerializerMethodField(help_text="masked")
    reference = _OrNull()
    supersede_key = _OrNull()
    metadata = MetadataField()
    sender_name = _OrNull()
    region = serializers.SerializerMethodField(help_text="the pool that served it, else the one that was asked for")
    created_at = serializers.DateTimeField(source="event_at", help_text="when its lifetime began")
    accepted_at = serializers.DateTimeField(source="created_at")

    class Meta:
        model = Message
        fields = [
            "id",
            "lane",
            "status",
            "outcome",
            "reason",
            "error_code",
            "to",
            "reference",
            "supersede_key",
            "metadata",
            "region",
            "sender_name",
            "on_unknown",
            "max_routes",
            "created_at",
            "accepted_at",
            "expires_at",
            "finished_at",
        ]

    @extend_schema_field({"type": "string", "enum": ["unknown", None], "nullable": True})
    def get_outcome(self, message: Any) -> str | None:
        """`message` comes from `queries.of_client`, which looked for such an attempt."""
        return "unknown" if message.outcome_unknown else None

    def get_to(self, message: Message) -> str:
        """Never the full number."""
        return phone_numbers.mask(message.to)

    def get_region(self, message: Message) -> str | None:
        """A pool, or null while it is open which one will serve."""
        return (message.final_server.region if message.final_server else message.region) or None


class MessageDetailSerializer(MessageSerializer):
    """Where a message stands, and what was tried."""

    attempts = AttemptSerializer(many=True)

    class Meta(MessageSerializer.Meta):
        fields = [*MessageSerializer.Meta.fields, "attempts"]


class ExplanationSerializer(serializers.Serializer[Any]):
    """What happened to a message and why."""

    id = serializers.UUIDField()
    sentences = serializers.ListField(
        child=serializers.CharField(), help_text="for people: what they say may change, and times are UTC"
    )


class MessagePageSerializer(serializers.Serializer[Any]):
    """A page of messages, newest first."""

    results = MessageSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True, help_text="`cursor` of the next page; null on the last one")
