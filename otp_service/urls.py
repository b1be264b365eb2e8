"""Every address of the service."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerView

from otp_service import health
from otp_service.web.methods import allow_methods
from otp_service.web.negotiation import AlwaysJSON

_DOCS = {"url_name": "schema", "content_negotiation_class": AlwaysJSON}

urlpatterns: list[URLPattern | URLResolver] = [
    path("admin/", include("otp_service.staff.urls")),
    path("admin/", admin.site.urls),
    path("health/live", health.live),
    path("health/ready", health.ready),
    path("webhooks/", include("webhooks.inbound.urls")),
    path(settings.MANAGE_API_PREFIX, include("servers.urls")),
    path("api/v1/manage/routes/", include("otp_service.routes.urls")),
    path("api/v1/", include("otp_service.messages.urls")),
    path("api/schema/", SpectacularJSONAPIView.as_view(), name="schema"),
    # Guarded from outside: the page's own refusals would be rendered by its template, and fail.
    path("api/docs/", allow_methods("GET", "HEAD")(SpectacularSwaggerView.as_view(**_DOCS)), name="docs"),
]

handler400 = "otp_service.web.problems.bad_request"
handler404 = "otp_service.web.problems.not_found"
handler500 = "otp_service.web.problems.server_error"
