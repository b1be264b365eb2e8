"""Breakers of routes, and the tickets of their probes: what decides whether a route is used, and so not in Redis."""

from __future__ import annotations

from datetime import timedelta

from django.db import models
from django.db.models import Q

from otp_service.routes.breaker_rules import BreakerState

#: Characters.
LONGEST_NAME, LONGEST_REASON = 150, 500

_SHUT = [BreakerState.OPEN.value, BreakerState.HALF_OPEN.value]


class Breaker(models.Model):
    """Where the breaker of one route stands. A route without a row has a closed one that never changed.

    Changed by compare-and-set on `generation`, which grows by one with each change.
    """

    route = models.CharField(max_length=64, unique=True, help_text="the route's name")
    state = models.CharField(
        max_length=16, choices=[(s.value, s.value) for s in BreakerState], default=BreakerState.CLOSED.value
    )
    generation = models.PositiveIntegerField(default=0)
    since = models.DateTimeField(null=True, blank=True, help_text="the last change")
    opened_at = models.DateTimeField(null=True, blank=True, help_text="when it first opened, until it is closed again")
    pause = models.DurationField(null=True, blank=True, help_text="the last pause, without jitter")
    until = models.DateTimeField(null=True, blank=True, help_text="the end of the pause: probes from then on")
    isolated_by = models.CharField(max_length=LONGEST_NAME, blank=True)
    reason = models.CharField(max_length=LONGEST_REASON, blank=True, help_text="why it was isolated")

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="breaker_state_known", condition=Q(state__in=[state.value for state in BreakerState])
            ),
            models.CheckConstraint(
                name="breaker_changed_iff_generation",
                condition=Q(generation=0, since=None, state=BreakerState.CLOSED.value)
                | Q(generation__gte=1, since__isnull=False),
            ),
            models.CheckConstraint(
                name="breaker_opened_iff_shut",
                condition=Q(state__in=_SHUT, opened_at__isnull=False) | (~Q(state__in=_SHUT) & Q(opened_at=None)),
            ),
            models.CheckConstraint(
                name="breaker_until_iff_open",
                condition=Q(state=BreakerState.OPEN.value, until__isnull=False)
                | (~Q(state=BreakerState.OPEN.value) & Q(until=None)),
            ),
            # One that closed keeps its pause: if it opens again soon, it goes on with the next one.
            models.CheckConstraint(
                name="breaker_pause_where_shut",
                condition=Q(state__in=_SHUT, pause__isnull=False, pause__gt=timedelta())
                | (~Q(state__in=_SHUT) & Q(pause=None))
                | (~Q(state__in=[*_SHUT, BreakerState.ISOLATED.value]) & Q(pause__isnull=False, pause__gt=timedelta())),
            ),
            models.CheckConstraint(
                name="breaker_isolated_by_somebody",
                condition=(Q(state=BreakerState.ISOLATED.value) & ~Q(isolated_by="") & ~Q(reason=""))
                | (~Q(state=BreakerState.ISOLATED.value) & Q(isolated_by="", reason="")),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.route}: {self.state}"


class ProbeTicket(models.Model):
    """Leave for one attempt over a route that is being tried again.

    Whoever dies with it gives it up when it expires. A result is heard only in the generation that it was given in.
    """

    breaker = models.ForeignKey(Breaker, on_delete=models.CASCADE, related_name="tickets", db_index=False)
    generation = models.PositiveIntegerField()
    expires_at = models.DateTimeField()
    attempt_id = models.BigIntegerField(null=True, blank=True, help_text="of the attempt that used it")
    ended_at = models.DateTimeField(null=True, blank=True)
    good = models.BooleanField(null=True, blank=True, help_text="whether the route did its work")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["attempt_id"], name="probe_attempt_once", condition=Q(attempt_id__isnull=False)
            ),
            models.CheckConstraint(
                name="probe_ended_iff_result",
                condition=Q(ended_at=None, good=None) | Q(ended_at__isnull=False, good__isnull=False),
            ),
        ]
        indexes = [
            models.Index(fields=["breaker", "generation"], name="probe_of_breaker"),
            models.Index(fields=["expires_at"], name="probe_to_remove"),
        ]

    def __str__(self) -> str:
        return f"probe {self.pk}"
