"""A Kannel route, an attempt that takes it, and what a Kannel was heard to say."""

from __future__ import annotations

import datetime as dt
from typing import Any

from otp_service.core.clock import utc_now
from otp_service.messages.rules import Channel
from otp_service.routes.claim import Claimed
from otp_service.routes.providers.base import Posted
from otp_service.routes.route_rules import RouteKind, RouteSpec
from tests.routes.providers.contract_base import a_claim, a_send, payload
from tests.servers.relay.peers import Reply, answers

CREDENTIALS = {"username": "our-user", "password": "s3cret pass", "receipt_token": "receipt-token"}
RECEIPTS_URL = "https://otp.example/webhooks/providers/sms%3Aone/"


def words(case: str) -> bytes:
    return payload("kannel", f"{case}.txt")


def said(status: int, case: str, **headers: str) -> Reply:
    return answers(status, words(case), **headers)


def route(
    base_url: str, *, receipts_url: str = RECEIPTS_URL, names: tuple[str, ...] = (), **settings: Any
) -> RouteSpec:
    return RouteSpec(
        "sms:one",
        Channel.SMS,
        RouteKind.KANNEL,
        settings={"url": f"{base_url}/cgi-bin/sendsms", **settings},
        credentials=CREDENTIALS,
        sender_names=names,
        receipts_url=receipts_url,
    )


def attempt(
    spec: RouteSpec,
    *,
    now: dt.datetime | None = None,
    lives: dt.timedelta = dt.timedelta(minutes=5),
    submits: dt.timedelta = dt.timedelta(seconds=30),
    **changes: Any,
) -> Claimed:
    """`lives` and `submits` from `now` on, by default the real one."""
    now = now or utc_now()
    return a_claim(spec, a_send(expires_at=now + lives, submit_by=now + submits, **changes))


def called(query: str) -> Posted:
    """What Kannel's call to the address of receipts is to us."""
    return Posted("GET", f"{RECEIPTS_URL}?{query}", headers={"user-agent": "Kannel/1.4.5"}, body=b"")
