"""Valid, boring objects; a test states only what matters to it."""

from __future__ import annotations

import datetime as dt
import hashlib
import uuid
from typing import Any

import factory
from factory.django import DjangoModelFactory

from otp_service.messages import queue
from otp_service.messages.models import ApiKey, Attempt, Campaign, Client, Flow, Message
from otp_service.messages.rules import AttemptState, Channel, MessageStatus
from otp_service.routes.models import Dispatcher, Route
from otp_service.routes.route_rules import RouteKind
from otp_service.web.fields import recipient_hash
from servers.models import ChatPreheat, Group, Host, InternalSend, RecipientLink, Server, ServerDelivery
from servers.rules import InternalKind, Status

NOON = dt.datetime(2026, 9, 1, 12, 0, 0, tzinfo=dt.UTC)


#: Numbers that factories give begin here, so that they meet none that a test gives: the order of tests is shuffled.
FIRST = 10_001


class HostFactory(DjangoModelFactory[Host]):
    class Meta:
        model = Host

    number = factory.Sequence(lambda n: FIRST + n)
    base_url = factory.LazyAttribute(lambda o: f"http://127.0.0.1:1/hosts/{o.number}")
    secret = "whsec_" + "A" * 42 + "E="
    last_seen_at = NOON


class ServerFactory(DjangoModelFactory[Server]):
    """Active, signed in, on a host that was seen at noon, free to send since a minute before noon.

    `in_cooldown=True`: in its first cooldown, of 90 minutes until noon, too short for a warm-up.
    `wants_warm_up=True`: in its first cooldown, from 11:00 to 12:30, its slot at 11:30, nothing sent yet.
    """

    class Meta:
        model = Server

    class Params:
        in_cooldown = factory.Trait(
            cooldown=True,
            cooldown_times=1,
            failed_in_row=2,
            cooldown_start_date=NOON - dt.timedelta(minutes=90),
            cooldown_end_date=NOON,
            cooldown_reason="failed in row",
        )

        wants_warm_up = factory.Trait(
            cooldown=True,
            cooldown_times=1,
            failed_in_row=2,
            cooldown_start_date=NOON - dt.timedelta(minutes=60),
            cooldown_end_date=NOON + dt.timedelta(minutes=30),
            cooldown_reason="failed in row",
            cooldown_warmup_at=NOON - dt.timedelta(minutes=30),
        )

    region = "es"
    unit = factory.Sequence(lambda n: FIRST + n)
    host = factory.SubFactory(HostFactory)
    status = Status.ACTIVE
    handle = factory.LazyAttribute(lambda o: f"+3460{o.unit:07d}")
    next_send_date = NOON - dt.timedelta(minutes=1)


class GroupFactory(DjangoModelFactory[Group]):
    """Of lower priority than any group whose priority a test gives."""

    class Meta:
        model = Group

    name = factory.Sequence(lambda n: f"Group {FIRST + n}")
    priority = factory.Sequence(lambda n: -FIRST - n)


class ServerDeliveryFactory(DjangoModelFactory[ServerDelivery]):
    class Meta:
        model = ServerDelivery

    server = factory.SubFactory(ServerFactory)
    at = NOON


class RecipientLinkFactory(DjangoModelFactory[RecipientLink]):
    """Delivered to an hour before noon."""

    class Meta:
        model = RecipientLink

    class Params:
        number = "+34600000000"

    recipient_hash = factory.LazyAttribute(lambda o: recipient_hash(o.number))
    server = factory.SubFactory(ServerFactory)
    first_at = NOON - dt.timedelta(hours=1)
    delivered_at = NOON - dt.timedelta(hours=1)


class InternalSendFactory(DjangoModelFactory[InternalSend]):
    """A warm-up that a host accepted at noon; ended states need `finished_at`."""

    class Meta:
        model = InternalSend

    kind = InternalKind.WARM_UP
    sender = factory.SubFactory(ServerFactory)
    receiver = factory.SubFactory(ServerFactory)
    state = InternalSend.State.ACCEPTED
    created_at = NOON


class ChatPreheatFactory(DjangoModelFactory[ChatPreheat]):
    """Six messages, the first one due at noon."""

    class Meta:
        model = ChatPreheat

    server = factory.SubFactory(ServerFactory)
    partner = factory.SubFactory(ServerFactory)
    planned = 6
    due_at = NOON
    started_at = NOON


