"""What relay hosts tell of the fleet itself: units that sign in or out, and messages between our own servers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import structlog

from otp_service.core.outcomes import ReportedState
from otp_service.routes.receipts import Named
from servers import internal_sends
from servers.cooldown import confirm_cooldown_warmup_delivery
from servers.history import lock_servers
from servers.hosts import set_signed_in
from servers.internal_sends import IMESSAGE, News
from servers.models import Server
from servers.relay.events import Delivered, Inbound, MessageFailed, MessageSent, Read, RelayEvent, UnitStatus
from servers.rules import Status

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A unit of ours signed in or out."""

    host_id: int
    unit: int
    signed_in: bool


@dataclass(frozen=True, slots=True)
class Arrival:
    """Something came in at one of our servers from the address of another; `certain`: of that one and of no other."""

    sender_id: int
    receiver_id: int
    certain: bool


@dataclass(frozen=True, slots=True)
class FleetNews:
    """What a call tells of the fleet, in its order; `others` are the events that are not about it.

    `servers` are all those that `apply` changes.
    """

    news: Sequence[tuple[int, News | SignedIn | Arrival]]  # server id → what concerns it
    others: Sequence[RelayEvent]

    @property
    def servers(self) -> set[int]:
        return {server_id for server_id, _ in self.news}


def read(host_id: int, events: Sequence[RelayEvent], clients: Named) -> FleetNews:
    """Tell what is about the fleet from what is about `clients` messages. Changes and locks nothing."""
    sends = _Sends.named_by(host_id, [event for event in events if not _is_of(clients, event)])
    units = _servers_of_units(host_id, events)
    writers = _servers_of_handles(events)
    news: list[tuple[int, News | SignedIn | Arrival]] = []
    others = []
    for event in events:
        match event.data:
            case UnitStatus(signed_in, _) if event.unit is not None and event.unit in units:
                news.append((units[event.unit], SignedIn(host_id, event.unit, signed_in)))
            case UnitStatus():
                log.warning("unit_unknown", host=host_id, unit=event.unit)
            case Inbound(sender, service=service):
                receiver = units.get(event.unit) if event.unit is not None else None
                # Nothing is proved by an SMS; a host that does not name the service speaks of its own one.
                if receiver is not None and service in {IMESSAGE, ""}:
                    others_of = [writer for writer in writers[_same(sender)] if writer != receiver]
                    certain = len(others_of) == 1
                    news += [(writer, Arrival(writer, receiver, certain)) for writer in others_of]
            case data:
                send_id = sends.find(data)
                if send_id is None:
                    others.append(event)
                elif (report := _news(send_id, event)) is not None:
                    news.append((sends.sender_of[send_id], report))
    return FleetNews(news, others)


def _is_of(clients: Named, event: RelayEvent) -> bool:
    data = event.data
    if not isinstance(data, MessageSent | MessageFailed | Delivered | Read):
        return False
    return data.attempt_id in clients.by_uuid if data.attempt_id is not None else data.guid in clients.by_guid


def apply(fleet: FleetNews, *, now: datetime) -> None:
    """Write it, server by server by ascending id; what reaches one server stays in the order of the call."""
    lock_servers(fleet.servers)
    if any(not isinstance(news, SignedIn) for _, news in fleet.news):
        internal_sends.lock_chats(fleet.servers)
    for _, news in sorted(fleet.news, key=lambda row: row[0]):
        match news:
            case News():
                internal_sends.take_news(news, now=now)
            case SignedIn(host_id, unit, signed_in):
                set_signed_in(host_id, unit, signed_in=signed_in, now=now)
            case Arrival():
                _arrive(news, now)


def _arrive(arrival: Arrival, now: datetime) -> None:
    send_id = internal_sends.arrived(arrival.sender_id, arrival.receiver_id, now=now)
    if send_id is not None:
        internal_sends.take_news(News(send_id, ReportedState.DELIVERED, "inbound", service=IMESSAGE), now=now)
    if send_id is not None or arrival.certain:
        # Also where that send was known to have arrived: it may have been told of by an event without a service.
        confirm_cooldown_warmup_delivery(arrival.sender_id, now=now, via="inbound")


def _news(send_id: int, event: RelayEvent) -> News | None:
    match event.data:
        case MessageSent(_, guid, True, service, _):
            return News(send_id, ReportedState.SENT, event.type, service, guid)
        case MessageSent(_, guid, False, service, code):
            return News(send_id, ReportedState.FAILED, event.type, service, guid, code)
        case MessageFailed(_, guid, code, _):
            return News(send_id, ReportedState.FAILED, event.type, "", guid, code)
        case Delivered(_, guid, service):
            return News(send_id, ReportedState.DELIVERED, event.type, service, guid)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class _Sends:
    """The internal sends of a host that a call names."""

    by_uuid: Mapping[UUID, int]
    by_guid: Mapping[str, int]
    sender_of: Mapping[int, int]

    @classmethod
    def named_by(cls, host_id: int, events: Sequence[RelayEvent]) -> _Sends:
        named = [e.data for e in events if isinstance(e.data, MessageSent | MessageFailed | Delivered | Read)]
        if not named:
            return cls({}, {}, {})
        uuids = {data.attempt_id for data in named if data.attempt_id is not None}
        by_uuid, by_guid = internal_sends.of_host(host_id, uuids, {data.guid for data in named if data.guid})
        # An event with both ids teaches the host's own one to those of this call that have only that.
        by_guid |= {data.guid: by_uuid[data.attempt_id] for data in named if data.guid and data.attempt_id in by_uuid}
        ids = {*by_uuid.values(), *by_guid.values()}
        return cls(by_uuid, by_guid, internal_sends.senders_of(ids))

    def find(self, data: object) -> int | None:
        if not isinstance(data, MessageSent | MessageFailed | Delivered | Read):
            return None
        named = self.by_uuid.get(data.attempt_id) if data.attempt_id is not None else None
        return named if named is not None or data.attempt_id is not None else self.by_guid.get(data.guid)


def _servers_of_units(host_id: int, events: Sequence[RelayEvent]) -> dict[int, int]:
    units = {e.unit for e in events if isinstance(e.data, UnitStatus | Inbound) and e.unit is not None}
    servers = Server.objects.filter(host_id=host_id, unit__in=units)
    return dict(servers.values_list("unit", "id")) if units else {}


def _servers_of_handles(events: Sequence[RelayEvent]) -> Mapping[str, Sequence[int]]:
    """Which of our servers write from the addresses that messages came from; most come from nobody of ours."""
    found: dict[str, list[int]] = defaultdict(list)
    posted = {event.data.sender for event in events if isinstance(event.data, Inbound)}
    if posted:
        ours = Server.objects.filter(handle__in=posted | set(map(_same, posted))).exclude(status=Status.DELETED)
        for handle, server_id in ours.order_by("id").values_list("handle", "id"):
            found[_same(handle)].append(server_id)
    return found


def _same(handle: str) -> str:
    """An address as it is compared: hosts write e-mail addresses in any case."""
    return handle.lower()
