"""Addresses of routes in the manage API."""

from __future__ import annotations

from django.urls import path

from otp_service.routes import api

urlpatterns = [
    path("<str:route_name>/isolate/", api.IsolateRouteView.as_view(), name="manage-isolate-route"),
    path("<str:route_name>/enable/", api.EnableRouteView.as_view(), name="manage-enable-route"),
]
