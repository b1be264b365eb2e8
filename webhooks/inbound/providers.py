"""What providers post: receipts of their routes' attempts, and what people write back over these.

Kept raw, and applied in the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db import transaction

from otp_service.core.outcomes import Receipt
from otp_service.messages import recipients
from otp_service.routes.providers.base import HearingProvider, Inbound, OutsideProvider, Posted
from otp_service.routes.providers.http_json import HttpJson
from otp_service.routes.providers.kannel import Kannel
from otp_service.routes.providers.twilio import Twilio
from otp_service.routes.receipts import apply_route_receipts
from otp_service.routes.route_rules import RouteKind, RouteSpec
from webhooks.inbound.models import ProviderCall

#: Those that also post what people write to us.
_HEARING: Mapping[RouteKind, HearingProvider] = {RouteKind.TWILIO: Twilio(), RouteKind.KANNEL: Kannel()}
#: Those that post; SMPP delivers over its binds.
PROVIDERS: Mapping[RouteKind, OutsideProvider] = {**_HEARING, RouteKind.HTTP_JSON: HttpJson()}
#: Characters of an address that are kept: receipts of some providers are nothing but a query.
ADDRESS_LIMIT = 4_000


def public_address(path_and_query: str) -> str:
    """An address of ours as a provider sees it, which is what it signs."""
    return f"{settings.PUBLIC_URL}{path_and_query}"


@dataclass(frozen=True, slots=True)
class Told:
    """What a genuine call says."""

    receipts: Sequence[Receipt] = ()
    inbound: Sequence[Inbound] = ()


def read(spec: RouteSpec, posted: Posted) -> Told:
    """What a call to a route of one of PROVIDERS says. Raises NotGenuine, Unreadable."""
    hearing = _HEARING.get(spec.kind)
    return Told(PROVIDERS[spec.kind].receipts(spec, posted), hearing.inbound(spec, posted) if hearing else ())


def refusal(spec: RouteSpec) -> str:
    """What a call to such a route is told that is not genuine."""
    receipt = spec.settings.get("receipt")
    is_signed = isinstance(receipt, dict) and receipt.get("signature_header")
    if spec.kind is RouteKind.KANNEL or (spec.kind is RouteKind.HTTP_JSON and not is_signed):
        return "The token is missing or wrong."
    return "The provider of this route did not sign this."


def take(route: str, posted: Posted, told: Told, *, now: datetime) -> int:
    """Store and apply a genuine call; returns how many attempts changed. A repetition changes nothing."""
    body = posted.body.decode(errors="replace")
    with transaction.atomic():
        ProviderCall.objects.create(route=route, received_at=now, said=f"{posted.url[:ADDRESS_LIMIT]}\n\n{body}")
        changed = apply_route_receipts(route, told.receipts, now=now)
        recipients.note_answers([(each.sender, each.text) for each in told.inbound], now=now)
    return changed
