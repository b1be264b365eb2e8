"""One row of every model that the admin shows."""

from __future__ import annotations

import datetime as dt
import uuid

from axes.models import AccessAttempt
from django.contrib import admin
from django.contrib.auth.models import Group as StaffGroup
from django.contrib.auth.models import User
from django.db.models import Model
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule
from django_otp.plugins.otp_static.models import StaticDevice
from django_otp.plugins.otp_totp.models import TOTPDevice

from otp_service.events.models import Event
from otp_service.messages.recipient_models import InvalidReport, Recipient
from servers.models import ServerStatusHistory, StormBrake
from servers.rules import Event as HistoryEvent
from tests.factories import (
    ApiKeyFactory,
    AttemptFactory,
    CampaignFactory,
    DispatcherFactory,
    GroupFactory,
    InternalSendFactory,
    RouteFactory,
    ServerFactory,
)


def a_row_of_everything(now: dt.datetime) -> dict[type[Model], Model]:
    """By model. A model of the admin that is missing here fails: its pages would go untested."""
    server, group, attempt, key = (
        ServerFactory.create(),
        GroupFactory.create(),
        AttemptFactory.create(),
        ApiKeyFactory.create(),
    )
    group.servers.add(server)
    bob = User.objects.create_user("bob")
    interval = IntervalSchedule.objects.create(every=5, period=IntervalSchedule.SECONDS)
    rows: list[Model] = [
        *(server, server.host, group, attempt.message, attempt.message.flow, key, key.client, interval),
        CampaignFactory.create(client=key.client),
        InternalSendFactory.create(sender=server),
        RouteFactory.create(),
        DispatcherFactory.create(last_seen_at=now),
        ServerStatusHistory.objects.create(server=server, event=HistoryEvent.SEND_FAILED, at=now),
        StormBrake.objects.create(scope="host", name="1", mode="shadow", share=0.5, on_at=now),
        Recipient.objects.create(recipient_hash=bytes(32), changed_at=now),
        InvalidReport.objects.create(recipient_hash=bytes(32), route="sms:a", at=now),
        Event.objects.create(type="group.changed", at=now, subject_uuid=uuid.uuid4()),
        bob,
        AccessAttempt.objects.create(username="x", ip_address="203.0.113.7", user_agent="", failures_since_start=1),
        TOTPDevice.objects.create(user=bob, name="phone"),
        StaticDevice.objects.create(user=bob, name="paper"),
        StaffGroup.objects.create(name="support"),
        PeriodicTask.objects.create(name="a task", task="scheduler.tasks.watch_hosts", interval=interval),
        CrontabSchedule.objects.create(),
        SolarSchedule.objects.create(event="sunset", latitude=40, longitude=-3),
        ClockedSchedule.objects.create(clocked_time=now),
    ]
    found = {type(row): row for row in rows}
    assert found.keys() >= admin.site._registry.keys(), "make a row of what is new"
    return found
