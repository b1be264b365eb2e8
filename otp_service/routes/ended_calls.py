"""What follows from calls that ended: they are settled, their hosts were seen, the breakers of their routes learn."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import structlog

from otp_service.core.outcomes import ErrorClass, Submission
from otp_service.routes import submissions
from otp_service.routes.breakers import CallEnded
from otp_service.routes.route_health import RouteHealth
from otp_service.routes.submissions import Submitted
from servers.hosts import mark_seen

log = structlog.get_logger(__name__)

#: The other side said something, whatever it was.
ANSWERED = frozenset({Submission.ACCEPTED, Submission.REFUSED})


def settle(batch: Sequence[Submitted], health: RouteHealth, now: datetime) -> None:
    """Write what came of a batch of calls. Breakers are told last: what fails before is settled again, not counted."""
    submissions.settle(batch, now=now)
    answered = (done.claimed.host for done in batch if done.result.submission in ANSWERED)
    for host_id in {host.host_id for host in answered if host is not None}:
        mark_seen(host_id, now=now)
    refusals = [done for done in batch if done.result.error_class is ErrorClass.ROUTE_REJECTED]
    for route, code in {done.claimed.route: done.result.error_code for done in refusals}.items():
        log.error("route_rejected", route=route, error_code=code)  # an alert: it refuses us, and will refuse the next
    health.note([_call(done, now) for done in batch if done.claimed.host is None])


def _call(done: Submitted, now: datetime) -> CallEnded:
    claimed = done.claimed
    return CallEnded(
        route=claimed.route,
        generation=claimed.generation,
        submitted_at=claimed.claimed_at,
        ended_at=now,
        duration=done.duration,
        error_class=done.result.error_class,
        ticket=claimed.ticket,
    )
