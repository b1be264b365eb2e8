"""Pause, resume and cancel: a handful of rows, the last word over claims, and nothing the second time."""

from __future__ import annotations

import datetime as dt
import io
import uuid
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from otp_service.events.models import Event
from otp_service.messages import campaigns, expiry, lifecycle
from otp_service.messages.campaign_lines import Lines
from otp_service.messages.campaigns import Change
from otp_service.messages.models import Attempt, Campaign, CampaignCount, Flow, Message, Ready
from otp_service.messages.rules import MessageStatus
from tests.factories import CampaignFactory, ClientFactory, FlowFactory, MessageFactory, QueuedFactory, ServerFactory
from tests.messages.campaign_calls import CAMPAIGNS, LINE, ask, loaded
from tests.messages.client_api import ClientApi, body, code
from tests.racing import Racer
from tests.routes.steps import claimed

pytestmark = pytest.mark.django_db


@pytest.fixture
def campaign(api: ClientApi) -> dict[str, Any]:
    """Three messages in two flows, running."""
    return loaded(api, [LINE, LINE, {**LINE, "to": "+351912345678"}])


def flow_states() -> list[str]:
    return sorted(Flow.objects.values_list("state", flat=True))


def queued_in(flow: Flow, **fields: Any) -> Message:
    """A message of a campaign in the queue, with its place in the counts."""
    message = QueuedFactory.create(flow=flow, campaign=flow.campaign, **fields)
    assert message.campaign is not None
    CampaignCount.objects.create(campaign=message.campaign, status="queued", n=1)
    return message


@pytest.mark.parametrize(
    ("asked", "state", "flows"),
    [
        (["pause"], "paused", "paused"),
        (["pause", "pause"], "paused", "paused"),
        (["resume"], "running", "on"),
        (["pause", "resume"], "running", "on"),
        (["cancel"], "cancelled", "cancelled"),
        (["pause", "cancel", "cancel"], "cancelled", "cancelled"),
    ],
)
def test_what_is_asked_holds_for_all_flows(
    api: ClientApi, campaign: dict[str, Any], asked: list[str], state: str, flows: str
) -> None:
    for what in asked:
        answer = ask(api, campaign, what)
        assert answer.status_code == 200
    assert body(answer) == {**campaign, "state": state}
    assert flow_states() == [flows, flows]
    assert body(api.get(campaign["links"]["self"])) == body(answer)


@pytest.mark.parametrize("asked", ["pause", "resume"])
def test_a_cancel_is_for_good(api: ClientApi, campaign: dict[str, Any], asked: str) -> None:
    ask(api, campaign, "cancel")
    answer = ask(api, campaign, asked)
    assert (answer.status_code, code(answer)) == (409, "campaign_cancelled")
    assert flow_states() == ["cancelled", "cancelled"]


def test_each_change_leaves_one_event(api: ClientApi, campaign: dict[str, Any]) -> None:
    for what in ("pause", "pause", "resume", "cancel", "cancel"):
        ask(api, campaign, what)
    told = Event.objects.order_by("id").values_list("type", "subject_uuid", "data", "client_id")
    assert list(told) == [
        (f"campaign.{state}", uuid.UUID(campaign["id"]), {"by": "client"}, None)
        for state in ("paused", "running", "cancelled")
    ]


@pytest.mark.parametrize(("asked", "state", "flow"), [("pause", "paused", "paused"), ("resume", "running", "on")])
def test_what_is_asked_while_it_loads_holds_when_it_is_whole(
    now: dt.datetime, asked: str, state: str, flow: str
) -> None:
    row = CampaignFactory.create(state="loading", loaded_at=None, starts=asked == "pause")
    FlowFactory.create(client=row.client, campaign=row, lane="promo", state="paused")
    own = Campaign.objects.filter(pk=row.pk)
    assert campaigns.change(own, Change(asked), now=now, by="x")
    assert not campaigns.change(own, Change(asked), now=now, by="x")
    assert (own.get().state, flow_states()) == ("loading", ["paused"])
    campaigns.finish(own.get(), Lines(io.BytesIO(), seed=""), now=now)
    assert (own.get().state, flow_states()) == (state, [flow])


