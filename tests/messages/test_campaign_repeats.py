"""One key, one campaign: the same upload again goes on or adds nothing, another one is refused."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpResponse

from otp_service.core.errors import ServiceError
from otp_service.messages import campaign_lines, campaign_load, campaigns
from otp_service.messages.models import Campaign, Client, Flow, Message, Ready
from otp_service.web.fields import keyed_hash, keyed_hashes
from tests.factories import ClientFactory
from tests.messages.campaign_calls import LINE, ask, loaded, ndjson, refusals, upload
from tests.messages.client_api import ClientApi, body, code
from tests.racing import Racer

pytestmark = pytest.mark.django_db
CSV = b"to,text\n+34600000000,1\n+34600000000,2\n+34600000000,3\n+34000000000,4\n+34600000000,5\n"
NDJSON = ndjson({**LINE, "text": str(n)} for n in range(1, 6))


@pytest.fixture(autouse=True)
def two_lines_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_load, "CHUNK", 2)


def cut_off(monkeypatch: pytest.MonkeyPatch, after: int) -> Callable[[], None]:
    """The next upload breaks after so many chunks; returns what lets later ones through."""
    whole, done = campaign_load._store, iter(range(after))

    def store(*given: Any) -> None:
        if next(done, None) is None:
            raise ServiceError("gone", status=503)
        whole(*given)

    monkeypatch.setattr(campaign_load, "_store", store)
    return lambda: monkeypatch.setattr(campaign_load, "_store", whole)


def texts() -> list[str]:
    return [message.text for message in Message.objects.order_by("id")]


def test_same_upload_again_adds_nothing(api: ClientApi) -> None:
    data = ndjson([LINE, b"?\n", LINE])
    first, again = upload(api, data), upload(api, data)
    assert (again.status_code, again["Idempotent-Replayed"]) == (202, "true")
    assert again["Location"] == first["Location"]
    assert body(again) == body(first)
    assert Message.objects.count() == Ready.objects.count() == 2


@pytest.mark.parametrize(("kind", "data"), [("text/csv", CSV), ("application/x-ndjson", NDJSON)])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_upload_that_was_cut_off_is_gone_on_with(
    api: ClientApi, monkeypatch: pytest.MonkeyPatch, kind: str, data: bytes, after: int
) -> None:
    mend = cut_off(monkeypatch, after)
    assert upload(api, data, kind=kind).status_code == 503
    campaign = Campaign.objects.get()
    assert (campaign.state, Message.objects.count()) == ("loading", min(2 * after, 3 if kind == "text/csv" else 4))
    assert set(Flow.objects.values_list("state", flat=True)) <= {"paused"}
    mend()
    answer = upload(api, data, kind=kind)
    assert answer.status_code == 202
    assert not answer.has_header("Idempotent-Replayed")
    expected = ["1", "2", "3", "5"] if kind == "text/csv" else ["1", "2", "3", "4", "5"]
    assert texts() == expected
    assert (body(answer)["state"], body(answer)["accepted"]) == ("running", len(expected))
    assert refusals(api, body(answer)) == ([(5, "to", "not_valid")] if kind == "text/csv" else [])
    assert set(Flow.objects.values_list("state", flat=True)) == {"on"}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda data: data + data, id="longer"),
        pytest.param(lambda data: data[:-10], id="shorter"),
        pytest.param(lambda data: data.replace(b'"1"', b'"7"'), id="another text"),
        pytest.param(lambda data: data.replace(b"\n", b"\r\n", 1), id="other line ends"),
    ],
)
def test_another_upload_with_the_key_is_refused(api: ClientApi, other: Callable[[bytes], bytes]) -> None:
    assert upload(api, NDJSON).status_code == 202
    answer = upload(api, other(NDJSON))
    assert (answer.status_code, code(answer)) == (422, "idempotency_key_reused")
    assert Message.objects.count() == 5


def test_what_was_stored_must_be_the_beginning_of_what_goes_on(api: ClientApi, monkeypatch: pytest.MonkeyPatch) -> None:
    mend = cut_off(monkeypatch, 1)
    upload(api, NDJSON)
    mend()
    for other in (NDJSON.replace(b'"1"', b'"7"'), NDJSON[:20]):
        assert code(upload(api, other)) == "idempotency_key_reused"
    assert Message.objects.count() == 2


@pytest.mark.parametrize("query", [{"name": "x"}, {"weight": "2"}, {"start": "false"}])
def test_other_parameters_with_the_key_are_refused(api: ClientApi, query: dict[str, str]) -> None:
    assert upload(api, NDJSON).status_code == 202
    assert code(upload(api, NDJSON, **query)) == "idempotency_key_reused"


def test_upload_of_before_a_change_of_hash_keys_is_known(api: ClientApi, settings: Any) -> None:
    campaign = loaded(api, [LINE])
    settings.HASH_KEYS = {"new": b"n" * 32, **settings.HASH_KEYS}
    for cached in (keyed_hash, keyed_hashes):
        cached.cache_clear()
    try:
        assert body(upload(api, ndjson([LINE])))["id"] == campaign["id"]
    finally:
        for cached in (keyed_hash, keyed_hashes):
            cached.cache_clear()


def test_blank_upload_is_a_campaign_without_messages(api: ClientApi) -> None:
    first, again = upload(api, b"\n\n"), upload(api, b"\n\n")
    assert (body(first)["accepted"], body(first)["state"]) == (0, "running")
    assert again["Idempotent-Replayed"] == "true"


def test_a_cancelled_campaign_is_not_gone_on_with(api: ClientApi, monkeypatch: pytest.MonkeyPatch) -> None:
    mend = cut_off(monkeypatch, 1)
    upload(api, NDJSON)
    mend()
    link = f"/api/v1/campaigns/{Campaign.objects.get().uuid}/"
    assert body(ask(api, {"links": {"self": link}}, "cancel"))["state"] == "cancelled"
    for _ in range(2):
        answer = upload(api, NDJSON)
        assert (answer.status_code, code(answer)) == (409, "campaign_cancelled")
    assert Message.objects.count() == 2


def test_another_clients_key_is_free(api: ClientApi, now: dt.datetime) -> None:
    stranger = ClientApi(ClientFactory.create(), now=now)
    assert [upload(one, NDJSON).status_code for one in (api, stranger)] == [202, 202]
    assert Message.objects.count() == 10


# --- beside another upload ---------------------------------------------------------------------------------------


def begun(client: Client, now: dt.datetime) -> tuple[Campaign, campaign_lines.Lines]:
    asked = campaigns.NewCampaign(key="k", form="ndjson")
    lines = campaign_lines.Lines(io.BytesIO(NDJSON), seed=asked.seed)
    return campaigns.begin(client.pk, asked, lines, now=now), lines


@pytest.mark.django_db(transaction=True)
def test_of_two_uploads_at_once_one_stores_each_line(
    api: ClientApi, now: dt.datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is told so; nothing is stored twice, and nothing is left out."""
    whole = campaign_load._insert
    others: list[Racer[HttpResponse]] = []

    def insert_beside_another(*given: Any) -> list[int]:
        if not others:
            others.append(Racer(lambda: upload(api, NDJSON)))
            others[0].wait_until_blocked()
        return whole(*given)

    monkeypatch.setattr(campaign_load, "_insert", insert_beside_another)
    campaign, lines = begun(api.client, now)
    campaign_load.load(campaign, lines, campaign_lines.ndjson(lines), now=now)
    campaigns.finish(campaign, lines, now=now)
    answer = others[0].result()
    assert (answer.status_code, code(answer), answer["Retry-After"]) == (409, "upload_in_progress", "5")
    assert texts() == ["1", "2", "3", "4", "5"]
    assert upload(api, NDJSON)["Idempotent-Replayed"] == "true"


def test_an_upload_that_another_one_overtook_stores_nothing_more(api: ClientApi, now: dt.datetime) -> None:
    slow, slow_lines = begun(api.client, now)
    assert upload(api, NDJSON).status_code == 202
    with pytest.raises(campaign_load.UploadOvertaken):
        campaign_load.load(slow, slow_lines, campaign_lines.ndjson(slow_lines), now=now)
    with pytest.raises(campaign_load.UploadOvertaken):
        campaigns.finish(slow, slow_lines, now=now)
    assert texts() == ["1", "2", "3", "4", "5"]
