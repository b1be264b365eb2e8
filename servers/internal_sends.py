"""Messages from one of our servers to another: handed over, settled, reported on, asked about.

A row is there before the call. Whatever becomes known of it is written under the lock of the server that sends:
servers first, their internal sends and chats after them. No text is stored; a new one is drawn for each call.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import aiohttp
import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q

from otp_service.core import clock
from otp_service.core.outcomes import ErrorClass, ReportedState, StatusReport, Submission, SubmitResult, Submittable
from servers import chats, history
from servers.cooldown import confirm_cooldown_warmup_delivery
from servers.deliverability_limits import set_need_check
from servers.hosts import address_of, mark_seen
from servers.models import ChatPreheat, InternalSend, Server
from servers.relay.base import HostAddress, Known, RelayAdapter
from servers.relay.bluebubbles import SEND_WINDOW
from servers.relay.registry import Relays
from servers.rules import Event, InternalKind, NeedCheckPath, RelayProtocol

log = structlog.get_logger(__name__)

RELAYS = Relays()
State = InternalSend.State

SUBMIT_WITHIN = timedelta(seconds=15)  # a host refuses what reaches it later
EXPIRES_AFTER = timedelta(minutes=10)  # a host does not send it later than that
#: A send whose process died is asked about after this; longer than any call lasts.
LEASE = timedelta(seconds=60)
_CALLS_AT_ONCE = 200

#: How far along a state is: a report moves a send forward only.
_RANK: dict[str, int] = {
    State.SUBMITTING: 0,
    State.UNKNOWN: 1,
    State.ACCEPTED: 2,
    State.NOT_SUBMITTED: 3,
    State.SENT: 4,
    State.FAILED: 5,
    State.DELIVERED: 6,
}
_ENDED = frozenset({State.NOT_SUBMITTED, State.DELIVERED, State.FAILED})
_REPORTED: dict[ReportedState, State] = {
    ReportedState.QUEUED: State.ACCEPTED,
    ReportedState.SENT: State.SENT,
    ReportedState.DELIVERED: State.DELIVERED,
    ReportedState.FAILED: State.FAILED,
    ReportedState.NEVER: State.NOT_SUBMITTED,
}
_SUBMITTED: dict[Submission, State] = {
    Submission.ACCEPTED: State.ACCEPTED,
    Submission.REFUSED: State.NOT_SUBMITTED,
    Submission.NOT_CONNECTED: State.NOT_SUBMITTED,
    Submission.UNKNOWN: State.UNKNOWN,
}
_ARRIVING = frozenset({State.SENT, State.DELIVERED})
IMESSAGE, SMS = "imessage", "sms"


@dataclass(frozen=True, slots=True, repr=False)
class Outgoing:
    """One internal send on its way to its host. Its repr shows neither address nor text."""

    send_id: int
    uuid: UUID
    unit: int
    host: HostAddress
    to: str
    text: str

    def __repr__(self) -> str:
        return f"<Outgoing {self.uuid}>"


@dataclass(frozen=True, slots=True)
class News:
    """What became known of an internal send. `service` is "" where it was not said."""

    send_id: int
    state: ReportedState
    via: str  # what told of it: message_sent, delivered, message_failed, inbound, query
    service: str = ""
    guid: str = ""
    error_code: int | None = None


# --- handing over --------------------------------------------------------------------------------------


def begin(
    kind: InternalKind,
    pairs: Iterable[tuple[Server, Server]],
    *,
    now: datetime,
    rng: random.Random,
    chat: ChatPreheat | None = None,
) -> list[Outgoing]:
    """Write down that each sender will write to its receiver. The caller holds the senders' rows."""
    pairs = list(pairs)
    rows = InternalSend.objects.bulk_create(
        InternalSend(kind=kind, sender=sender, receiver=receiver, chat=chat, created_at=now, check_at=now + LEASE)
        for sender, receiver in pairs
    )
    return [_outgoing(row, *pair, now, rng) for row, pair in zip(rows, pairs, strict=True)]


def on_their_way(kind: InternalKind, senders: Iterable[Server]) -> set[int]:
    """Of servers whose rows the caller holds, those that are writing now, or may have written in this round."""
    sends = InternalSend.objects.filter(sender__in=[server.pk for server in senders], kind=kind)
    in_this_round = Q(state=State.UNKNOWN, created_at__gte=F("sender__cooldown_warmup_at"))
    return set(sends.filter(Q(state=State.SUBMITTING) | in_this_round).values_list("sender_id", flat=True))


