"""Which server carries which message."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servers.assignment import assign, fits


@dataclass(frozen=True)
class Wish:
    """A message that any server of pool es may carry, unless a test says otherwise."""

    key: int = 1
    pools: tuple[str, ...] = ("es",)
    recipient: str = "+34600000000"
    excluded_servers: frozenset[int] = frozenset()
    excluded_hosts: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Candidate:
    """A server of pool es on host 1."""

    id: int
    host_id: int = 1
    region: str = "es"
    handle: str = "a@example.org"


def given_ids(
    wishes: Sequence[Wish], candidates: Sequence[Candidate], sticky: Mapping[Hashable, int] | None = None
) -> dict[Hashable, int]:
    return {key: server.id for key, server in assign(wishes, candidates, sticky or {}).items()}


FIRST, SECOND = Candidate(1), Candidate(2)
OTHER_HOST = Candidate(3, host_id=2)
OTHER_POOL = Candidate(4, host_id=3, region="zp")


@pytest.mark.parametrize(
    ("wish", "candidates", "sticky", "expected"),
    [
        pytest.param(Wish(), [FIRST, SECOND], None, 1, id="the least recently used"),
        pytest.param(Wish(), [], None, None, id="nothing is free"),
        pytest.param(Wish(), [FIRST, SECOND], 2, 2, id="the sticky one first"),
        pytest.param(Wish(), [FIRST], 2, 1, id="the sticky one is not free"),
        pytest.param(Wish(excluded_servers=frozenset({2})), [FIRST, SECOND], 2, 1, id="the sticky one was tried"),
        pytest.param(Wish(), [FIRST, OTHER_POOL], 4, 1, id="the sticky one is of a pool that is not asked for"),
        pytest.param(Wish(excluded_servers=frozenset({1})), [FIRST, SECOND], None, 2, id="not one that was tried"),
        pytest.param(Wish(excluded_servers=frozenset({1})), [FIRST], None, None, id="only one that was tried"),
        pytest.param(Wish(recipient="a@example.org"), [FIRST], None, None, id="not to itself"),
        pytest.param(Wish(excluded_hosts=frozenset({1})), [FIRST, OTHER_HOST], None, 3, id="another host if free"),
        pytest.param(Wish(excluded_hosts=frozenset({1})), [FIRST], None, 1, id="the same host if no other"),
        pytest.param(
            Wish(excluded_hosts=frozenset({1})), [FIRST, SECOND, OTHER_HOST], 2, 3, id="another host before sticky"
        ),
        pytest.param(Wish(), [OTHER_POOL], None, None, id="not of a pool that is not asked for"),
        pytest.param(Wish(pools=("es", "zp")), [OTHER_POOL, FIRST], None, 1, id="the preferred pool first"),
        pytest.param(Wish(pools=("es", "zp")), [OTHER_POOL], None, 4, id="the next pool"),
        pytest.param(
            Wish(pools=("es", "zp"), excluded_hosts=frozenset({1})),
            [FIRST, OTHER_POOL],
            None,
            4,
            id="another host before the preferred pool",
        ),
        pytest.param(Wish(pools=()), [FIRST], None, None, id="no pool at all"),
    ],
)
def test_a_message_gets_the_server_that_suits_it_best(
    wish: Wish, candidates: list[Candidate], sticky: int | None, expected: int | None
) -> None:
    given_to = given_ids([wish], candidates, {} if sticky is None else {wish.key: sticky})
    assert given_to.get(wish.key) == expected


def test_the_sticky_server_of_a_later_message_is_left_to_it() -> None:
    assert given_ids([Wish(1), Wish(2)], [FIRST, SECOND], {2: 1}) == {1: 2, 2: 1}


def test_two_messages_to_one_recipient_do_not_share_its_server() -> None:
    assert given_ids([Wish(1), Wish(2)], [FIRST, SECOND], {1: 2, 2: 2}) == {1: 2, 2: 1}


wishes = st.lists(
    st.builds(
        Wish,
        key=st.integers(1, 30),
        pools=st.lists(st.sampled_from(["es", "zp", "vj"]), unique=True).map(tuple),
        recipient=st.sampled_from(["a", "b", "c"]),
        excluded_servers=st.frozensets(st.integers(1, 12), max_size=3),
        excluded_hosts=st.frozensets(st.integers(1, 4), max_size=2),
    ),
    unique_by=lambda wish: wish.key,
    max_size=15,
)
candidates = st.lists(
    st.builds(
        Candidate,
        id=st.integers(1, 12),
        host_id=st.integers(1, 4),
        region=st.sampled_from(["es", "zp", "ua"]),
        handle=st.sampled_from(["a", "b", "z"]),
    ),
    unique_by=lambda server: server.id,
    max_size=12,
)


@given(wishes, candidates, st.dictionaries(st.integers(1, 30), st.integers(1, 15)))
def test_no_server_twice_none_that_does_not_fit_and_none_left_over(
    wishes: list[Wish], candidates: list[Candidate], sticky: dict[Hashable, int]
) -> None:
    assigned = assign(wishes, candidates, sticky)
    taken = [server.id for server in assigned.values()]
    free = [server for server in candidates if server.id not in taken]
    assert len(taken) == len(set(taken))
    for wish in wishes:
        server = assigned.get(wish.key)
        if server is None:
            assert not any(fits(wish, left) for left in free)
            continue
        assert server.region in wish.pools
        assert server.id not in wish.excluded_servers
        assert server.handle != wish.recipient
        if server.host_id in wish.excluded_hosts:
            assert all(left.host_id in wish.excluded_hosts for left in free if fits(wish, left))
