"""Recipients: what they want, what is known of their numbers, and who changes it.

What a recipient wants belongs to the installation: it holds for every client. Numbers are not kept; a row is found by
the hash of its number under any of HASH_KEYS. Locks: reports by ascending hash, after messages and attempts.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import QuerySet

from otp_service.core import phone_numbers
from otp_service.core.phone_numbers import PhoneNumberError
from otp_service.events import log as events
from otp_service.messages.recipient_models import InvalidReport, Recipient
from otp_service.messages.recipient_rules import (
    QuietHours,
    RecipientView,
    Word,
    is_invalid,
    quiet_until,
    time_zone_of,
    word,
    zone,
)
from otp_service.messages.rules import Channel
from otp_service.web.batches import remove_batch
from otp_service.web.fields import keyed_hashes, recipient_hash, recipient_hashes

CHANGED_EVENT = "recipient.changed"
#: Who changed what a recipient wants, where the recipient did.
THEMSELVES = "recipient"
_SUBJECTS = uuid.UUID("b6a0a3b4-3a54-4d0e-9c57-0f6a5a2f7c11")
_NOTHING = RecipientView()

# --- what they want ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Preferences:
    """What a recipient wants. Quiet hours: from, to, by their own clocks. `stopped` None: as it was."""

    refused_channels: tuple[str, ...] = ()
    quiet_hours: tuple[time, time] | None = None
    stopped: bool | None = False


def preferences(e164: str) -> Preferences:
    """What the recipient wants; of whom nothing is known, everything is wanted."""
    row = _of(e164).first()
    return _preferences(row) if row else Preferences()


def put_preferences(e164: str, wanted: Preferences, *, now: datetime, by: str) -> Preferences:
    """Replace what the recipient wants, with an Event if it changes; returns what holds then."""

    def edit(row: Recipient) -> None:
        row.refused_channels = sorted(wanted.refused_channels)
        row.quiet_from, row.quiet_to = wanted.quiet_hours or (None, None)
        row.time_zone = time_zone_of(e164, settings.REGION_TIME_ZONES) if wanted.quiet_hours else ""
        if wanted.stopped is not None:
            _set_stopped(row, wanted.stopped, now)

    return _preferences(_change(e164, edit, now, by))


def note_stop(e164: str, *, now: datetime) -> None:
    """The recipient answered STOP."""
    _change(e164, lambda row: _set_stopped(row, True, now), now, THEMSELVES)


def note_start(e164: str, *, now: datetime) -> None:
    """The recipient takes STOP back."""
    _change(e164, lambda row: _set_stopped(row, False, now), now, THEMSELVES)


def note_answers(answers: Iterable[tuple[str, str]], *, now: datetime) -> None:
    """What people wrote to us, `(address, text)` in order: the last STOP or START of each number counts.

    Every other text, and addresses that are no numbers, change nothing. A number that answers can be: what routes said
    against it is forgotten. The last locks of the caller's transaction.
    """
    said = {}
    for address, text in answers:
        found = word(text)
        number = _number(address) if found else None
        if found and number:
            said[number] = found
    for number in sorted(said, key=recipient_hash):
        match said[number]:
            case Word.STOP:
                note_stop(number, now=now)
            case Word.START:
                note_start(number, now=now)
    note_delivered([key for number in said for key in recipient_hashes(number)])


def _number(address: str) -> str | None:
    try:
        return phone_numbers.parse(address)
    except PhoneNumberError:
        return None


def _of(e164: str) -> QuerySet[Recipient]:
    return Recipient.objects.filter(recipient_hash__in=recipient_hashes(e164)).order_by("id")


def _change(e164: str, edit: Callable[[Recipient], None], now: datetime, by: str) -> Recipient:
    """One after another: whoever comes second edits what the first one left."""
    with transaction.atomic():
        row = _of(e164).select_for_update(no_key=True).first() or _new(e164, now)
        old = _told(row)
        edit(row)
        new = _told(row)
        if new != old:
            row.changed_at = now
            row.save(
                update_fields=["refused_channels", "quiet_from", "quiet_to", "time_zone", "stopped_at", "changed_at"]
            )
            subject = uuid.uuid5(_SUBJECTS, bytes(row.recipient_hash).hex())
            events.record(CHANGED_EVENT, at=now, subject_uuid=subject, data={"by": by, "old": old, "new": new})
    return row


def _new(e164: str, now: datetime) -> Recipient:
    """The row, locked. Another may make it at the same time."""
    own = Recipient(recipient_hash=recipient_hash(e164), changed_at=now)
    Recipient.objects.bulk_create([own], ignore_conflicts=True)
    return Recipient.objects.select_for_update(no_key=True).get(recipient_hash=own.recipient_hash)


def _set_stopped(row: Recipient, stopped: bool, now: datetime) -> None:
    row.stopped_at = (row.stopped_at or now) if stopped else None


def _preferences(row: Recipient) -> Preferences:
    hours = (row.quiet_from, row.quiet_to) if row.quiet_from and row.quiet_to else None
    return Preferences(tuple(row.refused_channels), hours, row.stopped_at is not None)


def _told(row: Recipient) -> dict[str, Any]:
    wants = _preferences(row)
    hours = [moment.isoformat("minutes") for moment in wants.quiet_hours or ()]
    return {
        "refused_channels": list(wants.refused_channels),
        "quiet_hours": {"from": hours[0], "to": hours[1], "time_zone": row.time_zone} if hours else None,
        "stopped": wants.stopped,
    }


# --- what is looked at before each send ----------------------------------------------------------------

# From the newest: where rows come and go, the oldest entries of the index are dead.
_ANY = f"""
SELECT (SELECT id FROM {Recipient._meta.db_table} ORDER BY id DESC LIMIT 1) IS NOT NULL,
       (SELECT id FROM {InvalidReport._meta.db_table} ORDER BY id DESC LIMIT 1) IS NOT NULL
