"""The sidebar of the admin: the pages that a person may see, in sections."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse

#: Section → its pages: title, icon (Material Symbols), model.
SECTIONS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Fleet": (
        ("Servers", "smartphone", "servers.server"),
        ("Groups", "tune", "servers.group"),
        ("Hosts", "dns", "servers.host"),
        ("History", "history", "servers.serverstatushistory"),
        ("Internal sends", "sync_alt", "servers.internalsend"),
        ("Storms", "thunderstorm", "servers.stormbrake"),
    ),
    "Traffic": (
        ("Messages", "sms", "otp_messages.message"),
        ("Campaigns", "campaign", "otp_messages.campaign"),
        ("Flows", "low_priority", "otp_messages.flow"),
        ("Recipients", "person_off", "otp_messages.recipient"),
        ("Invalid numbers", "phone_disabled", "otp_messages.invalidreport"),
        ("Routes", "alt_route", "routes.route"),
    ),
    "Clients": (
        ("Clients", "apartment", "otp_messages.client"),
        ("API keys", "key", "otp_messages.apikey"),
    ),
    "System": (
        ("Dispatchers", "memory", "routes.dispatcher"),
        ("Events", "receipt_long", "events.event"),
        ("Periodic tasks", "schedule", "django_celery_beat.periodictask"),
        ("Users", "person", "auth.user"),
        ("Failed log-ins", "lock_clock", "axes.accessattempt"),
        ("Staff groups", "groups", "auth.group"),
    ),
}


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """What unfold draws. A section of which nothing may be seen is left out."""
    sections: list[dict[str, Any]] = []
    for section, pages in SECTIONS.items():
        items = [_item(*page) for page in pages if _may_view(request, page[2])]
        if items:
            sections.append({"title": section, "separator": bool(sections), "items": items})
    return sections


def _item(title: str, icon: str, model: str) -> dict[str, str]:
    return {"title": title, "icon": icon, "link": reverse(f"admin:{model.replace('.', '_')}_changelist")}


def _may_view(request: HttpRequest, model: str) -> bool:
    app, name = model.split(".")
    return any(request.user.has_perm(f"{app}.{verb}_{name}") for verb in ("view", "change"))