def _outgoing(row: InternalSend, sender: Server, receiver: Server, now: datetime, rng: random.Random) -> Outgoing:
    text = rng.choice(settings.WARMUP_TEXTS)
    return Outgoing(row.pk, row.uuid, sender.unit, address_of(sender.host, now=now), receiver.handle, text)


def hand_over(
    outgoing: Sequence[Outgoing],
    *,
    now: datetime,
    rng: random.Random,
    adapter: RelayAdapter = RELAYS,
    wall_clock: Callable[[], datetime] = clock.utc_now,
) -> int:
    """Call the hosts, outside of any transaction, and write what came of it; returns how many sends were taken."""
    if not outgoing:
        return 0
    results = asyncio.run(_submit_all(outgoing, adapter, wall_clock))
    for send, result in zip(outgoing, results, strict=True):
        settle(send.send_id, result, now=now, rng=rng)
    for host_id in {
        send.host.host_id
        for send, result in zip(outgoing, results, strict=True)
        if result.submission in {Submission.ACCEPTED, Submission.REFUSED}
    }:
        mark_seen(host_id, now=now)
    taken = sum(result.submission is Submission.ACCEPTED for result in results)
    log.info("internal_sends_handed_over", sends=len(outgoing), taken=taken)
    return taken


async def _submit_all(
    outgoing: Sequence[Outgoing], adapter: RelayAdapter, wall_clock: Callable[[], datetime]
) -> list[SubmitResult]:
    room = asyncio.Semaphore(_CALLS_AT_ONCE)

    async def submit(send: Outgoing) -> SubmitResult:
        async with room:
            start = wall_clock()
            submittable = Submittable(
                send.uuid, send.to, send.text, start + EXPIRES_AFTER, start + SUBMIT_WITHIN, send.unit
            )
            return await adapter.submit(session, send.host, submittable)

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, trust_env=False) as session:
        answers = await asyncio.gather(*(submit(send) for send in outgoing), return_exceptions=True)
    return [_result(answer) for answer in answers]


def _result(answer: SubmitResult | BaseException) -> SubmitResult:
    if isinstance(answer, SubmitResult):
        return answer
    # A fault of ours leaves it open whether something was sent. No traceback: its frames hold the text.
    log.error("internal_send_fault", error=type(answer).__name__)
    return SubmitResult(Submission.UNKNOWN, error_class=ErrorClass.TIMEOUT_AFTER_SUBMIT)


def settle(send_id: int, result: SubmitResult, *, now: datetime, rng: random.Random) -> None:
    """Write how the call ended. A report that came before stands."""
    with transaction.atomic(savepoint=False):
        sender, send = _locked(send_id)
        if send.state in {State.SUBMITTING, State.UNKNOWN}:
            state = _SUBMITTED[result.submission]
            check_at = None if state in _ENDED else now + (LEASE if state is State.UNKNOWN else settings.RECEIPT_WAIT)
            _write(send, state, now=now, check_at=check_at, guid=result.provider_message_id, code=result.error_code)
        refused_for_its_sake = result.error_class is ErrorClass.SENDER_FAULT
        if result.submission is Submission.ACCEPTED or refused_for_its_sake:
            _warm_up_left(sender, send, now=now, refused=result.error_code if refused_for_its_sake else None)
        if send.state == State.NOT_SUBMITTED:
            chats.end_turn(send, chats.Turn.FAILED, now=now, rng=rng)


# --- what is reported ----------------------------------------------------------------------------------


def of_host(host_id: int, uuids: Collection[UUID], guids: Collection[str]) -> tuple[dict[UUID, int], dict[str, int]]:
    """The sends of a host's own servers that these ids name: uuid → id, guid → id."""
    sends = InternalSend.objects.filter(sender__host_id=host_id)
    by_uuid = dict(sends.filter(uuid__in=uuids).values_list("uuid", "id")) if uuids else {}
    by_guid = dict(sends.filter(guid__in=guids).order_by("id").values_list("guid", "id")) if guids else {}
    return by_uuid, by_guid


def ask_soon(send_ids: Collection[int], *, at: datetime) -> int:
    """Something is said of these sends: their host is asked by then. Returns how many were to be asked later."""
    sends = InternalSend.objects.filter(id__in=send_ids, finished_at__isnull=True).exclude(state=State.SUBMITTING)
    return sends.filter(Q(check_at__isnull=True) | Q(check_at__gt=at)).update(check_at=at)


