"""A person's verdicts on servers. Each writes one row of history, with who decided and why.

`recover` and `mark_active` put a server into rotation with nothing counted, as if it had been released now, and end
its preheat: starting one is a verdict of its own. Those that take it out of rotation leave its counters as evidence,
and end its talks; they end its preheat too, but for Need Check, which keeps it to be looked at, as the machine's does.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from django.db import transaction

from otp_service.core.errors import ServiceError
from servers import chats, history
from servers.deliverability_limits import NO_COOLDOWN, set_need_check
from servers.models import Server
from servers.preheat import FRESH, NO_PREHEAT, start_chat_preheat, start_preheat
from servers.rules import Event, NeedCheckPath, Status


class RecoveryRefused(ServiceError):
    """The server is not in a state for this verdict; the detail says what to do instead."""

    status = 409
    code = "recovery_refused"


class Verdict(Protocol):
    """A person's decision about one server. Raises a ServiceError when it cannot be carried out."""

    def __call__(self, server_id: int, *, now: datetime, by: str, reason: str = "") -> None: ...


def recover(server_id: int, *, now: datetime, by: str, reason: str = "") -> None:
    """Out of Need Check, into rotation."""
    with transaction.atomic():
        server = history.locked(server_id)
        if server.status != Status.NEED_CHECK:
            raise RecoveryRefused(f"{server} is not in Need Check: mark it active instead.")
        new = FRESH | NO_PREHEAT | {"released_at": now}
        _write(server, Event.RECOVERED, new, now=now, by=by, reason=reason)


def mark_active(server_id: int, *, now: datetime, by: str, reason: str = "") -> None:
    """From any status, and out of a running cooldown, into rotation."""
    with transaction.atomic():
        server = history.locked(server_id)
        new = FRESH | NO_PREHEAT
        if all(getattr(server, name) == value for name, value in new.items()):
            raise RecoveryRefused(f"{server} is active, with nothing counted against it.")
        _write(server, Event.MARKED_ACTIVE, new | {"released_at": now}, now=now, by=by, reason=reason)


def need_check(server_id: int, *, now: datetime, by: str, reason: str = "") -> None:
    """Out of rotation until a person decides."""
    with transaction.atomic():
        server = history.locked(server_id)
        _refuse_again(server, Status.NEED_CHECK)
        set_need_check(server_id, now=now, path=NeedCheckPath.ADMIN, reason=reason, by=by)
        chats.stop(server, now)


def lost(server_id: int, *, now: datetime, by: str, reason: str = "") -> None:
    """Given up: its account or its device is gone."""
    _take_out(server_id, Status.LOST, Event.LOST, now=now, by=by, reason=reason)


def disable(server_id: int, *, now: datetime, by: str, reason: str = "") -> None:
    """Switched off."""
    _take_out(server_id, Status.DISABLED, Event.DISABLED, now=now, by=by, reason=reason)


def delete(server_id: int, *, now: datetime, by: str, reason: str = "") -> None:
    """Gone; its row and its history stay."""
    _take_out(server_id, Status.DELETED, Event.DELETED, now=now, by=by, reason=reason)


#: The verdict's name, in addresses and forms, and what carries it out.
VERDICTS: Mapping[str, Verdict] = {
    "recover": recover,
    "mark_active": mark_active,
    "start_preheat": start_preheat,
    "start_chat_preheat": start_chat_preheat,
    "need_check": need_check,
    "lost": lost,
    "disable": disable,
    "delete": delete,
}


def _take_out(server_id: int, status: Status, event: Event, *, now: datetime, by: str, reason: str) -> None:
    with transaction.atomic():
        server = history.locked(server_id)
        _refuse_again(server, status)
        new = NO_COOLDOWN | NO_PREHEAT | {"status": status.value}
        _write(server, event, new, now=now, by=by, reason=reason)
        chats.stop(server, now)


def _refuse_again(server: Server, status: Status) -> None:
    if server.status == status:
        raise RecoveryRefused(f"{server} is {status.value} already.")
    if server.status == Status.DELETED:
        raise RecoveryRefused(f"{server} is deleted: mark it active first.")


def _write(server: Server, event: Event, new: Mapping[str, Any], *, now: datetime, by: str, reason: str) -> None:
    history.change(server, event, new, at=now, note=reason, data={"by": by, "reason": reason})
