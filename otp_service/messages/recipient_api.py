"""The client API of what recipients want."""

from __future__ import annotations

import re
from datetime import time
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from otp_service.core import phone_numbers
from otp_service.core.clock import utc_now
from otp_service.messages import recipients
from otp_service.messages.api import ClientView
from otp_service.messages.recipients import Preferences
from otp_service.messages.serializers import ChannelsField
from otp_service.web.authentication import caller
from otp_service.web.openapi import problems
from otp_service.web.strict_fields import StrictCharField, StrictSerializer

_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")


class RefusedChannelsField(ChannelsField):
    """Channels; there may be none."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.allow_empty = True


class StrictBooleanField(serializers.BooleanField):
    """JSON's true or false."""

    default_error_messages = {"invalid": "Send true or false."}

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid")
        return data


@extend_schema_field({"type": "string", "pattern": f"^{_TIME.pattern}$"})
class TimeOfDayField(StrictCharField):
    """A time of day, to the minute."""

    def to_internal_value(self, data: Any) -> time:  # type: ignore[override]  # a string outside, a time inside
        found = _TIME.fullmatch(super().to_internal_value(data))
        if found is None:
            raise ValidationError("Write hours and minutes, as in 08:00.", code="invalid")
        return time(int(found[1]), int(found[2]))


class QuietHoursSerializer(StrictSerializer):
    """Hours without promo messages, by the clocks of the number's region; they may go over midnight."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {
            "from": TimeOfDayField(help_text="the first minute that is quiet"),
            "to": TimeOfDayField(help_text="the first minute that is not; another one than `from`"),
        }

    def validate(self, attrs: dict[str, time]) -> tuple[time, time]:
        if attrs["from"] == attrs["to"]:
            raise ValidationError({"to": "Give another time than in from; for no promo at any time, set stopped."})
        return attrs["from"], attrs["to"]


class PreferencesSerializer(StrictSerializer):
    """What a recipient wants."""

    refused_channels = RefusedChannelsField(
        help_text="channels that nothing is sent over; [] if all are welcome",
        error_messages={"required": "Name the channels that nothing is sent over, [] for none."},
    )
    quiet_hours = QuietHoursSerializer(
        allow_null=True,
        help_text="when promo messages wait; null if never",
        error_messages={"required": "Say when promo messages wait, null for never."},
    )
    stopped = StrictBooleanField(
        required=False,
        help_text="whether the recipient answered STOP: no promo messages at all. Left out, it stays as it was",
    )


_PREFERENCES = PreferencesSerializer()

_E164 = OpenApiParameter(
    "e164",
    {"type": "string", "minLength": 5, "maxLength": 32},
    OpenApiParameter.PATH,
    description="The number in international form, as in +34600000000; its + may be written %2B.",
)
_EXAMPLE = OpenApiExample(
    "No SMS, and no promo at night",
    {"refused_channels": ["sms"], "quiet_hours": {"from": "22:00", "to": "08:00"}, "stopped": False},
)


class PreferencesView(ClientView):
    """What one recipient wants. It belongs to the installation: every client reads, replaces and respects the same."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Django writes the path of what fails into the log: without the number."""
        request.path = request.path.replace(kwargs["e164"], "***")
        return super().dispatch(request, *args, **kwargs)

    @extend_schema(
        operation_id="get_preferences",
        summary="Read what a recipient wants",
        parameters=[_E164],
        responses={200: PreferencesSerializer, **problems(400)},
        examples=[_EXAMPLE],
        tags=["recipients"],
    )
    def get(self, request: Request, e164: str) -> Response:
        """Says what holds for a number, whichever client writes to it. Of whom nothing is known, all is wanted."""
        return Response(_shown(recipients.preferences(_number(e164))))

    @extend_schema(
        operation_id="put_preferences",
        summary="Replace what a recipient wants",
        parameters=[_E164],
        request=PreferencesSerializer,
        responses={200: PreferencesSerializer, **problems(400, 413, 415)},
        examples=[_EXAMPLE],
        tags=["recipients"],
    )
    def put(self, request: Request, e164: str) -> Response:
        """Replaces it as a whole, for every client of this installation. Messages that are not sent yet respect it."""
        number = _number(e164)
        given = _PREFERENCES.run_validation(request.data)
        wanted = Preferences(given["refused_channels"], given["quiet_hours"], given.get("stopped"))
        by = f"client {caller(request).client_id}"
        return Response(_shown(recipients.put_preferences(number, wanted, now=utc_now(), by=by)))


def _number(written: str) -> str:
    try:
        return phone_numbers.parse(written)
    except phone_numbers.PhoneNumberError as error:
        raise ValidationError({"the number in the address": [ErrorDetail(error.detail, code=error.code)]}) from None


def _shown(wants: Preferences) -> dict[str, Any]:
    hours = [moment.isoformat("minutes") for moment in wants.quiet_hours or ()]
    return {
        "refused_channels": list(wants.refused_channels),
        "quiet_hours": {"from": hours[0], "to": hours[1]} if hours else None,
        "stopped": wants.stopped,
    }
