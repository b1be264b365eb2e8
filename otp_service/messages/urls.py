"""Addresses of the client API."""

from __future__ import annotations

from django.urls import path

from otp_service.messages import api, batch_api, campaign_api, recipient_api
from otp_service.web.converters import ANY_CASE_UUID

_CAMPAIGN = f"campaigns/<{ANY_CASE_UUID}:campaign_uuid>/"

urlpatterns = [
    path("messages/", api.MessagesView.as_view(), name="messages"),
    path("messages/batch/", batch_api.BatchView.as_view(), name="batch"),
    path(f"messages/<{ANY_CASE_UUID}:message_uuid>/", api.MessageView.as_view(), name="message"),
    path(f"messages/<{ANY_CASE_UUID}:message_uuid>/cancel/", api.CancelView.as_view(), name="message-cancel"),
    path(f"messages/<{ANY_CASE_UUID}:message_uuid>/explain/", api.ExplainView.as_view(), name="message-explain"),
    path("campaigns/", campaign_api.CampaignsView.as_view(), name="campaigns"),
    path(_CAMPAIGN, campaign_api.CampaignView.as_view(), name="campaign"),
    path(f"{_CAMPAIGN}errors/", campaign_api.CampaignErrorsView.as_view(), name="campaign-errors"),
    path(f"{_CAMPAIGN}pause/", campaign_api.PauseView.as_view(), name="campaign-pause"),
    path(f"{_CAMPAIGN}resume/", campaign_api.ResumeView.as_view(), name="campaign-resume"),
    path(f"{_CAMPAIGN}cancel/", campaign_api.CancelCampaignView.as_view(), name="campaign-cancel"),
    path("recipients/<str:e164>/preferences/", recipient_api.PreferencesView.as_view(), name="preferences"),
]
