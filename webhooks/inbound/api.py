"""The addresses that relay hosts and providers post to."""

from __future__ import annotations

import hmac
from datetime import datetime

import structlog
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from otp_service.core.clock import utc_now
from otp_service.core.errors import ServiceError
from otp_service.core.signing import verify
from otp_service.routes import table
from otp_service.routes.providers.base import NotGenuine, Posted, Unreadable
from otp_service.web.methods import allow_methods
from otp_service.web.problems import problem
from servers.hosts import host_of_token
from servers.models import Host
from servers.relay import bluebubbles_events
from servers.relay.events import BODY_LIMIT, parse_events
from servers.relay.fields import RelayShapeError
from webhooks.inbound import bluebubbles, providers, relay

log = structlog.get_logger(__name__)

BEARER = "Bearer "


@csrf_exempt
@allow_methods("POST")
def relay_host(request: HttpRequest, number: int) -> HttpResponse:
    """`POST /webhooks/relay/{host number}/`: one event or a list of up to 100, signed.

    200 `{"accepted", "duplicates"}` as soon as they are stored and applied; 400 shape, 401 signature, 404
    unknown host, 413 size. What can never change anything any more is accepted: the host must not repeat it.
    """
    now = utc_now()
    host = Host.objects.filter(number=number).first()
    if host is None:
        return problem(404, "unknown_host", "No relay host has this number.")
    body = request.read(BODY_LIMIT + 1)
    if len(body) > BODY_LIMIT:
        return problem(413, "body_too_large", f"The body may have {BODY_LIMIT} bytes at most: send shorter lists.")
    try:
        _authenticate(request, host, body, now)
        events = parse_events(body)
    except ServiceError as error:
        log.warning("relay_call_refused", host=number, code=error.code)
        return problem(error.status, error.code, error.detail, title=error.title, **error.data)
    taken = relay.take(host, body, events, now=now)
    return JsonResponse({"accepted": taken.accepted, "duplicates": taken.duplicates})


def _authenticate(request: HttpRequest, host: Host, body: bytes, now: datetime) -> None:
    authorization = request.headers.get("Authorization", "")
    if settings.RELAY_BEARER_ALLOWED and authorization.startswith(BEARER):
        offered = authorization.removeprefix(BEARER).encode()
        if any(hmac.compare_digest(offered, secret.encode()) for secret in host.secrets(now)):
            return
    verify(host.secrets(now), request.headers, body, now=now)


@csrf_exempt
@allow_methods("POST")
def bluebubbles_host(request: HttpRequest, token: str) -> HttpResponse:
    """`POST /webhooks/bluebubbles/{token}/`: one event of a BlueBubbles server, which signs nothing.

    200 `{}` as soon as it is stored and its host is to be asked, also where it is about nothing of ours; 400 shape,
    404 no host's token, 413 size. It may come from anybody who knows the token: nothing that it says is believed but
    that somebody wrote STOP or START.
    """
    request.path = request.path_info = "/webhooks/bluebubbles/"  # what is logged of a request that fails
    now = utc_now()
    host = host_of_token(token, now=now)
    if host is None:
        return problem(404, "unknown_token", "This token was given to no host.")
    body = request.read(BODY_LIMIT + 1)
    if len(body) > BODY_LIMIT:
        return problem(413, "body_too_large", f"The body may have {BODY_LIMIT} bytes at most.")
    try:
        events = bluebubbles_events.parse_events(body, unit=host.number, now=now)
    except RelayShapeError as error:
        log.warning("relay_call_refused", host=host.number, code=error.code)
        return problem(error.status, error.code, error.detail, title=error.title, **error.data)
    bluebubbles.take(host, body, events, now=now)
    return JsonResponse({})


@csrf_exempt
@allow_methods("GET", "POST")
def provider(request: HttpRequest, route: str) -> HttpResponse:
    """`POST` (some providers: `GET`) `/webhooks/providers/{route}/`: what the route's provider tells in its own words.

    That is receipts, and what people write back over the route.

    204 as soon as they are stored and applied, and for what can never be understood: the provider must not repeat it.
    403 where the provider did not sign it; 404 no such route; 413 size.
    """
    now = utc_now()
    spec = table.load_one(route)
    if spec is None or spec.kind not in providers.PROVIDERS:
        return problem(404, "unknown_route", "No route of this name has receipts posted to it.")
    body = request.read(BODY_LIMIT + 1)
    if len(body) > BODY_LIMIT:
        return problem(413, "body_too_large", f"The body may have {BODY_LIMIT} bytes at most.")
    url = providers.public_address(request.get_full_path())
    headers = {name.lower(): value for name, value in request.headers.items()}
    posted = Posted(request.method or "", url, headers, body)
    try:
        told = providers.read(spec, posted)
    except NotGenuine:
        log.warning("provider_call_refused", route=route)
        return problem(403, "not_genuine", providers.refusal(spec))
    except Unreadable as unreadable:
        log.warning("provider_call_unreadable", route=route, why=str(unreadable))
        told = providers.Told()
    providers.take(route, posted, told, now=now)
    return HttpResponse(status=204)