def test_a_pause_of_ten_thousand_messages_touches_one_flow_and_one_campaign(api: ClientApi) -> None:
    campaign = loaded(api, [LINE] * 10_000)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMP TABLE stood AS SELECT id, ctid AS at FROM otp_messages_message")
        with CaptureQueriesContext(connection) as captured:
            assert ask(api, campaign, "pause").status_code == 200
        cursor.execute("SELECT count(*) FROM stood JOIN otp_messages_message m USING (id) WHERE m.ctid = at")
        assert cursor.fetchone() == (10_000,)
    writes = [query["sql"] for query in captured if query["sql"].startswith("UPDATE")]
    assert len(writes) == 2
    assert not any("otp_messages_message" in sql or "otp_messages_ready" in sql for sql in writes)
    assert flow_states() == ["paused"]


@pytest.mark.parametrize("what", ["", "errors/"])
def test_another_client_does_not_see_it(api: ClientApi, campaign: dict[str, Any], now: dt.datetime, what: str) -> None:
    stranger = ClientApi(ClientFactory.create(), now=now)
    foreign = stranger.get(f"{campaign['links']['self']}{what}")
    unknown = stranger.get(f"{CAMPAIGNS}{uuid.uuid4()}/{what}")
    assert (foreign.status_code, foreign.content) == (404, unknown.content)
    assert body(stranger.get(CAMPAIGNS))["results"] == []
    assert api.get(f"{campaign['links']['self']}{what}").status_code == 200


@pytest.mark.parametrize("asked", Change)
def test_another_client_does_not_change_it(
    api: ClientApi, campaign: dict[str, Any], now: dt.datetime, asked: Change
) -> None:
    stranger = ClientApi(ClientFactory.create(), now=now)
    assert ask(stranger, campaign, asked).status_code == 404
    assert flow_states() == ["on", "on"]
    assert not Event.objects.exists()


def test_without_the_scope_nothing_opens(api: ClientApi, campaign: dict[str, Any], now: dt.datetime) -> None:
    nobody = ClientApi(api.client, now=now, scopes=())
    answers = [ask(nobody, campaign, asked) for asked in Change]
    answers += [nobody.get(path) for path in (CAMPAIGNS, *campaign["links"].values())]
    assert {answer.status_code for answer in answers} == {403}


# --- what is cancelled leaves the queue -----------------------------------------------------------------------------


def test_queued_messages_of_cancelled_flows_end(now: dt.datetime) -> None:
    row = CampaignFactory.create()
    flow = FlowFactory.create(client=row.client, campaign=row, lane="promo", state="cancelled")
    gone = queued_in(flow, reference="a")
    kept = [QueuedFactory.create(flow=FlowFactory.create(state=state, pools=[state])) for state in ("on", "paused")]
    assert expiry.cancel_due(now=now) == 1
    gone.refresh_from_db()
    assert (gone.status, gone.final_reason, gone.finished_at) == ("cancelled", "cancelled", now)
    assert sorted(Ready.objects.values_list("message_id", flat=True)) == sorted(message.pk for message in kept)
    event = Event.objects.get()
    assert (event.type, event.subject_uuid, event.client_id) == ("message.cancelled", gone.uuid, gone.client_id)
    assert event.data == {
        "status": "cancelled",
        "lane": "promo",
        "reference": "a",
        "reason": "cancelled",
        "error_code": None,
    }
    assert expiry.cancel_due(now=now) == 0


