"""The addresses that relay hosts post to."""

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
from otp_service.web.methods import allow_methods
from otp_service.web.problems import problem
from servers.models import Host
from servers.relay.events import BODY_LIMIT, parse_events
from webhooks.inbound import relay

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
