"""JSON that means one thing only, or the reason why not."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otp_service.core.strict_json import StrictJSONError, loads


def refusal(body: bytes) -> StrictJSONError:
    with pytest.raises(StrictJSONError) as caught:
        loads(body, depth=3, numeral=5)
    return caught.value


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        pytest.param(b'{"a": 1, "a": 1}', 'must name "a" once', id="a name twice, even with one value"),
        pytest.param(b'[{"b": {"a": 1, "\\u0061": 2}}]', 'must name "a" once', id="a name twice, deep, escaped"),
        pytest.param(b"[[[[]]]]", "must not be nested deeper than 3", id="one level too many"),
        pytest.param(b"[" * 100_000, "must not be nested deeper than 3", id="100,000 levels"),
        pytest.param(b"123456", "must not have numbers of more than 5 digits", id="a long numeral"),
        pytest.param(b"1e999", "must not have numbers that are too large to be kept", id="infinity in disguise"),
        pytest.param(b"[NaN]", "must be JSON: NaN is not a JSON number", id="NaN"),
        pytest.param(b"\xff", "must be UTF-8", id="no UTF-8"),
        pytest.param(b"{,", "must be JSON (line 1, column 2)", id="no JSON"),
    ],
)
def test_says_what_is_wrong(body: bytes, detail: str) -> None:
    assert str(refusal(body)) == detail


@pytest.mark.parametrize("body", [b"[[[1]]]", b"12345", b'{"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]}'])
def test_takes_what_is_at_the_limit(body: bytes) -> None:
    assert loads(body, depth=3, numeral=5) == json.loads(body)


def test_a_name_is_repeated_only_so_far_as_it_can_be_answered() -> None:
    assert refusal(b'{"\\ud800": 1, "\\ud800": 2}').name == "?"
    long = b'"' + b"x" * 5_000 + b'"'
    assert refusal(b"{" + long + b":1," + long + b":2}").name == "x" * 64


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9_999, 9_999)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


@given(_JSON)
def test_reads_what_a_usual_reader_reads(document: object) -> None:
    assert loads(json.dumps(document).encode(), depth=64, numeral=64) == document


@given(st.binary())
def test_no_bytes_raise_anything_else(body: bytes) -> None:
    with suppress(StrictJSONError):
        loads(body, depth=3, numeral=5)
