"""Groups: made, changed and deleted by people; and the figures in force for servers, which groups decide with.

Names and priorities are unique. Who takes one at the same moment as somebody else is told which group has it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction

from otp_service.core.errors import ServiceError
from otp_service.events import log
from servers import history, memberships, rules
from servers.group_rules import PARAMETERS, FieldFault, group_faults, group_in_force
from servers.models import WHOLE_DAY_FROM, WHOLE_DAY_TO, Group, Server

#: What stands for "not set" in the parameters where callers may leave it open.
_UNSET = {"from_time": WHOLE_DAY_FROM, "to_time": WHOLE_DAY_TO, "reset_rule": ""}
#: What PostgreSQL calls the indexes that keep these apart.
_UNIQUE = {f"{Group._meta.db_table}_{field}_key": field for field in ("name", "priority")}


class GroupInvalid(ServiceError):
    """A group cannot have these values: `errors` has a row for each that is wrong."""

    status = 400
    code = "invalid"
    title = "The group cannot be like that"

    def __init__(self, faults: Collection[FieldFault]) -> None:
        fields = ", ".join(dict.fromkeys(fault.field for fault in faults))
        super().__init__(f"Mend {fields} and send it again.", errors=[asdict(fault) for fault in faults])


class GroupTaken(ServiceError):
    """Another group has this priority (`priority_taken`) or this name (`name_taken`)."""

    status = 409
    title = "Another group has it"


class GroupInUse(ServiceError):
    """Servers are in the group, and whoever deletes it asked for that not to be."""

    status = 409
    code = "group_in_use"
    title = "Servers are in the group"


def default_policy() -> rules.Policy:
    """What the settings give."""
    return rules.Policy(
        threshold=settings.FAILED_IN_ROW,
        ladder=rules.ladder_of(settings.COOLDOWN_LADDER),
        send_interval=settings.SEND_INTERVAL_MINUTES,
        reset_rule=rules.ResetRule(settings.RESET_RULE),
        reset_deliveries=settings.RESET_DELIVERIES,
        reset_deliveries_preheating=settings.RESET_DELIVERIES_PREHEATING,
        reset_window=settings.RESET_WINDOW,
        warmup_min_margin=settings.WARMUP_MIN_MARGIN,
        long_cooldown=settings.LONG_COOLDOWN_MINUTES,
        warmup_after_long=settings.WARMUP_AFTER_LONG_MINUTES,
        warmup_after_short=settings.WARMUP_AFTER_SHORT_MINUTES,
        warmup_lead=settings.WARMUP_LEAD,
        proof_window=settings.WARMUP_PROOF_WINDOW,
        verdict_delay=settings.VERDICT_DELAY,
        extension=settings.EXTENSION_MINUTES,
        max_extensions=settings.MAX_EXTENSIONS,
        fail_open_limit=settings.FAIL_OPEN_LIMIT,
        preheat_pace=settings.PREHEAT_PACE,
        minute=timedelta(minutes=1) / settings.HEALTH_SPEED,
    )


def policies_of(server_ids: Iterable[int], *, now: datetime) -> dict[int, rules.Policy]:
    """The policy of each server at `now`, in one query."""
    ids = list(server_ids)
    groups: dict[int, list[Group]] = defaultdict(list)
    for link in Server.groups.through.objects.filter(server_id__in=ids).select_related("group"):
        groups[link.server_id].append(link.group)
    default = default_policy()
    return {key: rules.policy_in_force(default, group_in_force(groups[key], now)) for key in ids}


# --- what people do ------------------------------------------------------------------------------------


def create_group(values: Mapping[str, Any], *, now: datetime, by: str) -> Group:
    """A group of these parameters, the others as by default. Raises GroupInvalid, GroupTaken."""
    with transaction.atomic():
        group = Group()
        _merge(group, values)
        _write(group)
        _tell("group.created", group, old={}, new=_parameters(group), now=now, by=by)
    return group


def change_group(group_uuid: UUID, values: Mapping[str, Any], *, now: datetime, by: str) -> Group:
    """Change any of its parameters; all of them together must be right, as for a new one.

    Raises Group.DoesNotExist, GroupInvalid, GroupTaken. What is as it was already is not written, nor told.
    """
    with transaction.atomic():
        group = Group.objects.select_for_update(no_key=True).get(uuid=group_uuid)
        old = _merge(group, values)
        if old:
            _write(group, update_fields=old)
            new = {name: getattr(group, name) for name in old}
            record_group_change(group, old=old, new=new, now=now, by=by)
    return group


def delete_group(group_uuid: UUID, *, now: datetime, by: str, strict: bool = False) -> int:
    """Take its servers out of it (a row of history each), then delete it; returns how many servers those were.

    Raises Group.DoesNotExist; if `strict`, GroupInUse instead of taking servers out.
    """
    with transaction.atomic():
        # Not NO KEY: nobody is to come into it any more, by a row that refers to it either.
        group = Group.objects.select_for_update().get(uuid=group_uuid)
        members = list(group.servers.values_list("pk", flat=True))
        if strict and members:
            raise GroupInUse(
                f"Servers in {group}: {len(members)}. Take them out, or delete it without strict, which does that."
            )
        left = memberships.change_groups(members, [group.pk], memberships.How.REMOVE, now=now, by=by).changed
        _tell("group.deleted", group, old=_parameters(group), new={}, now=now, by=by, servers=left)
        group.delete()
    return left


def record_group_change(
    group: Group, *, old: Mapping[str, Any], new: Mapping[str, Any], now: datetime, by: str
) -> None:
    """Tell that a group's parameters changed, so that reports can say that a rule changed inside their window."""
    _tell("group.changed", group, old=old, new=new, now=now, by=by)