def senders_of(send_ids: Collection[int]) -> dict[int, int]:
    """Send → the server whose row `take_news` about it locks."""
    return dict(InternalSend.objects.filter(id__in=send_ids).values_list("id", "sender_id")) if send_ids else {}


def take_news(news: News, *, now: datetime, rng: random.Random = clock.rng) -> bool:
    """Write what became known of a send, with all that follows from it. False when it changed nothing."""
    with transaction.atomic(savepoint=False):
        sender, send = _locked(news.send_id)
        state = _REPORTED.get(news.state)
        moves = state is not None and _RANK[state] > _RANK[send.state]
        learns = bool(news.service and not send.service) or bool(news.guid and not send.guid)
        if not moves and not learns:
            return False
        turns_sms = news.service == SMS and not send.service
        state = state if moves and state is not None else State(send.state)
        code = news.error_code if moves else send.error_code
        check_at = None if _is_the_last_word(state, sender) else send.check_at or now + settings.RECEIPT_WAIT
        _write(send, state, now=now, check_at=check_at, guid=news.guid, service=news.service, code=code)
        _follow_up(sender, send, news, now=now, rng=rng)
        if turns_sms and send.kind == InternalKind.CHAT_PREHEAT:
            _fell_back_to_sms(sender, send, now=now, rng=rng)
        return True


def _is_the_last_word(state: State, sender: Server) -> bool:
    """Whether nobody is asked any more. Hosts that tell of nothing are asked until it has arrived."""
    return state in _ENDED or (state in _ARRIVING and sender.host.protocol == RelayProtocol.NATIVE)


def _follow_up(sender: Server, send: InternalSend, news: News, *, now: datetime, rng: random.Random) -> None:
    if send.state != State.NOT_SUBMITTED:
        _warm_up_left(sender, send, now=now)
    if send.state in {State.NOT_SUBMITTED, State.FAILED}:
        chats.end_turn(send, chats.Turn.FAILED, now=now, rng=rng)
    elif send.service == IMESSAGE and send.state in _ARRIVING:
        confirm_cooldown_warmup_delivery(sender.pk, now=now, uuid=send.uuid, via=news.via)
        if send.state == State.DELIVERED:
            chats.end_turn(send, chats.Turn.ARRIVED, now=now, rng=rng)


def _fell_back_to_sms(sender: Server, send: InternalSend, *, now: datetime, rng: random.Random) -> None:
    """A chat's message went out as SMS. What was sent before a person put the server back into rotation is old news."""
    chats.end_turn(send, chats.Turn.SMS, now=now, rng=rng)
    if sender.released_at is None or send.created_at >= sender.released_at:
        reason = "an internal send fell back to SMS"
        set_need_check(sender.pk, now=now, path=NeedCheckPath.CHAT_PREHEAT, reason=reason)


def arrived(sender_id: int, receiver_id: int, *, now: datetime) -> int | None:
    """The internal send that something which came in at the receiver is: the newest of the two, if it is not old."""
    sends = InternalSend.objects.filter(sender_id=sender_id, receiver_id=receiver_id)
    lately = sends.filter(created_at__gte=now - settings.WARMUP_PROOF_WINDOW).exclude(state=State.NOT_SUBMITTED)
    return lately.order_by("-created_at", "-id").values_list("id", flat=True).first()


def lock_chats(server_ids: Collection[int]) -> None:
    """Hold the chats that news of these servers' sends may change, in one order for everybody."""
    either = Q(server__in=server_ids) | Q(partner__in=server_ids)
    running = ChatPreheat.objects.filter(either, ended_at__isnull=True).order_by("id")
    list(running.select_for_update(no_key=True).values_list("id"))


def _locked(send_id: int) -> tuple[Server, InternalSend]:
    sender_id = InternalSend.objects.values_list("sender_id", flat=True).get(pk=send_id)  # it never changes
    sender = history.locked(sender_id)
    return sender, InternalSend.objects.select_for_update(no_key=True).get(pk=send_id)


def _write(
    send: InternalSend,
    state: State,
    *,
    now: datetime,
    check_at: datetime | None,
    guid: str = "",
    service: str = "",
    code: int | None = None,
) -> None:
    send.state = state.value
    send.check_at = check_at
    send.guid = send.guid or guid
    send.service = send.service or service[: InternalSend._meta.get_field("service").max_length]
    send.error_code = code
    send.sent_at = send.sent_at or (now if state in _ARRIVING else None)
    send.finished_at = (send.finished_at or now) if state in _ENDED else None
    send.save(update_fields=["state", "check_at", "guid", "service", "error_code", "sent_at", "finished_at"])


