"""What clients say of campaigns, and read of them."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from otp_service.messages.campaign_models import MAX_WEIGHT
from otp_service.messages.models import Campaign
from otp_service.messages.rules import MessageStatus
from otp_service.web.pagination import DigitsField, PageQuerySerializer
from otp_service.web.strict_fields import StrictCharField, StrictChoiceField, StrictSerializer


class CampaignQuerySerializer(StrictSerializer):
    """What a campaign is, beside its lines."""

    name = StrictCharField(required=False, default="", allow_blank=True, max_length=100, help_text="yours, for people")
    weight = DigitsField(
        required=False,
        default=1,
        min_value=1,
        max_value=MAX_WEIGHT,
        help_text="its share beside the other promo traffic: one of weight 2 is sent twice as fast as one of weight 1",
    )
    start = StrictChoiceField(
        ["true", "false"],
        required=False,
        default="true",
        help_text="`false`: it waits, paused, for its resume",
    )


class CampaignListSerializer(PageQuerySerializer):
    """Which campaigns to list."""

    state = StrictChoiceField(Campaign.State.values, required=False)


@extend_schema_field(
    {
        "type": "object",
        "properties": {status.value: {"type": "integer"} for status in MessageStatus},
        "required": [status.value for status in MessageStatus],
    }
)
class CountsField(serializers.Field[Any, Any, Any, Any]):
    """How many messages stand at each status."""

    def to_representation(self, value: Any) -> Any:
        return value


class CampaignLinksSerializer(serializers.Serializer[Any]):
    """Where to go on."""

    self = serializers.CharField()
    errors = serializers.CharField(  # type: ignore[assignment]  # the metaclass takes it away
        help_text="the lines that were refused, as CSV"
    )


class CampaignSerializer(serializers.ModelSerializer[Campaign]):
    """How far a campaign is."""

    id = serializers.UUIDField(source="uuid")
    state = serializers.CharField(help_text=f"one of {', '.join(Campaign.State.values)}")
    starts = serializers.BooleanField(help_text="whether it is sent as soon as its upload is whole")
    lines_read = serializers.IntegerField(help_text="of the upload, up to its last part that is stored")
    accepted = serializers.IntegerField(help_text="lines that became messages")
    refused = serializers.IntegerField(help_text="lines that did not: `links.errors` says why")
    messages = CountsField(help_text="how many of its messages stand at each status")
    loaded_at = serializers.DateTimeField(allow_null=True, help_text="when its upload was whole")
    links = CampaignLinksSerializer()

    class Meta:
        model = Campaign
        fields = [
            "id",
            "name",
            "state",
            "starts",
            "weight",
            "lines_read",
            "accepted",
            "refused",
            "messages",
            "created_at",
            "loaded_at",
            "links",
        ]


class CampaignPageSerializer(serializers.Serializer[Any]):
    """A page of campaigns, newest first."""

    results = CampaignSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True, help_text="`cursor` of the next page; null on the last one")
