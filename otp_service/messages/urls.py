"""Addresses of the client API."""

from __future__ import annotations

from django.urls import path

from otp_service.messages import api

urlpatterns = [
    path("messages/", api.MessagesView.as_view(), name="messages"),
    path("messages/<uuid:message_uuid>/", api.MessageView.as_view(), name="message"),
    path("messages/<uuid:message_uuid>/cancel/", api.CancelView.as_view(), name="message-cancel"),
]
