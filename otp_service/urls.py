"""Every address of the service."""

from __future__ import annotations

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerView

from otp_service import health

urlpatterns: list[URLPattern | URLResolver] = [
    path("admin/", admin.site.urls),
    path("health/live", health.live),
    path("health/ready", health.ready),
    path("webhooks/", include("webhooks.inbound.urls")),
    path("api/v1/", include("otp_service.messages.urls")),
    path("api/schema/", SpectacularJSONAPIView.as_view(), name="schema"),
    path("api/docs/", SpectacularSwaggerView.as_view(url_name="schema"), name="docs"),
]

handler400 = "otp_service.web.problems.bad_request"
handler404 = "otp_service.web.problems.not_found"
handler500 = "otp_service.web.problems.server_error"
