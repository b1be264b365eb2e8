"""What BlueBubbles servers post: kept raw, and no more than a hint to ask the host about what it names.

All but what people write to it: a STOP or START is heeded as that of every other host.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Greatest

from otp_service.messages.models import Attempt
from otp_service.routes.receipts import attempts_of_host
from servers import internal_sends
from servers.models import Host
from servers.relay.events import Delivered, Heartbeat, MessageFailed, MessageSent, Read, RelayEvent, Unrecognised
from webhooks.inbound import relay

#: From a hint to the question: however many come, an attempt is asked about once in that time.
HINT_WAIT = timedelta(seconds=1)


def take(host: Host, body: bytes, posted: Sequence[RelayEvent], *, now: datetime) -> None:
    """Store one post, once, heed what people wrote in it, and have the host asked about what it names.

    It is asked at a repetition too: somebody else may have posted the same before it was true.
    """
    told = [event for event in posted if not isinstance(event.data, Heartbeat | Unrecognised)]
    if told:
        with transaction.atomic():
            new = relay.keep(host, body, sorted(told, key=lambda event: event.id), now=now)
            relay.heed_answers([event for event in told if event.id in new], now=now)
    named = [e.data for e in told if isinstance(e.data, MessageSent | MessageFailed | Delivered | Read)]
    uuids = {data.attempt_id for data in named if data.attempt_id is not None}
    guids = {data.guid for data in named if data.guid}
    if named:
        _ask_soon(host.id, uuids, guids, now + HINT_WAIT)


def _ask_soon(host_id: int, uuids: Collection[UUID], guids: Collection[str], at: datetime) -> None:
    attempts = attempts_of_host(host_id, uuids, guids)
    # One by one, each in a transaction of its own: nobody waits for two of them.
    for attempt_id in {*attempts.by_uuid.values(), *attempts.by_guid.values()}:
        unfinished = Attempt.objects.filter(pk=attempt_id, settled_at__isnull=False, finished_at__isnull=True)
        # A question that was hinted at does not use up one of those that silence leads to.
        unfinished.filter(Q(check_at__isnull=True) | Q(check_at__gt=at)).update(
            check_at=at, checks_made=Greatest(F("checks_made") - 1, 0)
        )
    by_uuid, by_guid = internal_sends.of_host(host_id, uuids, guids)
    internal_sends.ask_soon({*by_uuid.values(), *by_guid.values()}, at=at)
