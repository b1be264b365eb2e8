"""The simulated Twilio API for tests that are not asyncio: in a thread of its own, on a free port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from otp_service.core.clock import utc_now
from otp_service.simulation.twilio_api import SentMessage, TwilioApi

ACCOUNT, TOKEN = "AC0123", "a token"
_PATIENCE = 10  # seconds for the thread to answer


@contextmanager
def twilio() -> Iterator[TwilioApi]:
    """A running one without messages."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="twilio", daemon=True)
    thread.start()
    api = TwilioApi(ACCOUNT, TOKEN)
    try:
        asyncio.run_coroutine_threadsafe(api.__aenter__(), loop).result(_PATIENCE)
        yield api
        asyncio.run_coroutine_threadsafe(api.__aexit__(None, None, None), loop).result(_PATIENCE)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_PATIENCE)
        loop.close()


def knows(api: TwilioApi, sid: str, status: str, error_code: int | None = None) -> None:
    """It has a message, which stands so."""
    message = SentMessage(sid, "+34600000000", "ACME", "", 300, "", utc_now(), status, error_code)
    api.messages[sid] = message
