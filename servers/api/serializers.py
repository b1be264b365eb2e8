"""What the manage API is asked about groups, servers and hosts, and what it answers."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from otp_service.web.pagination import DigitsField, PageQuerySerializer
from otp_service.web.strict_fields import StrictChoiceField, StrictIntegerField, StrictSerializer
from servers.api.fields import (
    MAX_INTEGER,
    ClockTimeField,
    GroupNameField,
    ReasonField,
    RegionField,
    StrictUUIDField,
)
from servers.api.item_lists import SomeServersSerializer
from servers.group_rules import (
    HIGHEST_PRIORITY,
    LONGEST_MINUTES,
    LOWEST_PRIORITY,
    MOST_FAILED_IN_ROW,
    group_warnings,
    window_covers,
)
from servers.models import Group, Host, Server, ServerStatusHistory
from servers.recovery_rules import PersonVerdict
from servers.references import MAX_ITEMS
from servers.rules import EVENT_LABELS, Event, ResetRule, Status, WhyNot

# --- asked ------------------------------------------------------------------------------------------------


def _limit(default: int) -> DigitsField:
    return DigitsField(required=False, default=default, min_value=1, max_value=MAX_ITEMS, help_text="rows on a page")


@extend_schema_field({"type": "boolean"})
class TrueOrFalseField(serializers.Field[Any, Any, Any, Any]):
    """`true` or `false` in an address."""

    default_error_messages = {"invalid": "Write true or false."}

    def to_internal_value(self, data: Any) -> bool:
        if data not in ("true", "false"):
            self.fail("invalid")
        return bool(data == "true")


@extend_schema_field({"type": "integer", "enum": [event.value for event in Event]})
class EventCodeField(DigitsField):
    """The code of an EVENT, in an address."""

    def to_internal_value(self, data: Any) -> int:
        code = super().to_internal_value(data)
        if code not in set(Event):
            raise serializers.ValidationError(f"One of {', '.join(map(str, map(int, Event)))}.", code="invalid_choice")
        return code


class GroupQuerySerializer(PageQuerySerializer):
    """Which groups to list."""

    limit = _limit(MAX_ITEMS)


class ServersOfGroupQuerySerializer(PageQuerySerializer):
    """Which servers of a group to list."""

    limit = _limit(MAX_ITEMS)


class DeleteGroupQuerySerializer(StrictSerializer):
    """How to delete a group."""

    strict = StrictChoiceField(["1"], required=False, help_text="1: not while it has servers")


class ServerQuerySerializer(PageQuerySerializer):
    """Which servers to list."""

    limit = _limit(100)
    region = RegionField(required=False)
    host = DigitsField(required=False, min_value=0, max_value=MAX_INTEGER, help_text="its number")
    status = StrictChoiceField(Status, required=False)
    group = StrictUUIDField(required=False, help_text="in this group, whether it is in force or not")
    cooldown = TrueOrFalseField(required=False)
    preheating = TrueOrFalseField(required=False)


class HistoryQuerySerializer(PageQuerySerializer):
    """Which rows of a server's history to list."""

    limit = _limit(100)
    event = EventCodeField(required=False, help_text="the code of one kind of event")


class HostQuerySerializer(PageQuerySerializer):
    """Which hosts to list."""

    limit = _limit(100)


def _minutes(what: str) -> StrictIntegerField:
    return StrictIntegerField(required=False, min_value=0, max_value=LONGEST_MINUTES, help_text=f"minutes; 0: {what}")