def _warm_up_left(sender: Server, send: InternalSend, *, now: datetime, refused: int | None = None) -> None:
    """The warm-up of the running round is out, or was `refused` for the server's sake, by that error code."""
    slot = sender.cooldown_warmup_at
    if send.kind != InternalKind.WARM_UP or slot is None or sender.cooldown_warmup_sent_date is not None:
        return
    if send.created_at < slot:
        return  # of an earlier round
    new = {"cooldown_warmup_uuid": send.uuid, "cooldown_warmup_sent_date": send.created_at}
    receiver = Server.objects.values_list("uuid", flat=True).get(pk=send.receiver_id)
    note = "sent" if refused is None else f"refused by the host ({refused})"
    data = {"receiver": str(receiver), "refused": refused is not None, "error_code": refused}
    history.change(sender, Event.WARMUP_SENT, new, at=now, note=note, data=data)


# --- asking about silence ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Check:
    """One send that its host is to be asked about."""

    send_id: int
    uuid: UUID
    may_be_withdrawn: bool
    host: HostAddress
    known: Known | None = None


def ask_about_silence(
    *, now: datetime, rng: random.Random = clock.rng, adapter: RelayAdapter = RELAYS, batch: int = 200
) -> int:
    """Ask hosts about a batch of sends that report nothing, or whose process died; returns how many sends."""
    checks = _claim_checks(now, batch)
    if not checks:
        return 0
    for check, report in zip(checks, asyncio.run(_ask_all(checks, adapter)), strict=True):
        if report.answered:
            mark_seen(check.host.host_id, now=now)
            take_news(_answer(check, report), now=now, rng=rng)
    return len(checks)


def _answer(check: Check, report: StatusReport) -> News:
    return News(check.send_id, report.state, "query", report.service, report.provider_message_id, report.error_code)


def _claim_checks(now: datetime, batch: int) -> list[Check]:
    with transaction.atomic():
        due = InternalSend.objects.filter(check_at__lte=now).order_by("check_at")
        rows = list(due.select_for_update(no_key=True, skip_locked=True)[:batch])
        for row in rows:
            # Asked again after as long as it is old, a few times, while its success would prove something.
            again = now + max(LEASE, now - row.created_at)
            row.check_at = again if again < row.created_at + settings.WARMUP_PROOF_WINDOW else None
            # Its lease is over: whoever was handing it over is not any more, and another one may begin.
            row.state = State.UNKNOWN.value if row.state == State.SUBMITTING else row.state
        InternalSend.objects.bulk_update(rows, ["check_at", "state"])
        senders = Server.objects.select_related("host").in_bulk([row.sender_id for row in rows])
    hosts = {row.pk: address_of(senders[row.sender_id].host, now=now) for row in rows}
    known = _known([row for row in rows if hosts[row.pk].protocol is RelayProtocol.BLUEBUBBLES])
    return [Check(row.pk, row.uuid, row.state == State.UNKNOWN, hosts[row.pk], known.get(row.pk)) for row in rows]


def _known(sends: Sequence[InternalSend]) -> dict[int, Known]:
    """By send: how a host that does not keep our ids finds its message. The text was drawn: any of ours may be it."""
    if not sends:
        return {}
    receivers = Server.objects.in_bulk([send.receiver_id for send in sends])
    around = Q(sender__in={send.sender_id for send in sends}) & ~Q(guid="")
    since = min(send.created_at for send in sends) - SEND_WINDOW
    guids = list(InternalSend.objects.filter(around, created_at__gte=since).values_list("id", "guid"))
    return {
        send.pk: Known(
            receivers[send.receiver_id].handle,
            tuple(settings.WARMUP_TEXTS),
            submitted_at=send.created_at,
            guid=send.guid,
            others=frozenset(guid for send_id, guid in guids if send_id != send.pk),
        )
        for send in sends
    }


async def _ask_all(checks: Sequence[Check], adapter: RelayAdapter) -> list[StatusReport]:
    room = asyncio.Semaphore(_CALLS_AT_ONCE)

    async def ask(check: Check) -> StatusReport:
        async with room:
            report = await adapter.query(session, check.host, check.uuid, check.known)
            if report.answered and report.state is ReportedState.NOT_FOUND and check.may_be_withdrawn:
                return await adapter.tombstone(session, check.host, check.uuid)
            return report

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, trust_env=False) as session:
        return await asyncio.gather(*(ask(check) for check in checks))