"""  # noqa: S608 - the tables' own names

# Each hash is looked up by itself (OFFSET 0 keeps it so): for a list of them the planner may read the whole table
# instead, where it knows nothing of the column yet.
_WISHES = f"""
SELECT r.recipient_hash, r.refused_channels, r.quiet_from, r.quiet_to, r.time_zone, r.stopped_at IS NOT NULL
FROM unnest(%(hashes)s::bytea[]) AS asked (hash) CROSS JOIN LATERAL (
  SELECT * FROM {Recipient._meta.db_table} r WHERE r.recipient_hash = asked.hash OFFSET 0
) r
"""  # noqa: S608 - the table's own name

_REPORTS = f"""
SELECT i.recipient_hash, i.at FROM unnest(%(hashes)s::bytea[]) AS asked (hash) CROSS JOIN LATERAL (
  SELECT * FROM {InvalidReport._meta.db_table} i WHERE i.recipient_hash = asked.hash OFFSET 0
) i
"""  # noqa: S608 - the table's own name


def standing(hashes: Collection[bytes], *, now: datetime) -> Mapping[bytes, RecipientView]:
    """By hash, those of whom anything is known that concerns a message now. Locks nothing."""
    return _standing({each: each for each in hashes}, now)


def standing_of(numbers: Mapping[bytes, str], *, now: datetime) -> Mapping[bytes, RecipientView]:
    """`standing` of these numbers, by the hash that the caller knows each by: also after HASH_KEYS were changed."""
    if len(keyed_hashes()) == 1:
        return standing(numbers, now=now)
    return _standing(
        {each: known for known, number in numbers.items() for each in (known, *recipient_hashes(number))}, now
    )


def _standing(asked: Mapping[bytes, bytes], now: datetime) -> Mapping[bytes, RecipientView]:
    """`asked`: each hash that is looked up, and the one that the answer is given by."""
    any_wish, any_report = _rows(_ANY)[0] if asked else (False, False)
    parameters = {"hashes": _array(asked)} if any_wish or any_report else {}
    wishes = _rows(_WISHES, parameters) if any_wish else []
    found = {asked[key]: _view(wish, now) for key, *wish in wishes}
    reports: dict[bytes, list[datetime]] = defaultdict(list)
    for key, at in _rows(_REPORTS, parameters) if any_report else ():
        reports[asked[key]].append(at)
    for key, times in reports.items():
        if is_invalid(times, now, settings.INVALID_FOR):
            found[key] = replace(found.get(key, _NOTHING), invalid=True)
    return {key: view for key, view in found.items() if view != _NOTHING}


def _view(wish: Sequence[Any], now: datetime) -> RecipientView:
    refused, start, end, time_zone, stopped = wish
    # A zone that this machine does not know must not stop the claim that it stands in.
    hours = QuietHours(start, end, zone(time_zone) or UTC) if time_zone else None
    return RecipientView(
        refused_channels=frozenset(map(Channel, refused)),
        stopped=stopped,
        quiet_until=quiet_until(hours, now) if hours else None,
    )


# --- numbers that cannot be ----------------------------------------------------------------------------

# In the order given, which is that of the locks.
_NOTE = f"""
INSERT INTO {InvalidReport._meta.db_table} AS known (recipient_hash, route, at)
SELECT said.hash, said.route, %(now)s FROM unnest(%(hashes)s::bytea[], %(routes)s::varchar[]) AS said (hash, route)
ON CONFLICT (recipient_hash, route) DO UPDATE SET at = EXCLUDED.at WHERE known.at < EXCLUDED.at
"""  # noqa: S608 - the table's own name

# Waits for nobody: a report that is being written at this moment counts as the later news.
_CLEAR = f"""
DELETE FROM {InvalidReport._meta.db_table} WHERE id = ANY(ARRAY(
  SELECT i.id FROM unnest(%(hashes)s::bytea[]) AS reached (hash) CROSS JOIN LATERAL (
    SELECT id FROM {InvalidReport._meta.db_table} WHERE recipient_hash = reached.hash FOR UPDATE SKIP LOCKED
  ) i
))
"""  # noqa: S608 - the table's own name


def note_invalid(rows: Sequence[tuple[bytes, str]], *, now: datetime) -> None:
    """Routes called numbers invalid, `(hash, route)`. Safe to repeat. In one transaction, before `note_delivered`."""
    if not rows:
        return
    keys, routes = zip(*sorted(set(rows)), strict=True)
    with connection.cursor() as cursor:
        cursor.execute(_NOTE, {"hashes": _array(keys), "routes": list(routes), "now": now})


def note_delivered(hashes: Collection[bytes]) -> None:
    """Something reached these numbers: what was said against them is forgotten. Nearly always nothing was."""
    if hashes and _rows(_ANY)[0][1]:
        with connection.cursor() as cursor:
            cursor.execute(_CLEAR, {"hashes": _array(hashes)})


def remove_old_reports(*, now: datetime, batch: int = 1000) -> int:
    """Forget a batch of reports that decide nothing any more; returns how many. Safe beside itself."""
    old = InvalidReport.objects.filter(at__lte=now - 2 * settings.INVALID_FOR)
    return remove_batch(old.order_by("at"), batch)


def _rows(statement: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def _array(hashes: Iterable[bytes]) -> str:
    """An array literal for a parameter that the statement casts: the driver adapts a list value by value."""
    return "{" + ",".join([f'"\\\\x{each.hex()}"' for each in hashes]) + "}"
