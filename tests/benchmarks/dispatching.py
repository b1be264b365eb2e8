"""A dispatcher process at work on a queue, and how many messages it hands over in a second."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from tests.deadline import eventually

SLOTS = 1_200
#: All of them for promo: nothing else is there to keep any for.
SIZES = {"floor": 0, "shared": SLOTS, "reserve": 0, "promo_floor": 0}
#: A route's cap begins small and grows; what is measured comes after that.
WARM_UP = dt.timedelta(seconds=3)
SECONDS = 10
#: Seconds until it must have claimed something.
_START_S = 60


def rate(command: Sequence[str], database_url: str, more_env: Mapping[str, str] | None = None) -> float:
    """Attempts a second that this dispatcher, a Python program, gets accepted and settled.

    Django works on the same database.
    """
    from django.db.models import Min

    from otp_service.core.outcomes import Submission
    from otp_service.messages.models import Attempt, Ready

    _run(command, {**os.environ, "DATABASE_URL": database_url, **(more_env or {})})
    if not Ready.objects.exists():
        raise RuntimeError("the queue ran dry: what was measured is its length; let more messages wait")
    begin = Attempt.objects.aggregate(at=Min("claimed_at"))["at"] + WARM_UP
    within = Attempt.objects.filter(settled_at__gte=begin, settled_at__lt=begin + dt.timedelta(seconds=SECONDS))
    return within.filter(submission=Submission.ACCEPTED).count() / SECONDS


def _run(command: Sequence[str], env: Mapping[str, str]) -> None:
    """Let it work for as long as is measured, and a little longer."""
    from otp_service.messages.models import Attempt

    with subprocess.Popen([sys.executable, *command], env=env) as dispatcher:
        try:
            eventually(Attempt.objects.exists, within_s=_START_S)
            with contextlib.suppress(subprocess.TimeoutExpired):
                dispatcher.wait(WARM_UP.total_seconds() + SECONDS + 1)
        finally:
            dispatcher.terminate()
    if dispatcher.returncode != 0:
        raise RuntimeError(f"the dispatcher ended with {dispatcher.returncode}")