class ClientFactory(DjangoModelFactory[Client]):
    class Meta:
        model = Client

    name = factory.Sequence(lambda n: f"Client {n}")
    created_at = NOON


class ApiKeyFactory(DjangoModelFactory[ApiKey]):
    """`secret` is the key's text after the prefix."""

    class Meta:
        model = ApiKey

    class Params:
        secret = "s" * 43

    client = factory.SubFactory(ClientFactory)
    prefix = factory.Sequence(lambda n: f"pre{n:09d}")
    digest = factory.LazyAttribute(lambda o: hashlib.sha256(o.secret.encode()).digest())
    scopes = ["messages"]
    created_at = NOON


class CampaignFactory(DjangoModelFactory[Campaign]):
    """Loaded at noon, and running; its flows are made apart."""

    class Meta:
        model = Campaign

    client = factory.SubFactory(ClientFactory)
    key = factory.Sequence(lambda n: f"campaign {n}")
    form = "ndjson"
    state = "running"
    fingerprint = b"\0" * 32
    created_at = NOON
    loaded_at = NOON


class FlowFactory(DjangoModelFactory[Flow]):
    class Meta:
        model = Flow
        django_get_or_create = ("client", "lane", "pools", "campaign")

    client = factory.SubFactory(ClientFactory)
    lane = "otp"
    pools = ["es"]
    campaign = None


class MessageFactory(DjangoModelFactory[Message]):
    """Queued at noon with five minutes to live, without its `ready` row."""

    class Meta:
        model = Message

    class Params:
        number = "+34600000000"

    flow = factory.SubFactory(FlowFactory)
    client = factory.SelfAttribute("flow.client")
    lane = factory.SelfAttribute("flow.lane")
    to = factory.SelfAttribute("number")
    to_hash = factory.LazyAttribute(lambda o: recipient_hash(o.number))
    text = "Your code is 123456"
    channels = ["imessage"]
    created_at = NOON
    event_at = NOON
    expires_at = NOON + dt.timedelta(minutes=5)
    first_attempt_by = NOON + dt.timedelta(seconds=15)
    on_late_first = "send"
    max_attempts = 4
    status = MessageStatus.QUEUED


class QueuedFactory(MessageFactory):
    """The same with its `ready` row: it can be claimed."""

    class Meta:
        model = Message

    @classmethod
    def _create(cls, model_class: type[Message], *args: Any, **kwargs: Any) -> Message:
        message: Message = super()._create(model_class, *args, **kwargs)
        first_by = None if message.attempts_made else message.first_attempt_by
        due_at = min(first_by or message.expires_at, message.expires_at)
        queue.add([queue.ReadyRow(message.pk, message.flow_id, due_at)])
        return message


class AttemptFactory(DjangoModelFactory[Attempt]):
    """Accepted at noon by a server of its own; `submitting` needs settled_at=None."""

    class Meta:
        model = Attempt

    message = factory.SubFactory(MessageFactory, status=MessageStatus.SUBMITTED, attempts_made=1, attempts_charged=1)
    number = 1
    route = "imessage:es"
    server = factory.SubFactory(ServerFactory)
    is_last = False
    state = AttemptState.ACCEPTED
    token = factory.LazyFunction(uuid.uuid4)
    lease_until = NOON + dt.timedelta(seconds=45)
    claimed_at = NOON
    settled_at: Any = NOON


class RouteFactory(DjangoModelFactory[Route]):
    """A simulated one for SMS, without limits. `pool="es"`: the iMessage pool of that region."""

    class Meta:
        model = Route

    class Params:
        pool = ""

    name = factory.LazyAttributeSequence(lambda o, n: f"imessage:{o.pool}" if o.pool else f"sms:route-{FIRST + n}")
    channel = factory.LazyAttribute(lambda o: Channel(o.name.partition(":")[0]))
    kind = factory.LazyAttribute(
        lambda o: RouteKind.IMESSAGE_POOL if o.channel is Channel.IMESSAGE else RouteKind.SIMULATED
    )


class DispatcherFactory(DjangoModelFactory[Dispatcher]):
    """Started an hour before noon, last seen at noon."""

    class Meta:
        model = Dispatcher

    id = factory.LazyFunction(uuid.uuid4)
    name = factory.Sequence(lambda n: f"dispatcher {FIRST + n}")
    started_at = NOON - dt.timedelta(hours=1)
    last_seen_at = NOON
