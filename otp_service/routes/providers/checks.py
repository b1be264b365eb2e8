"""Whether an outside route could be used now, asked by a person."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta

import aiohttp

from otp_service.routes import route_owners, table
from otp_service.routes.providers.base import Health, OutsideProvider
from otp_service.routes.providers.http_json import HttpJson
from otp_service.routes.providers.kannel import Kannel
from otp_service.routes.providers.twilio import Twilio
from otp_service.routes.route_rules import RouteKind, RouteSpec

#: A page waits for it.
TIMEOUT = timedelta(seconds=5)

_ASKED: Mapping[RouteKind, OutsideProvider] = {
    RouteKind.TWILIO: Twilio(),
    RouteKind.KANNEL: Kannel(),
    RouteKind.HTTP_JSON: HttpJson(),
}


def check(route: str) -> Health:
    """Ask its provider, within TIMEOUT; of a route over SMPP, what the dispatcher that holds it said last.

    From a thread without an event loop.
    """
    spec = table.load().get(route)
    if spec is None:
        return Health(False, "Its credentials cannot be opened: give them again.")
    if spec.kind is RouteKind.SMPP:
        told = route_owners.told(route)
        return Health(told.up, told.detail) if told else Health(False, _NOBODY_HOLDS_IT)
    return asyncio.run(_ask(_ASKED[spec.kind], spec))


_NOBODY_HOLDS_IT = "No dispatcher holds it: one that serves all its lanes takes it while it is enabled."


async def _ask(provider: OutsideProvider, spec: RouteSpec) -> Health:
    try:
        async with asyncio.timeout(TIMEOUT.total_seconds()), aiohttp.ClientSession(trust_env=False) as session:
            return await provider.check(session, spec)
    except TimeoutError:
        return Health(False, f"No answer within {TIMEOUT.total_seconds():g} s.")
