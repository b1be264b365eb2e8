"""Addresses of the client API."""

from __future__ import annotations

from django.urls import path

from otp_service.messages import api
from otp_service.web.converters import ANY_CASE_UUID

urlpatterns = [
    path("messages/", api.MessagesView.as_view(), name="messages"),
    path(f"messages/<{ANY_CASE_UUID}:message_uuid>/", api.MessageView.as_view(), name="message"),
    path(f"messages/<{ANY_CASE_UUID}:message_uuid>/cancel/", api.CancelView.as_view(), name="message-cancel"),
]
