"""Addresses of the client API."""

from __future__ import annotations

from django.urls import path, register_converter
from django.urls.converters import UUIDConverter

from otp_service.messages import api


class AnyCaseUUIDConverter(UUIDConverter):
    """A UUID in lower or upper case, as other systems write it; our own addresses are in lower case."""

    regex = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


register_converter(AnyCaseUUIDConverter, "any_case_uuid")

urlpatterns = [
    path("messages/", api.MessagesView.as_view(), name="messages"),
    path("messages/<any_case_uuid:message_uuid>/", api.MessageView.as_view(), name="message"),
    path("messages/<any_case_uuid:message_uuid>/cancel/", api.CancelView.as_view(), name="message-cancel"),
]