class GroupParametersSerializer(StrictSerializer):
    """What a group may say; what is left out stays as it is, or is the default."""

    name = GroupNameField(required=False)
    priority = StrictIntegerField(
        required=False,
        min_value=LOWEST_PRIORITY,
        max_value=HIGHEST_PRIORITY,
        help_text="of a server's groups whose window covers the moment, the one of highest priority is in force",
    )
    failed_in_row = StrictIntegerField(
        required=False,
        min_value=0,
        max_value=MOST_FAILED_IN_ROW,
        help_text="failures in a row that start a cooldown; 0: the default",
    )
    cooldown_delay_from = _minutes("the ladder applies")
    cooldown_delay_to = _minutes("the ladder applies")
    send_from_message_interval = _minutes("the default")
    send_to_message_interval = _minutes("the default")
    from_time = ClockTimeField(required=False, allow_null=True, help_text="UTC; null: 00:00:00")
    to_time = ClockTimeField(
        required=False, allow_null=True, help_text="UTC, and may lie before from_time: over midnight; null: 23:59:59"
    )
    reset_rule = StrictChoiceField(ResetRule, required=False, allow_null=True, help_text="null: the default")


class NewGroupSerializer(GroupParametersSerializer):
    """A group to make: `name` and `priority` are needed, each used by no other group."""

    name = GroupNameField()
    priority = StrictIntegerField(min_value=LOWEST_PRIORITY, max_value=HIGHEST_PRIORITY)


class ActionSerializer(SomeServersSerializer):
    """A person's verdict on servers."""

    action = StrictChoiceField(PersonVerdict)
    reason = ReasonField(help_text="why; it stands in each server's history")


# --- answered ---------------------------------------------------------------------------------------------


class GroupSerializer(serializers.ModelSerializer[Group]):
    """A group; 0 in a number means "not set"."""

    # Its context is `now`, and `default`: the policy without a group.

    from_time = ClockTimeField()
    to_time = ClockTimeField()
    reset_rule = serializers.SerializerMethodField()
    active_now = serializers.SerializerMethodField(help_text="whether its window covers this moment")
    servers = serializers.IntegerField(source="server_count", help_text="how many are in it")
    warnings = serializers.SerializerMethodField(help_text="what its figures lead to that may not be expected")

    class Meta:
        model = Group
        fields = [
            "uuid",
            "name",
            "priority",
            "failed_in_row",
            "cooldown_delay_from",
            "cooldown_delay_to",
            "send_from_message_interval",
            "send_to_message_interval",
            "from_time",
            "to_time",
            "reset_rule",
            "active_now",
            "servers",
            "warnings",
        ]
        read_only_fields = fields

    @extend_schema_field({"type": "string", "enum": [*(rule.value for rule in ResetRule), None], "nullable": True})
    def get_reset_rule(self, group: Group) -> str | None:
        return group.reset_rule or None

    def get_active_now(self, group: Group) -> bool:
        return window_covers(group.from_time, group.to_time, self.context["now"])

    def get_warnings(self, group: Group) -> list[str]:
        return group_warnings(group, self.context["default"])


class GroupNameSerializer(serializers.ModelSerializer[Group]):
    """Which group."""

    class Meta:
        model = Group
        fields = ["uuid", "name"]
        read_only_fields = fields


class ServerNameSerializer(serializers.ModelSerializer[Server]):
    """Which server."""

    class Meta:
        model = Server
        fields = ["uuid", "region", "unit"]
        read_only_fields = fields


@extend_schema_field({"type": "string", "enum": [status.value for status in Status]}, component_name="ServerStatus")
class StatusField(serializers.CharField):
    """Where a server stands."""


class ServerSerializer(serializers.ModelSerializer[Server]):
    """How a server is."""

    host = serializers.IntegerField(source="host.number", help_text="its number")
    status = StatusField()
    cooldown_times = serializers.IntegerField(help_text="cooldowns since the last reset")
    groups = GroupNameSerializer(many=True)

    class Meta:
        model = Server
        fields = [
            "uuid",
            "region",
            "unit",
            "host",
            "name",
            "handle",
            "status",
            "signed_in",
            "cooldown",
            "cooldown_times",
            "cooldown_end_date",
            "failed_in_row",
            "preheating",
            "next_send_date",
            "groups",
        ]
        read_only_fields = fields


