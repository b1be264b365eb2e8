"""The dispatcher of one run: the product's own lane, with a provider that waits for answers a short time only.

It takes a process of its own and a migrated, empty database, into which it first writes the run's routes and client.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import aiohttp
from django.db import connection

from otp_service.core.clock import utc_now
from otp_service.core.http import Timeouts
from otp_service.messages import api_keys
from otp_service.messages.models import Client
from otp_service.messages.rules import Channel
from otp_service.routes.models import Route
from otp_service.routes.providers.twilio import Twilio
from otp_service.routes.route_rules import RouteKind
from scheduler.dispatcher import DispatcherOptions, make_lane, prepare_connections, work
from scheduler.rules import SlotSizes

#: What the names of the drill's databases begin with. One that was left behind by a kill -9 may be dropped.
PREFIX = "otp_drill_"
#: A provider of the drill is on this machine: it is well when it answers in milliseconds.
TIMEOUTS = Timeouts(connect=timedelta(seconds=1), total=timedelta(seconds=2))
_SIZES = SlotSizes(floor=20, shared=80, reserve=24, promo_floor=2)
_EXPECTED_MS = 200


@dataclass(frozen=True, slots=True)
class RouteRow:
    """A route over one simulated provider."""

    name: str
    base_url: str
    account_sid: str
    auth_token: str
    priority: int
    sender_names: tuple[str, ...]
    delivery_s: int
    receipt_wait_s: int
    can_query: bool
    tps: float | None


def written(rows: list[RouteRow]) -> str:
    """For the command line of its process."""
    return json.dumps([asdict(row) for row in rows])


def read(text: str) -> list[RouteRow]:
    """What `written` wrote."""
    return [RouteRow(**row) for row in json.loads(text)]


def run(rows: list[RouteRow], tell: Callable[[str], None]) -> None:
    """Tell the key of the run's client, and dispatch until SIGTERM or SIGINT.

    Raises ValueError on a database that is not the drill's.
    """
    if not connection.settings_dict["NAME"].startswith(PREFIX):
        raise ValueError("The drill dispatches on a database of its own; `manage.py drill_routes` makes one.")
    for row in rows:
        _make_route(row)
    client = Client.objects.create(name="drill", created_at=utc_now())
    _, key = api_keys.create(client, [api_keys.Scope.MESSAGES], now=utc_now())
    tell(key)
    connection.close()
    prepare_connections()
    asyncio.run(_dispatch())


def _make_route(row: RouteRow) -> None:
    values: dict[str, Any] = asdict(row)
    credentials = {name: values.pop(name) for name in ("account_sid", "auth_token")}
    settings = {"base_url": values.pop("base_url")}
    Route.objects.create(
        **{**values, "sender_names": list(row.sender_names)},
        settings=settings,
        kind=RouteKind.TWILIO.value,
        channel=Channel.SMS.value,
        expected_ms=_EXPECTED_MS,
        credentials=json.dumps(credentials),
    )


async def _dispatch() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    options = DispatcherOptions(sizes=_SIZES, name="drill")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), trust_env=False) as session:
        lane = make_lane(options, session, providers={RouteKind.TWILIO: Twilio(timeouts=TIMEOUTS)})
        try:
            await work(lane, options, stop)
        finally:
            await lane.close()
