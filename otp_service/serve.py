"""`python -m otp_service.serve`: the web process.

waitress takes in whole requests before a thread of ours sees them: a client that is slow with its headers or
its body, or never sends the rest, holds a connection and nothing else. Threads, because sync views under ASGI
run one at a time in a process.
"""

from __future__ import annotations

import argparse
import copy
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import waitress
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser

#: Bytes of a body that are taken in at all. Views have bounds of their own below it, and answer in words.
BODY_LIMIT = 2 * 1_048_576
#: Where uploads go that are larger: they lie in a temporary file until a view reads them.
UPLOADS = "/api/v1/campaigns/"
#: Seconds without a byte after which a connection is closed.
SILENCE = 30
CONNECTIONS = 2_000


def main(arguments: Sequence[str]) -> None:
    """Serve until SIGTERM or SIGINT; requests that a thread has begun are answered."""
    parser = argparse.ArgumentParser(prog="python -m otp_service.serve", description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:8000", metavar="ADDRESS:PORT")
    listen: str = parser.parse_args(arguments).listen
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "otp_service.settings")

    from django.conf import settings  # noqa: PLC0415 - the environment comes first

    from otp_service.wsgi import application  # noqa: PLC0415 - as above
    from scheduler.start import log_rules  # noqa: PLC0415 - as above

    log_rules()
    signal.signal(signal.SIGTERM, _stop)
    HTTPChannel.parser_class = parser_class(settings.CAMPAIGN_BODY_LIMIT_MB * 1_048_576)
    waitress.serve(
        application,
        listen=listen,
        threads=settings.WEB_THREADS,
        connection_limit=CONNECTIONS,
        channel_timeout=SILENCE,
        max_request_body_size=BODY_LIMIT,
        asyncore_use_poll=True,  # select() ends at 1,024 connections
        ident="",
        # What a proxy says of the client's own connection counts only where settings say that there is one.
        clear_untrusted_proxy_headers=not settings.BEHIND_TLS_PROXY,
    )


def parser_class(upload_limit: int) -> type[HTTPRequestParser]:
    """Takes in bodies of `upload_limit` bytes for campaigns, if something like a key comes with them."""

    class Parser(HTTPRequestParser):
        adj: Adjustments
        path: str

        def parse_header(self, header_plus: bytes) -> None:
            super().parse_header(header_plus)
            is_upload = str(self.command) == "POST" and self.path == UPLOADS
            if is_upload and self.headers.get("AUTHORIZATION", "").lower().startswith("bearer otp_"):
                self.adj = copy.copy(self.adj)
                self.adj.max_request_body_size = upload_limit + 1  # it refuses what is not below

    return Parser


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)  # waitress ends its threads' work in hand, and returns


if __name__ == "__main__":
    main(sys.argv[1:])
