"""Failed log-ins, and devices of staff: to look at, and to remove. No secret is shown."""

from __future__ import annotations

from typing import Any

from axes.models import AccessAttempt
from django.conf import settings
from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django_otp.plugins.otp_static.models import StaticDevice
from django_otp.plugins.otp_totp.models import TOTPDevice
from unfold.admin import ModelAdmin

from otp_service.web.admin import ReadOnly

_STATE = ("throttling_failure_count", "throttling_failure_timestamp", "created_at", "last_used_at")

# Their own pages show secrets, or may be told to.
admin.site.unregister([TOTPDevice, StaticDevice])


class _LookAndRemove(ReadOnly):
    """Not to be changed, and removed by hand: whoever may remove decides something by it."""

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(ModelAdmin.has_delete_permission(self, request, obj))


@admin.register(AccessAttempt)
class AccessAttemptAdmin(_LookAndRemove):
    """Removing somebody's rows lets them try again at once."""

    list_display = ("attempt_time", "username", "ip_address", "failures_since_start")
    list_display_links = ("attempt_time",)
    search_fields = ("username", "ip_address")
    fields = ("attempt_time", "username", "ip_address", "user_agent", "failures_since_start")


class _DeviceAdmin(_LookAndRemove):
    """In the menus where codes are required. Who has lost a device sets up another once it is removed."""

    search_fields = ("user__username",)
    list_select_related = ("user",)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return settings.STAFF_TOTP != "off" and bool(super().has_module_permission(request))


@admin.register(TOTPDevice)
class AppAdmin(_DeviceAdmin):
    """The apps that show codes."""

    list_display = ("user", "name", "confirmed", "created_at", "last_used_at")
    fields = ("user", "name", "confirmed", *_STATE)


@admin.register(StaticDevice)
class RecoveryCodesAdmin(_DeviceAdmin):
    """How many recovery codes people have left."""

    list_display = ("user", "name", "codes_left", "created_at", "last_used_at")
    fields = ("user", "name", "codes_left", *_STATE)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        devices: QuerySet[Any] = super().get_queryset(request).annotate(left=Count("token_set"))
        return devices

    @admin.display(description="codes left")
    def codes_left(self, device: Any) -> int:
        return int(device.left)