class ServerDetailSerializer(ServerSerializer):
    """All that is known of a server's health."""

    # Its context is the `outlook`.

    why_not = serializers.SerializerMethodField(help_text="why it may not send now; null if it may")
    state = serializers.SerializerMethodField(help_text="how it is, in a sentence")
    group_in_force = serializers.SerializerMethodField(help_text="which group is in force, and why")
    next = serializers.SerializerMethodField(help_text="what happens next, in sentences")

    class Meta(ServerSerializer.Meta):
        fields = [
            *ServerSerializer.Meta.fields,
            "signed_out_at",
            "cooldown_start_date",
            "cooldown_reason",
            "cooldown_warmup_at",
            "cooldown_warmup_sent_date",
            "cooldown_warmup_delivered",
            "cooldown_extensions",
            "fail_open_streak",
            "released_at",
            "preheat_started_at",
            "preheat_repeats",
            "preheat_asked_at",
            "last_sent_at",
            "sends_day",
            "sends_today",
            "new_recipients_today",
            "otp_hour",
            "otp_in_hour",
            "why_not",
            "state",
            "group_in_force",
            "next",
        ]
        read_only_fields = fields

    @extend_schema_field({"type": "string", "enum": [*(reason.value for reason in WhyNot), None], "nullable": True})
    def get_why_not(self, server: Server) -> str | None:
        why_not: WhyNot | None = self.context["outlook"].why_not
        return why_not

    def get_state(self, server: Server) -> str:
        return str(self.context["outlook"].state)

    def get_group_in_force(self, server: Server) -> str:
        return str(self.context["outlook"].group)

    def get_next(self, server: Server) -> list[str]:
        return list(self.context["outlook"].next)


class HistorySerializer(serializers.ModelSerializer[ServerStatusHistory]):
    """One thing that happened to a server."""

    event = serializers.IntegerField(help_text="the code")
    label = serializers.SerializerMethodField()  # type: ignore[assignment]  # the metaclass takes it away
    data = serializers.DictField(  # type: ignore[assignment]  # the metaclass takes it away
        child=serializers.JSONField(), help_text="the figures behind the note"
    )

    class Meta:
        model = ServerStatusHistory
        fields = ["event", "label", "at", "note", "data"]
        read_only_fields = fields

    def get_label(self, row: ServerStatusHistory) -> str:
        return EVENT_LABELS[Event(row.event)]


class HostSerializer(serializers.ModelSerializer[Host]):
    """A relay host."""

    online = serializers.BooleanField(help_text="enabled, and heard of lately")
    servers = serializers.IntegerField(source="server_count", help_text="how many are on it, deleted ones too")

    class Meta:
        model = Host
        fields = [
            "number",
            "name",
            "base_url",
            "protocol",
            "enabled",
            "online",
            "last_seen_at",
            "offline_since",
            "servers",
        ]
        read_only_fields = fields


class ChangedSerializer(serializers.Serializer[Any]):
    """What a call came to."""

    servers = serializers.IntegerField(help_text="how many servers were named")
    changed = serializers.IntegerField(help_text="how many of them are otherwise than before")


class _PageSerializer(serializers.Serializer[Any]):
    """A page, newest first."""

    next_cursor = serializers.CharField(allow_null=True, help_text="`cursor` of the next page; null on the last one")


class GroupPageSerializer(_PageSerializer):
    """A page of groups, newest first."""

    results = GroupSerializer(many=True)


class ServerNamePageSerializer(_PageSerializer):
    """A page of a group's servers, newest first."""

    results = ServerNameSerializer(many=True)


class ServerPageSerializer(_PageSerializer):
    """A page of servers, newest first."""

    results = ServerSerializer(many=True)


class HistoryPageSerializer(_PageSerializer):
    """A page of history, newest first."""

    results = HistorySerializer(many=True)


class HostPageSerializer(_PageSerializer):
    """A page of hosts, newest first."""

    results = HostSerializer(many=True)
