"""Campaigns in the admin: read by many, steered by those who may."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client as Browser
from django.urls import reverse

from otp_service.events.models import Event
from otp_service.messages.models import Campaign, CampaignCount, CampaignRefusal, Flow
from tests.factories import CampaignFactory, FlowFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def campaign() -> Campaign:
    row = CampaignFactory.create(name="Autumn")
    FlowFactory.create(client=row.client, campaign=row, lane="promo")
    return row


@pytest.fixture
def reader(client: Browser) -> Browser:
    """Somebody who may look at campaigns."""
    user = User.objects.create_user("reader", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_campaign"))
    client.force_login(user)
    return client


def address(campaign: Campaign, what: str) -> str:
    return reverse(f"admin:otp_messages_campaign_{what}", args=[campaign.pk])


def test_page_says_how_far_it_is_and_what_was_refused(admin_client: Browser, campaign: Campaign) -> None:
    CampaignCount.objects.create(campaign=campaign, status="delivered", n=1_234)
    CampaignRefusal.objects.create(campaign=campaign, line=7, field="to", code="not_valid", detail="Mend <it>.")
    page = admin_client.get(address(campaign, "change")).content.decode()
    assert "delivered: 1,234" in page
    assert "Line 7 to: Mend &lt;it&gt;." in page


@pytest.mark.parametrize(
    ("asked", "state", "flow"),
    [("pause", "paused", "paused"), ("cancel", "cancelled", "cancelled"), ("resume", "running", "on")],
)
def test_a_person_who_may_steers_it_after_a_question(
    admin_client: Browser, campaign: Campaign, asked: str, state: str, flow: str
) -> None:
    if asked == "resume":
        admin_client.post(address(campaign, "pause"))
    before = Campaign.objects.get().state
    assert admin_client.get(address(campaign, asked)).status_code == 200
    assert Campaign.objects.get().state == before
    answer = admin_client.post(address(campaign, asked))
    assert answer["Location"] == address(campaign, "change")
    assert (Campaign.objects.get().state, Flow.objects.get().state) == (state, flow)
    assert Event.objects.order_by("-id")[0].data == {"by": "admin"}


def test_what_cannot_be_is_said(admin_client: Browser, campaign: Campaign) -> None:
    admin_client.post(address(campaign, "cancel"))
    answer: Any = admin_client.post(address(campaign, "resume"), follow=True)
    assert "that is for good" in answer.content.decode()
    again: Any = admin_client.post(address(campaign, "cancel"), follow=True)
    assert "It was so before." in again.content.decode()


@pytest.mark.parametrize("asked", ["pause", "resume", "cancel"])
def test_a_reader_steers_nothing(reader: Browser, campaign: Campaign, asked: str) -> None:
    assert reader.get(address(campaign, "change")).status_code == 200
    assert reader.post(address(campaign, asked)).status_code == 403
    assert Campaign.objects.get().state == "running"


def test_a_stranger_sees_and_steers_nothing(client: Browser, campaign: Campaign) -> None:
    user = User.objects.create_user("stranger", is_staff=True)
    client.force_login(user)
    assert client.post(address(campaign, "cancel")).status_code == 403
    assert client.get(address(campaign, "change")).status_code == 403
    assert Campaign.objects.get().state == "running"


def test_nobody_writes_one_by_hand(admin_client: Browser, campaign: Campaign) -> None:
    assert admin_client.get(reverse("admin:otp_messages_campaign_add")).status_code == 403
    assert admin_client.post(address(campaign, "change"), {"name": "x"}).status_code == 403
    assert admin_client.post(address(campaign, "delete"), {"post": "yes"}).status_code == 403
    assert Campaign.objects.get().name == "Autumn"
