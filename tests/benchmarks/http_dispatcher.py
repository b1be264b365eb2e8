"""The product's dispatcher, with a provider that speaks HTTP to BENCH_HTTP_URL in place of the simulated one."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING
from unittest import mock

import aiohttp

from otp_service.core.http import DEFAULT_TIMEOUTS, Answer, Call, exchange
from otp_service.core.outcomes import ErrorClass, Submission, SubmitResult

if TYPE_CHECKING:  # it needs Django, and Django its settings
    from otp_service.routes.claim import Claimed

#: The stub says it again, so that answers that belong to another call are seen.
ATTEMPT_HEADER = "Attempt-Id"


class OverHttp:
    """Posts each attempt as JSON through the product's own HTTP seam, and reads whether it was taken."""

    def __init__(self) -> None:
        self._url = os.environ["BENCH_HTTP_URL"]

    async def submit(self, session: aiohttp.ClientSession, claimed: Claimed) -> SubmitResult:
        """Hand one attempt over."""
        attempt = str(claimed.send.attempt_uuid)
        body = json.dumps({"attempt_id": attempt, "to": claimed.send.to, "text": claimed.send.text}).encode()
        headers = {"Content-Type": "application/json", ATTEMPT_HEADER: attempt}
        answer = await exchange(session, Call("POST", self._url, body, headers), DEFAULT_TIMEOUTS)
        is_taken = isinstance(answer, Answer) and answer.status == 202 and answer.document() == {"attempt_id": attempt}
        if is_taken:
            return SubmitResult(Submission.ACCEPTED, provider_message_id=attempt)
        return SubmitResult(Submission.UNKNOWN, error_class=ErrorClass.TIMEOUT_AFTER_SUBMIT)


def main() -> None:
    """Dispatch until SIGTERM."""
    import django

    django.setup()
    from scheduler import dispatcher
    from scheduler.rules import SlotSizes
    from tests.benchmarks.dispatching import SIZES

    with mock.patch.object(dispatcher, "Simulated", OverHttp):
        dispatcher.run(dispatcher.DispatcherOptions(SlotSizes(**SIZES)))


if __name__ == "__main__":
    main()
