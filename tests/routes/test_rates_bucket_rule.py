"""The bucket of one process, for when nothing is shared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otp_service.routes.rates import Bucket, burst


@pytest.mark.parametrize(("rate", "tokens"), [(0.1, 1), (1, 1), (1.5, 1.5), (50, 50)])
def test_holds_the_tokens_of_a_second_and_one_at_least(rate: float, tokens: float) -> None:
    assert burst(rate) == tokens


@pytest.mark.parametrize(
    ("rate", "after", "wanted", "granted"),
    [
        pytest.param(10, 0.0, 5, 0, id="it begins empty"),
        pytest.param(10, 0.09, 5, 0, id="just before a token"),
        pytest.param(10, 0.1, 5, 1, id="with a token"),
        pytest.param(10, 0.3, 2, 2, id="no more than are wanted"),
        pytest.param(10, 60.0, 50, 10, id="those of a second"),
        pytest.param(0.1, 9.9, 1, 0, id="slow and early"),
        pytest.param(0.1, 60.0, 9, 1, id="slow and late"),
        pytest.param(10, -5.0, 5, 0, id="a time that was read before"),
    ],
)
def test_grants_what_came_in_since(rate: float, after: float, wanted: int, granted: int) -> None:
    assert Bucket(0.0).take(wanted, rate, after) == granted


def test_a_time_that_was_read_before_counts_no_time_twice() -> None:
    bucket = Bucket(0.0)
    assert [bucket.take(99, 10, at) for at in (1.0, 0.5, 1.0)] == [10, 0, 0]


def test_what_is_left_and_what_is_given_back_is_there_the_next_time() -> None:
    bucket = Bucket(0.0)
    assert bucket.take(4, 10, 1.0) == 4
    assert bucket.take(10, 10, 1.0) == 6
    bucket.give_back(3)
    assert bucket.take(10, 10, 1.0) == 3


def test_never_holds_more_than_a_second_of_what_is_given_back() -> None:
    bucket = Bucket(0.0)
    bucket.take(1, 10, 1.0)
    bucket.give_back(1_000)
    assert bucket.take(1_000, 10, 1.0) == 10


@given(
    rate=st.floats(0.01, 1_000),
    steps=st.lists(st.tuples(st.floats(0, 10), st.integers(0, 2_000), st.floats(0, 1)), max_size=30),
)
def test_grants_no_more_than_its_rate_and_one_burst(rate: float, steps: list[tuple[float, int, float]]) -> None:
    bucket, at, used = Bucket(0.0), 0.0, 0
    for pause, wanted, share in steps:
        at += pause
        granted = bucket.take(wanted, rate, at)
        unused = int(granted * share)
        bucket.give_back(unused)
        used += granted - unused
        assert used <= rate * at + burst(rate) + 1e-6


def test_what_is_kept_stays_for_those_who_ask_without_keeping() -> None:
    bucket = Bucket(0.0)
    assert [bucket.take(99, 10, 1.0, keep=keep) for keep in (3, 3, 0)] == [7, 0, 3]
