"""Lines that are wrong are refused one by one, and named in a report that repeats nothing of them."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from django.http import StreamingHttpResponse

from otp_service.messages import campaign_load
from otp_service.messages.models import CampaignRefusal, Message
from tests.messages.campaign_calls import LINE, loaded, loaded_csv, refusals
from tests.messages.client_api import ClientApi

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(b"{\n", ("", "not_json"), id="broken JSON"),
        pytest.param(b'{"to": "+34600000000", "text": NaN}\n', ("", "not_json"), id="NaN"),
        pytest.param(
            b'{"to": "+34600000000", "text": "x", "to": "+34600000001"}\n', ("", "not_json"), id="a name twice"
        ),
        pytest.param(b'{"a": ' * 900 + b"1" + b"}" * 900 + b"\n", ("", "not_json"), id="900 levels"),
        pytest.param(b"[" * 30_000 + b"\n", ("", "not_json"), id="30,000 brackets"),
        pytest.param(b'{"to": "+34600000000", "text": "\xff"}\n', ("", "not_utf8"), id="broken UTF-8"),
        pytest.param(b'{"to": "+34600000000", "text": "\\ud83d x"}\n', ("", "not_utf8"), id="half a surrogate pair"),
        pytest.param(b"7\n", ("", "not_an_object"), id="no object"),
        pytest.param(b'["+34600000000", "x"]\n', ("", "not_an_object"), id="a list"),
        pytest.param(b'{"text": "%s"}\n' % (b"x" * 70_000), ("", "line_too_long"), id="too long"),
        pytest.param({"text": "x"}, ("to", "required"), id="no recipient"),
        pytest.param({"to": LINE["to"]}, ("text", "required"), id="no text"),
        pytest.param({**LINE, "to": "600000000"}, ("to", "not_international"), id="a national number"),
        pytest.param({**LINE, "to": "+34000000000"}, ("to", "not_valid"), id="nobody's number"),
        pytest.param({**LINE, "to": 34600000000}, ("to", "invalid"), id="a number that is no string"),
        pytest.param({**LINE, "text": " \u200b"}, ("text", "blank"), id="nothing to read"),
        pytest.param({**LINE, "text": "x\x07"}, ("text", "control_characters"), id="a bell"),
        pytest.param({**LINE, "text": "x" * 1_601}, ("text", "max_length"), id="a text that is too long"),
        pytest.param({**LINE, "reference": "x" * 256}, ("reference", "max_length"), id="a long reference"),
        pytest.param({**LINE, "reference": None}, ("reference", "null"), id="null"),
        pytest.param({**LINE, "lane": "otp"}, ("lane", "unknown_field"), id="a lane"),
        pytest.param({**LINE, "region": "mars"}, ("region", "invalid_choice"), id="no pool of ours"),
        pytest.param({**LINE, "ttl_s": 1}, ("ttl_s", "lifetime_out_of_range"), id="too short a life"),
        pytest.param({**LINE, "ttl_s": "600"}, ("ttl_s", "invalid"), id="a string for a number"),
        pytest.param({**LINE, "expires_at": "2020-01-01T00:00:00Z"}, ("expires_at", "already_expired"), id="over"),
        pytest.param({**LINE, "channels": ["push"]}, ("addresses", "address_missing"), id="push to nowhere"),
        pytest.param(
            {**LINE, "addresses": {"push": "token"}}, ("channels", "channel_missing"), id="an address for nothing"
        ),
        pytest.param(
            {**LINE, "channels": ["push"], "addresses": {"push": ""}}, ("addresses.push", "blank"), id="no token"
        ),
        pytest.param({**LINE, "sender_name": "ACME,"}, ("sender_name", "invalid"), id="a comma in a name"),
        pytest.param({**LINE, "on_unknown": "drop"}, ("on_unknown", "invalid_choice"), id="no way to go on"),
        pytest.param({**LINE, "supersede_key": "x"}, ("supersede_key", "unknown_field"), id="a supersede_key"),
        pytest.param({**LINE, "metadata": [1]}, ("metadata", "invalid"), id="metadata that is no object"),
        pytest.param({**LINE, "+34600123456": 1}, ("a name", "unknown_field"), id="a number as a name"),
    ],
)
def test_a_bad_line_is_refused_and_those_around_it_are_not(
    api: ClientApi, line: Any, expected: tuple[str, str]
) -> None:
    campaign = loaded(api, [LINE, line, LINE])
    assert (campaign["accepted"], campaign["refused"], campaign["lines_read"]) == (2, 1, 3)
    assert refusals(api, campaign) == [(2, *expected)]
    assert campaign["messages"]["queued"] == Message.objects.count() == 2


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param(b"+34600000000\n", ("", "wrong_columns"), id="a cell too few"),
        pytest.param(b"+34600000000,x,1,2\n", ("", "wrong_columns"), id="a cell too many"),
        pytest.param(b'+34600000000,x"y"z",\n+34600000000,"x"y,\n', ("", "not_csv"), id="odd quotes"),
        pytest.param(b"+34600000000,\xff,\n", ("", "not_utf8"), id="broken UTF-8"),
        pytest.param(b"+34600000000,%s,\n" % (b"x" * 70_000), ("", "line_too_long"), id="too long"),
        pytest.param(b"+34600000000,x,1.5\n", ("ttl_s", "invalid"), id="no whole number"),
        pytest.param(b"+34600000000,,600\n", ("text", "required"), id="an empty cell"),
        pytest.param(b"+34000000000,x,\n", ("to", "not_valid"), id="nobody's number"),
    ],
)
def test_a_bad_row_is_refused_and_those_around_it_are_not(
    api: ClientApi, row: bytes, expected: tuple[str, str]
) -> None:
    campaign = loaded_csv(api, b"to,text,ttl_s\n+34600000000,x,\n" + row + b"+34600000000,x,600\n")
    line = 4 if expected[1] == "not_csv" else 3
    assert refusals(api, campaign) == [(line, *expected)]
    assert campaign["accepted"] == Message.objects.count() == (3 if expected[1] == "not_csv" else 2)


def test_a_quote_that_is_not_closed_takes_what_is_behind_it(api: ClientApi) -> None:
    campaign = loaded_csv(api, 'to,text\n+34600000000,x\n+34600000000,"x\n+34600000000,x\n')
    assert (campaign["accepted"], refusals(api, campaign)) == (1, [(3, "", "not_csv")])


@pytest.mark.parametrize("chunk", [1, 2, 100], ids=lambda chunk: f"{chunk} lines at a time")
def test_a_reference_stands_once(api: ClientApi, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(campaign_load, "CHUNK", chunk)
    lines = [{**LINE, "reference": name, "text": f"{n}"} for n, name in enumerate(["a", "b", "a", "", "", "b"])]
    campaign = loaded(api, lines)
    assert refusals(api, campaign) == [(3, "reference", "repeated"), (6, "reference", "repeated")]
    assert [m.text for m in Message.objects.order_by("id")] == ["0", "1", "3", "4"]
    assert (campaign["accepted"], campaign["messages"]["queued"]) == (4, 4)


def test_another_campaign_has_references_of_its_own(api: ClientApi) -> None:
    line = {**LINE, "reference": "a"}
    assert [loaded(api, [line], key=key)["accepted"] for key in ("1", "2")] == [1, 1]
    assert api.send({**line, "lane": "promo"}).status_code == 202


def test_all_are_counted_and_the_first_ones_are_named(api: ClientApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_load, "MAX_KEPT_REFUSALS", 3)
    monkeypatch.setattr(campaign_load, "CHUNK", 2)
    campaign = loaded(api, [b"\x00\n"] * 7)
    assert (campaign["refused"], campaign["accepted"]) == (7, 0)
    assert [line for line, _, _ in refusals(api, campaign)] == [1, 2, 3]


def test_nothing_of_a_line_is_in_the_report_or_its_rows(api: ClientApi, caplog: pytest.LogCaptureFixture) -> None:
    text, number = "Secret 482913", "+34600482913"
    bad = [
        {"to": number, "text": text, "lane": "otp"},
        {"to": number, "text": text + "\x07"},
        {"to": number + "x", "text": text},
        {text: 1, number: 2},
        b'{"to": "%s", "to": "%s"}\n' % (number.encode(), text.encode()),
        b'{"%s": 1, "%s": 2}\n' % (number.encode(), number.encode()),
        f'{{"{number} {text}"\n'.encode(),
    ]
    campaign = loaded(api, bad)
    assert campaign["refused"] == len(bad)
    kept = json.dumps(list(CampaignRefusal.objects.values("field", "code", "detail")), ensure_ascii=False)
    for secret in (number, "600482913", "482913" if "Secret" not in kept else number):
        assert secret not in kept + caplog.text


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"Your code is 123456": 1, "to": "+34600000000", "text": "x"}\n', id="a name that is not known"),
        pytest.param(b'{"Your code is 123456": 1, "Your code is 123456": 2}\n', id="a name that stands twice"),
        pytest.param(b'{"=HYPERLINK(123456)": 1, "to": "+34600000000", "text": "x"}\n', id="a formula"),
    ],
)
def test_a_name_that_may_be_a_text_is_not_repeated(api: ClientApi, line: bytes) -> None:
    campaign = loaded(api, [line, LINE])
    answer = cast("StreamingHttpResponse", api.get(campaign["links"]["errors"]))
    report = b"".join(answer).decode()
    assert "a name" in report
    assert "123456" not in report