def _tell(
    event_type: str,
    group: Group,
    *,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    now: datetime,
    by: str,
    **more: int,
) -> None:
    log.record(event_type, at=now, subject_uuid=group.uuid, data=history.old_and_new(old, new) | {"by": by, **more})


def _parameters(group: Group) -> dict[str, Any]:
    return {name: getattr(group, name) for name in PARAMETERS}


def _merge(group: Group, values: Mapping[str, Any]) -> dict[str, Any]:
    """Put values into a group that is not written yet; returns what stood where they differ. Raises GroupInvalid."""
    unknown = [
        FieldFault(name, "unknown_field", "A group has no such field.") for name in values if name not in PARAMETERS
    ]
    given = {name: values[name] for name in PARAMETERS if name in values}
    given |= {name: unset for name, unset in _UNSET.items() if name in given and given[name] is None}
    old = {name: getattr(group, name) for name, value in given.items() if getattr(group, name) != value}
    for name in old:
        setattr(group, name, given[name])
    faults = unknown + group_faults(group)
    if faults:
        raise GroupInvalid(faults)
    return old


def _write(group: Group, update_fields: Iterable[str] | None = None) -> None:
    """Insert it, or write the fields named. Raises GroupTaken."""
    try:
        with transaction.atomic():
            group.save(force_insert=update_fields is None, update_fields=update_fields)
    except IntegrityError as error:
        field = _field_taken(error)
        if field is None:
            raise
        raise _taken(group, field) from None


def _field_taken(error: IntegrityError) -> str | None:
    diagnosis = getattr(error.__cause__, "diag", None)
    return _UNIQUE.get(getattr(diagnosis, "constraint_name", None) or "")


def _taken(group: Group, field: str) -> GroupTaken:
    """Names the group that has it; it may be gone again by now."""
    value = getattr(group, field)
    other = Group.objects.filter(**{field: value}).first()
    who = f"The group {other} ({other.uuid})" if other else "Another group, at this moment,"
    return GroupTaken(f"{who} has the {field} {value}: choose another one.", code=f"{field}_taken")
