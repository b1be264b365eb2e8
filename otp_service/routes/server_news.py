"""What became known of attempts, for the servers that carried them."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from operator import itemgetter

from django.conf import settings

from otp_service.messages.rules import AttemptState
from otp_service.routes import rules
from otp_service.routes.changes import Change
from otp_service.routes.rows import AttemptRow, MessageRow
from servers import selection
from servers.deliverability_limits import Delivery, record_deliveries, record_failed_send
from servers.history import lock_servers


def tell(
    heard: Sequence[tuple[AttemptRow, Change]],
    messages: Mapping[int, MessageRow],
    *,
    then_servers: Collection[int],
    now: datetime,
    rng: random.Random,
) -> None:
    """Health consequences of what became known, in the order of arrival; by ascending server id.

    The last locks that the caller's transaction takes. `then_servers` as in `settle.apply_changes`.
    """
    news = [
        (attempt.server_id, attempt, change)
        for attempt, change in heard
        if attempt.server_id is not None and _concerns_server(change)
    ]
    # Where a server has other news too, what reaches it stays in the order of arrival: one by one.
    mixed = {server_id for server_id, _, change in news if not _is_delivery(change)}
    deliveries = [_delivery(messages, server_id, attempt) for server_id, attempt, _ in news if server_id not in mixed]
    if then_servers or (mixed and deliveries):
        lock_servers({*then_servers, *(server_id for server_id, _, _ in news)})
    if deliveries:
        record_deliveries(deliveries, now=now, rng=rng)
    for server_id, attempt, change in sorted((row for row in news if row[0] in mixed), key=itemgetter(0)):
        if _is_delivery(change):
            record_deliveries([_delivery(messages, server_id, attempt)], now=now, rng=rng)
        elif change.retry_after is not None:
            selection.rest(server_id, until=now + change.retry_after)
        else:
            _tell_of_failure(server_id, messages[attempt.message_id], attempt, change, now=now, rng=rng)


def _tell_of_failure(
    server_id: int, message: MessageRow, attempt: AttemptRow, change: Change, *, now: datetime, rng: random.Random
) -> None:
    # A number that fails everywhere says nothing about the server that tried last.
    count = not (attempt.is_last and message.attempts_charged > 1)
    record_failed_send(server_id, now=now, reason=change.reason, error_code=change.error_code, count=count, rng=rng)


def _is_delivery(change: Change) -> bool:
    return change.state is AttemptState.DELIVERED and change.retry_after is None


def _delivery(messages: Mapping[int, MessageRow], server_id: int, attempt: AttemptRow) -> Delivery:
    return Delivery(server_id, bytes(messages[attempt.message_id].to_hash))


def _concerns_server(change: Change) -> bool:
    if change.state is AttemptState.DELIVERED or change.retry_after is not None:
        return True
    only_sender_faults = settings.COUNT_ONLY_SENDER_FAULTS
    return rules.counts_against_server(change.state, change.error_class, only_sender_faults=only_sender_faults)
