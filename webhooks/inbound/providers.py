"""What providers report about attempts of their routes: kept raw, and applied in the same transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from django.conf import settings
from django.db import transaction

from otp_service.core.outcomes import Receipt
from otp_service.routes.providers.base import OutsideProvider, Posted
from otp_service.routes.providers.http_json import HttpJson
from otp_service.routes.providers.kannel import Kannel
from otp_service.routes.providers.twilio import Twilio
from otp_service.routes.receipts import apply_route_receipts
from otp_service.routes.route_rules import RouteKind
from webhooks.inbound.models import ProviderCall

#: Those that post; SMPP reports over its binds.
PROVIDERS: Mapping[RouteKind, OutsideProvider] = {
    RouteKind.TWILIO: Twilio(),
    RouteKind.KANNEL: Kannel(),
    RouteKind.HTTP_JSON: HttpJson(),
}
#: Characters of an address that are kept: receipts of some providers are nothing but a query.
ADDRESS_LIMIT = 4_000


def public_address(path_and_query: str) -> str:
    """An address of ours as a provider sees it, which is what it signs."""
    return f"{settings.PUBLIC_URL}{path_and_query}"


def take(route: str, posted: Posted, receipts: Sequence[Receipt], *, now: datetime) -> int:
    """Store and apply a genuine call; returns how many attempts changed. A repetition changes nothing."""
    body = posted.body.decode(errors="replace")
    with transaction.atomic():
        ProviderCall.objects.create(route=route, received_at=now, said=f"{posted.url[:ADDRESS_LIMIT]}\n\n{body}")
        return apply_route_receipts(route, receipts, now=now)
