"""Bodies and addresses that are refused before anybody looks at a message."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otp_service.messages.models import Message
from tests.messages.client_api import LEAST, MESSAGES, ClientApi, code

NESTED = b'{"to": "+34600000000", "text": "x", "metadata": ' + b"[" * 30_000 + b"]" * 30_000 + b"}"
NEAR_THE_LIMIT = b'{"to": "+34600000000", "text": "x", "metadata": ' + b'{"a":' * 900 + b"1" + b"}" * 901


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"{", id="broken JSON"),
        pytest.param(b"to=%2B34600000000&text=x", id="a form"),
        pytest.param(b'{"to": "+34600000000", "text": "x", "max_attempts": NaN}', id="NaN"),
        pytest.param(b'{"to": "+34600000000", "text": "x", "metadata": {"a": -Infinity}}', id="infinity"),
        pytest.param(b'{"to": "+34600000000", "text": "x", "metadata": {"a": 1e999}}', id="a number beyond floats"),
        pytest.param(
            b'{"to": "+34600000000", "text": "x", "metadata": {"a": 1%s}}' % (b"0" * 5_000), id="5,000 digits"
        ),
        pytest.param(b'{"to": "+34600000000", "text": "\xff"}', id="no UTF-8"),
        pytest.param(b'{"to": "+34600000000", "text": "\\ud83d code"}', id="a lone surrogate in the text"),
        pytest.param(b'{"to": "+34600000000", "text": "x", "\\udfff": 1}', id="a lone surrogate in a name"),
        pytest.param(NESTED, id="60,000 brackets"),
        pytest.param(b'{"to": "+34600000000", "text": "x", "to": "+34600000000"}', id="a name twice"),
        pytest.param(
            b'{"to": "+34600000000", "text": "x", "metadata": {"a": 1, "\\u0061": 2}}', id="a name twice within"
        ),
    ],
)
def test_body_that_is_no_json_is_refused(api: ClientApi, data: bytes) -> None:
    answer = api.call("POST", MESSAGES, data)
    assert (answer.status_code, code(answer)) == (400, "parse_error")
    assert not Message.objects.exists()


@pytest.mark.parametrize(
    ("name", "shown"), [("to", "to"), ("ttl_s", "ttl_s"), ("\\ud800", "?"), ("x" * 1_000, "x" * 64)]
)
def test_name_that_stands_twice_is_told(api: ClientApi, name: str, shown: str) -> None:
    answer = api.call("POST", MESSAGES, f'{{"{name}": 1, "{name}": 2}}')
    assert (answer.status_code, code(answer)) == (400, "parse_error")
    assert json.loads(answer.content)["detail"] == f'The body must name "{shown}" once.'


def test_nesting_that_can_be_parsed_is_refused_too(api: ClientApi) -> None:
    assert api.call("POST", MESSAGES, NEAR_THE_LIMIT).status_code == 400


@pytest.mark.parametrize(("size", "status"), [(65_536, 202), (65_537, 413), (1_048_576, 413)])
def test_body_is_bounded_at_64_kib(api: ClientApi, size: int, status: int) -> None:
    data = json.dumps(LEAST).encode()
    answer = api.call("POST", MESSAGES, data + b" " * (size - len(data)))
    assert answer.status_code == status
    assert Message.objects.exists() == (status == 202)


def test_body_that_is_too_large_says_how_much_is_taken(api: ClientApi) -> None:
    answer = api.call("POST", MESSAGES, b" " * 70_000)
    assert (code(answer), json.loads(answer.content)["limit"]) == ("body_too_large", 65_536)


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "x"]
)
def test_body_that_is_not_called_json_is_refused(api: ClientApi, content_type: str) -> None:
    answer = api.call("POST", MESSAGES, json.dumps(LEAST), content_type=content_type)
    assert (answer.status_code, code(answer)) == (415, "unsupported_media_type")
    assert not Message.objects.exists()


def test_json_with_a_charset_is_json(api: ClientApi) -> None:
    answer = api.call("POST", MESSAGES, json.dumps(LEAST), content_type="application/json; charset=utf-8")
    assert answer.status_code == 202


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", MESSAGES, "GET, POST, HEAD, OPTIONS"),
        ("DELETE", MESSAGES, "GET, POST, HEAD, OPTIONS"),
        ("POST", f"{MESSAGES}6c1f9a52-6f6a-4c53-8d6e-1f2f3a4b5c6d/", "GET, HEAD, OPTIONS"),
        ("GET", f"{MESSAGES}6c1f9a52-6f6a-4c53-8d6e-1f2f3a4b5c6d/cancel/", "POST, OPTIONS"),
    ],
)
def test_method_that_is_not_offered_is_named(api: ClientApi, method: str, path: str, allowed: str) -> None:
    answer = api.call(method, path)
    assert (answer.status_code, code(answer), answer["Allow"]) == (405, "method_not_allowed", allowed)


@pytest.mark.parametrize("path", ["/api/v1/", "/api/v1/messages", f"{MESSAGES}42/", "/api/v1/mesages/"])
def test_address_where_nothing_stands_is_a_problem_too(api: ClientApi, path: str) -> None:
    answer = api.get(path)
    assert (answer.status_code, code(answer)) == (404, "not_found")


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
_JSON = st.recursive(_SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
_NAMES = st.sampled_from(
    [
        *("to", "text", "lane", "channels", "region", "ttl_s", "expires_at", "created_at", "first_attempt_within_s"),
        *("on_late_first", "max_attempts", "reference", "metadata", "non_field_errors"),
    ]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=_JSON | st.dictionaries(_NAMES, _JSON).map(lambda drawn: LEAST | drawn))
def test_no_json_makes_it_fail(api: ClientApi, body: object) -> None:
    assert api.call("POST", MESSAGES, json.dumps(body)).status_code in {202, 400}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.fixed_dictionaries(
        {"to": st.just("+34600000000"), "text": st.text()}, optional={"metadata": _JSON, "reference": st.text()}
    )
)
def test_no_text_metadata_or_reference_makes_it_fail(api: ClientApi, body: object) -> None:
    assert api.call("POST", MESSAGES, json.dumps(body)).status_code in {202, 400}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary())
def test_no_bytes_make_it_fail(api: ClientApi, data: bytes) -> None:
    assert api.call("POST", MESSAGES, data).status_code == 400


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    query=st.dictionaries(
        st.sampled_from(["status", "lane", "reference", "to", "created_from", "created_to", "cursor", "limit", "x"]),
        st.text(st.characters(exclude_categories=["Cs"])),
    )
)
def test_no_query_makes_the_list_fail(api: ClientApi, query: dict[str, str]) -> None:
    assert api.get(MESSAGES, **query).status_code in {200, 400}
