"""From a line of a campaign to a message: the rules of a message that is posted alone, for many at once.

What nearly every line looks like is recognised by rules that accept nothing else; everything else is judged by the
fields of the serializer. What many lines have in common is judged once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.conf import settings
from rest_framework.exceptions import ValidationError
from rest_framework.fields import empty

from otp_service.core.errors import ServiceError
from otp_service.messages import intake, number_patterns, plan
from otp_service.messages.campaign_lines import Fault, shown_name
from otp_service.messages.models import Message
from otp_service.messages.plan import NewMessage
from otp_service.messages.rules import Lane
from otp_service.messages.serializers import MAX_TEXT, NewMessageSerializer
from otp_service.web.fields import encrypted_field, recipient_hash
from otp_service.web.problems import field_errors

_OF_EACH = ("to", "text", "addresses", "reference", "metadata")  # what lines hardly share
_SOMEBODY, _SOMETHING = "+34600000000", "x"  # what stands in for it while the rest is judged
_MOST_KEPT = 10_000  # judgements in memory
_LINE_BREAKS = str.maketrans("\n\r\t", "   ")
_SEEN = re.compile("[!-~]")
_DETAIL = 500  # characters


class CampaignRowSerializer(NewMessageSerializer):
    """A line of a campaign: a message whose lane is promo, and which takes no other's place."""

    lane = None  # type: ignore[assignment]  # how a field of the base is left out
    supersede_key = None  # type: ignore[assignment]  # as above

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """By the lane that it has."""
        super().validate({**attrs, "lane": Lane.PROMO.value})
        return attrs


_SERIALIZER = CampaignRowSerializer()
FIELDS = tuple(_SERIALIZER.fields)


@dataclass(frozen=True, slots=True)
class _Terms:
    """What a line says beside its recipient and its text."""

    region: str
    channels: tuple[str, ...]
    sender_name: str
    life: plan.Lifetime
    on_late_first: str
    max_attempts: int
    max_routes: int
    on_unknown: str


class Row(NamedTuple):
    """A message to store: its line, the ways it may take, and its columns, encrypted where they are at rest."""

    line: int
    pools: tuple[str, ...]
    to: bytes
    to_hash: bytes
    text: bytes
    region: str
    channels: tuple[str, ...]
    addresses: bytes | None
    sender_name: str
    reference: str
    metadata: str
    event_at: datetime
    expires_at: datetime
    first_attempt_by: datetime | None
    on_late_first: str
    max_attempts: int
    max_routes: int
    on_unknown: str


class Rows:
    """Judges lines at one moment."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._terms: dict[str, _Terms | Fault] = {}
        self._pools: dict[tuple[str, str], tuple[str, ...]] = {}
        self._prefix = max(map(len, settings.POOLS_BY_PREFIX))
        self._seal_to = encrypted_field(Message, "to").seal
        self._seal_text = encrypted_field(Message, "text").seal

    def row(self, line: int, values: Mapping[str, Any]) -> Row | Fault:
        """The message of a line, or the first thing that is wrong with it."""
        try:
            return self._row(line, values)
        except ValidationError as error:
            return _fault(error)
        except ServiceError as error:
            return Fault(error.code, error.detail, error.data["errors"][0]["field"])

    def _row(self, line: int, values: Mapping[str, Any]) -> Row | Fault:
        to, text, reference = _recipient(values), _text(values), _reference(values)
        metadata = json.dumps(_judged("metadata", values)) if "metadata" in values else "{}"
        terms = self._terms_of({name: value for name, value in values.items() if name not in _OF_EACH})
        if isinstance(terms, Fault):
            return terms
        addresses = _judged("addresses", values) if "addresses" in values else {}
        plan.check_addresses(terms.channels, addresses)
        return Row(
            line,
            self._pools_of(to, terms.region),
            self._seal_to(to),
            recipient_hash(to),
            self._seal_text(text),
            terms.region,
            terms.channels,
            intake.sealed_addresses(addresses),
            terms.sender_name,
            reference,
            metadata,
            terms.life.event_at,
            terms.life.expires_at,
            terms.life.first_attempt_by,
            terms.on_late_first,
            terms.max_attempts,
            terms.max_routes,
            terms.on_unknown,
        )

    def _terms_of(self, values: Mapping[str, Any]) -> _Terms | Fault:
        written = json.dumps(values, sort_keys=True) if values else ""
        found = self._terms.get(written)
        if found is None:
            if len(self._terms) >= _MOST_KEPT:
                self._terms.clear()
            found = self._terms[written] = self._judge_terms(values)
        return found

    def _judge_terms(self, values: Mapping[str, Any]) -> _Terms | Fault:
        try:
            given = _SERIALIZER.run_validation({"to": _SOMEBODY, "text": _SOMETHING, **values})
        except ValidationError as error:
            return _fault(error)
        request, lane = NewMessage(**given, lane=Lane.PROMO.value), settings.LANE_DEFAULTS[Lane.PROMO]
        try:
            life = plan.lifetime(request, lane, now=self._now)
        except ServiceError as error:
            return Fault(error.code, error.detail, error.data["errors"][0]["field"])
        return _Terms(
            request.region,
            tuple(request.channels),
            request.sender_name,
            life,
            request.on_late_first or lane["on_late_first"],
            request.max_attempts or lane["max_attempts"],
            request.max_routes or lane["max_routes"],
            request.on_unknown or lane["on_unknown"],
        )

    def _pools_of(self, to: str, region: str) -> tuple[str, ...]:
        """They follow from the region, or from how the number begins."""
        known = (region, to[: self._prefix])
        found = self._pools.get(known)
        if found is None:
            if len(self._pools) >= _MOST_KEPT:
                self._pools.clear()
            request = NewMessage(to=to, text="", region=region)
            found = self._pools[known] = tuple(plan.pools(request, settings.POOLS_BY_PREFIX))
        return found


def _judged(name: str, values: Mapping[str, Any]) -> Any:
    """What the serializer makes of one field. Raises ValidationError that names it."""
    try:
        value = _SERIALIZER.fields[name].run_validation(values.get(name, empty))
        check = getattr(_SERIALIZER, f"validate_{name}", None)
        return check(value) if check else value
    except ValidationError as error:
        raise ValidationError({name: error.detail}) from None


def _recipient(values: Mapping[str, Any]) -> str:
    to = values.get("to")
    return to if isinstance(to, str) and number_patterns.is_surely_valid(to) else str(_judged("to", values))


def _text(values: Mapping[str, Any]) -> str:
    text = values.get("text")
    if isinstance(text, str) and len(text) <= MAX_TEXT and _is_plain(text):
        return text
    return str(_judged("text", values))


def _is_plain(text: str) -> bool:
    """Whether there is something to read in it, and nothing that would need a closer look."""
    printable = text.isprintable() or text.translate(_LINE_BREAKS).isprintable()
    return printable and _SEEN.search(text) is not None


def _reference(values: Mapping[str, Any]) -> str:
    reference = values.get("reference", "")
    if isinstance(reference, str) and len(reference) <= 255 and reference.isprintable():
        return reference
    return str(_judged("reference", values))


def _fault(error: ValidationError) -> Fault:
    first = next(field_errors(error.detail))
    return Fault(first["code"], first["detail"][:_DETAIL], shown_name(first["field"]) if first["field"] else "")
