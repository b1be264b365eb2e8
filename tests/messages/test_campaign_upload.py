"""An upload becomes messages of the promo lane; nothing is sent before it is whole."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from otp_service.messages import campaign_api
from otp_service.messages.models import Campaign, Flow, Message, Ready
from tests.messages.campaign_calls import CAMPAIGNS, LINE, loaded, loaded_csv, ndjson, refusals, upload
from tests.messages.client_api import ClientApi, body, code, fields

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def uploads_at_noon(now: dt.datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otp_service.messages.campaign_api.utc_now", lambda: now)


def test_each_line_is_a_message_of_the_promo_lane(api: ClientApi, now: dt.datetime) -> None:
    campaign = loaded(api, [{**LINE, "reference": "a"}, {**LINE, "to": "+351912345678"}])
    assert (campaign["state"], campaign["accepted"], campaign["refused"]) == ("running", 2, 0)
    assert campaign["messages"] == {**campaign["messages"], "queued": 2}
    first, second = Message.objects.order_by("id")
    assert (first.lane, first.to, first.text, first.reference) == ("promo", LINE["to"], LINE["text"], "a")
    assert (second.expires_at, second.max_attempts) == (now + dt.timedelta(days=1), 2)
    assert set(Ready.objects.values_list("message_id", "flow_id")) == {
        (first.pk, first.flow_id),
        (second.pk, second.flow_id),
    }
    assert {(tuple(flow.pools), flow.state) for flow in Flow.objects.all()} == {
        (("es", "zp", "vj"), "on"),
        (("pt", "es"), "on"),
    }


def test_a_line_becomes_what_it_would_be_if_it_was_posted_alone(api: ClientApi) -> None:
    line = {
        **LINE,
        "channels": ["sms", "push", "imessage"],
        "sender_name": "ACME",
        "region": "pt",
        "ttl_s": 600,
        "first_attempt_within_s": 60,
        "on_late_first": "expire",
        "max_attempts": 1,
        "max_routes": 4,
        "on_unknown": "race",
        "metadata": {"a": [1.5, "é"]},
        "reference": "a",
        "addresses": {"push": "token"},
    }
    loaded(api, [line])
    api.send({**line, "lane": "promo"})
    assert {message.addresses for message in Message.objects.all()} == {'{"push": "token"}'}
    own = {"id", "uuid", "to", "text", "addresses", "campaign_id", "flow_id"}
    columns = {field.attname for field in Message._meta.concrete_fields} - own
    uploaded, posted = Message.objects.order_by("id").values(*columns)
    assert uploaded == posted
    assert len(set(Ready.objects.values_list("due_at"))) == 1


def test_csv_says_the_same_as_ndjson(api: ClientApi) -> None:
    campaign = loaded_csv(
        api,
        "\ufeffreference,text,to,channels,ttl_s,metadata,region,addresses,max_routes\r\n"
        'a,"Everything, and\r\n""more"" é",+34600000000,"sms, push",600,"{""a"": 1}",,"{""push"": ""token""}",1\r\n'
        "\r\n"
        "b,x,+34600000000,,,,pt,,\r\n",
    )
    assert (campaign["accepted"], campaign["refused"], campaign["lines_read"]) == (2, 0, 5)
    first, second = Message.objects.order_by("id")
    assert (first.text, first.channels, first.metadata) == (
        'Everything, and\r\n"more" é',
        ["sms", "push"],
        {"a": 1},
    )
    assert (first.addresses, first.max_routes) == ('{"push": "token"}', 1)
    assert (second.addresses, second.max_routes, second.on_unknown) == (None, 2, "hold")
    assert first.expires_at - first.event_at == dt.timedelta(minutes=10)
    assert (second.reference, second.channels, second.region) == ("b", ["imessage", "sms"], "pt")


def test_blank_lines_and_a_last_line_without_an_end_are_no_fault(api: ClientApi) -> None:
    campaign = loaded(api, [LINE, b"\n", b" \r\n", json.dumps(LINE).encode()])
    assert (campaign["accepted"], campaign["refused"], campaign["lines_read"]) == (2, 0, 4)


@pytest.mark.parametrize(("start", "state", "flow"), [("true", "running", "on"), ("false", "paused", "paused")])
def test_starts_when_it_is_whole_unless_it_is_to_wait(api: ClientApi, start: str, state: str, flow: str) -> None:
    campaign = loaded(api, [LINE], start=start, weight="7", name="Autumn")
    assert (campaign["state"], campaign["weight"], campaign["name"]) == (state, 7, "Autumn")
    assert Flow.objects.values_list("state", "weight", "lane").get() == (flow, 7, "promo")


def test_a_posted_message_is_in_a_flow_of_its_own(api: ClientApi) -> None:
    loaded(api, [LINE])
    api.send({**LINE, "lane": "promo"})
    assert Flow.objects.count() == 2
    assert list(Message.objects.order_by("id").values_list("campaign", flat=True)) == [Campaign.objects.get().pk, None]


# --- refused as a whole ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"weight": "0"}, "weight"),
        ({"weight": "101"}, "weight"),
        ({"start": "yes"}, "start"),
        ({"lane": "otp"}, "lane"),
    ],
)
def test_odd_parameter_is_refused(api: ClientApi, query: dict[str, str], field: str) -> None:
    answer = upload(api, ndjson([LINE]), **query)
    assert (answer.status_code, list(fields(answer))) == (400, [field])
    assert not Campaign.objects.exists()


def test_key_is_needed(api: ClientApi) -> None:
    answer = upload(api, ndjson([LINE]), key="")
    assert (answer.status_code, fields(answer)) == (400, {"Idempotency-Key": "required"})
    assert not Campaign.objects.exists()


@pytest.mark.parametrize("kind", ["application/x-ndjson", "text/csv"])
def test_empty_body_is_refused(api: ClientApi, kind: str) -> None:
    answer = upload(api, b"", kind=kind)
    assert answer.status_code == 400
    assert not Campaign.objects.exists()


@pytest.mark.parametrize(
    "header",
    ["to", "text,reference", "to,text,to", "to,text,lane", "to;text", "\n", '"to', "+34600000000,Hello", "\xff"],
)
def test_csv_without_a_good_header_is_refused(api: ClientApi, header: str) -> None:
    answer = upload(api, f"{header}\n+34600000000,x\n".encode("latin-1"), kind="text/csv")
    assert (answer.status_code, fields(answer)) == (400, {"": "bad_header"})
    assert not Campaign.objects.exists()
    assert b"346" not in answer.content


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "multipart/form-data"])
def test_other_kinds_of_bodies_are_not_taken(api: ClientApi, kind: str) -> None:
    answer = upload(api, ndjson([LINE]), kind=kind)
    assert (answer.status_code, code(answer)) == (415, "unsupported_media_type")


# --- the list -------------------------------------------------------------------------------------------------


def test_campaigns_are_listed_newest_first_in_as_many_queries(api: ClientApi, django_assert_num_queries: Any) -> None:
    ids = [loaded(api, [LINE] * n, key=str(n))["id"] for n in (1, 2, 3)]
    with django_assert_num_queries(3):  # the key, the campaigns, their counts
        rows = body(api.get(CAMPAIGNS))["results"]
    assert [row["id"] for row in rows] == ids[::-1]
    assert [row["messages"]["queued"] for row in rows] == [3, 2, 1]
    assert body(api.get(CAMPAIGNS, state="paused"))["results"] == []


def test_a_running_campaign_names_its_report(api: ClientApi) -> None:
    assert refusals(api, loaded(api, [LINE])) == []


def test_more_uploads_at_once_than_a_process_reads_are_put_off(api: ClientApi) -> None:
    with campaign_api._one_of_few(), campaign_api._one_of_few():
        answer = upload(api, ndjson([LINE]))
    assert (answer.status_code, code(answer), answer["Retry-After"]) == (503, "too_many_uploads", "30")
    assert not Campaign.objects.exists()
    assert upload(api, ndjson([LINE])).status_code == 202


@pytest.mark.parametrize(
    ("kind", "headers"),
    [
        pytest.param("application/x-ndjson", {"Content-Encoding": "gzip"}, id="compressed"),
        pytest.param("application/x-ndjson; charset=utf-16", {}, id="another character set"),
        pytest.param("*/*", {}, id="anything"),
    ],
)
def test_an_upload_that_would_be_read_wrongly_uses_up_no_key(
    api: ClientApi, kind: str, headers: dict[str, str]
) -> None:
    data = ndjson([LINE])
    given = {"Idempotency-Key": "k", **headers}
    answer = api.call("POST", CAMPAIGNS, data, content_type=kind, headers=given, query={})
    assert (answer.status_code, code(answer)) == (415, "unsupported_media_type")
    assert upload(api, data).status_code == 202


def test_names_of_the_character_set_that_is_read_are_taken(api: ClientApi) -> None:
    assert upload(api, ndjson([LINE]), kind="application/x-ndjson; charset=UTF-8").status_code == 202