def test_they_end_in_batches_across_flows(now: dt.datetime) -> None:
    row = CampaignFactory.create()
    for pool in ("es", "pt"):
        flow = FlowFactory.create(client=row.client, campaign=row, lane="promo", pools=[pool], state="cancelled")
        for _ in range(2):
            queued_in(flow)
    assert [expiry.cancel_due(now=now, batch=3) for _ in range(3)] == [3, 1, 0]
    assert campaigns.counts([row])[row.pk]["cancelled"] == 4


def test_what_waits_ends_when_its_time_has_come(now: dt.datetime) -> None:
    flow = FlowFactory.create(state="cancelled")
    waiting = MessageFactory.create(flow=flow, status="waiting", run_after=now)
    sending = MessageFactory.create(flow=flow, status="sending")
    assert expiry.cancel_due(now=now) == 0
    assert expiry.stage_due(now=now) == 1
    assert expiry.cancel_due(now=now) == 1
    assert set(Message.objects.values_list("id", "status")) == {(waiting.pk, "cancelled"), (sending.pk, "sending")}


@pytest.mark.django_db(transaction=True)
def test_a_sweep_passes_over_what_another_one_holds(now: dt.datetime) -> None:
    flow = FlowFactory.create(state="cancelled")
    QueuedFactory.create_batch(3, flow=flow)
    with transaction.atomic():
        assert expiry.cancel_due(now=now, batch=2) == 2
        assert Racer(lambda: expiry.cancel_due(now=now)).result() == 1


@pytest.mark.django_db(transaction=True)
def test_a_cancel_waits_for_the_claim_that_holds_its_flow_and_then_nothing_is_claimed(now: dt.datetime) -> None:
    row = CampaignFactory.create()
    flow = FlowFactory.create(client=row.client, campaign=row, lane="promo")
    QueuedFactory.create_batch(3, flow=flow, lane="promo", first_attempt_by=None)
    ServerFactory.create_batch(3)
    with transaction.atomic():
        assert len(claimed(flow)) == 1
        own = Campaign.objects.filter(pk=row.pk)
        cancel: Racer[bool] = Racer(lambda: campaigns.change(own, Change.CANCEL, now=now, by="x"))
        cancel.wait_until_blocked()
    assert cancel.result()
    assert claimed(flow, n=3) == []
    assert Attempt.objects.count() == 1


# --- how far it is ----------------------------------------------------------------------------------------------------


def test_counts_follow_whoever_moves_a_message(now: dt.datetime) -> None:
    row = CampaignFactory.create()
    flow = FlowFactory.create(client=row.client, campaign=row, lane="promo")
    first, second, third, fourth = (queued_in(flow) for _ in range(4))
    QueuedFactory.create()  # of no campaign
    lifecycle.cancel(row.client_id, first.uuid, now=now)
    Message.objects.filter(pk__in=[second.pk, third.pk]).update(status=MessageStatus.SENDING)
    Message.objects.filter(pk=second.pk).update(status=MessageStatus.DELIVERED, finished_at=now)
    Message.objects.filter(pk=third.pk).update(attempts_made=1)
    Message.objects.filter(campaign=None).update(status=MessageStatus.SENDING)
    counts = campaigns.counts([row])[row.pk]
    assert {status: n for status, n in counts.items() if n} == {
        "queued": 1,
        "cancelled": 1,
        "sending": 1,
        "delivered": 1,
    }
    assert fourth.status == "queued"


def test_folding_keeps_the_sums(now: dt.datetime) -> None:
    row, other = CampaignFactory.create_batch(2)
    for n in range(6):
        CampaignCount.objects.create(campaign=row, status="queued", n=n)
        CampaignCount.objects.create(campaign=row, status="sending", n=(-1) ** n)
    CampaignCount.objects.create(campaign=other, status="queued", n=1)
    before = campaigns.counts([row, other])
    assert campaigns.fold_counts(many=5) == 12
    assert campaigns.counts([row, other]) == before
    assert CampaignCount.objects.count() == 2
    assert campaigns.fold_counts(many=5) == 0
