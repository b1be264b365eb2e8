"""Whatever happens to a server, its row is legal, and its history tells how it got there."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from servers.cooldown import check_cooldown_servers
from servers.deliverability_limits import record_delivery, record_failed_send, set_need_check
from servers.hosts import set_signed_in
from servers.models import Server, ServerStatusHistory
from servers.rules import LADDERS, NeedCheckPath, Status
from tests.factories import NOON, GroupFactory, ServerFactory

FOLLOWED = ("status", "signed_in", "failed_in_row", "cooldown", "cooldown_times", "fail_open_streak")

steps = st.lists(
    st.tuples(
        st.sampled_from(["fail", "fail", "fail", "last", "deliver", "sweep", "sweep", "sign", "need_check"]),
        st.sampled_from([0, 1, 30, 120, 840]),  # minutes that pass before it
        st.booleans(),
    ),
    max_size=16,
)
groups = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "failed_in_row": st.integers(0, 3),
            "cooldown_delay_to": st.sampled_from([0, 10, 45]),
            "reset_rule": st.sampled_from(["", "either", "since_release"]),
        }
    ),
)


def take(step: str, flag: bool, server: Server, now: dt.datetime, rng: random.Random) -> None:
    match step:
        case "fail" | "last":
            record_failed_send(server.pk, now=now, reason="message_failed", count=step == "fail", rng=rng)
        case "deliver":
            record_delivery(server.pk, now=now, recipient_hash=b"r" * 32)
        case "sweep":
            check_cooldown_servers(now=now, rng=rng)
        case "sign":
            set_signed_in(server.host_id, server.unit, signed_in=flag, now=now)
        case "need_check" if flag:
            set_need_check(server.pk, now=now, path=NeedCheckPath.ADMIN)


class ServerHealth(TestCase):
    @settings(max_examples=40, deadline=None)
    @given(steps=steps, group=groups, preheating=st.booleans(), seed=st.integers(0, 1_000))
    def test_the_row_is_legal_and_equals_the_replay_of_its_history(
        self, steps: list[tuple[str, int, bool]], group: dict[str, Any] | None, preheating: bool, seed: int
    ) -> None:
        server = ServerFactory.create(preheating=preheating, preheat_started_at=NOON if preheating else None)
        if group is not None:
            server.groups.add(GroupFactory.create(**group, cooldown_delay_from=5))
        before = {name: getattr(server, name) for name in FOLLOWED}
        now, rng = NOON, random.Random(seed)
        for step, minutes, flag in steps:
            now += dt.timedelta(minutes=minutes)
            take(step, flag, server, now, rng)
            server.refresh_from_db()
            self.check_legal(server)
        assert replay(before, server) == {name: getattr(server, name) for name in FOLLOWED}

    def check_legal(self, server: Server) -> None:
        assert min(server.failed_in_row, server.cooldown_times, server.fail_open_streak) >= 0
        assert server.cooldown_times <= len(LADDERS["standard"])
        assert server.cooldown == (server.cooldown_start_date is not None) == (server.cooldown_end_date is not None)
        assert not (server.cooldown and server.status == Status.NEED_CHECK)
        if server.cooldown:
            assert server.cooldown_times >= 1
            assert server.cooldown_reason


def replay(state: dict[str, Any], server: Server) -> dict[str, Any]:
    """What the rows of history make of a state; each must start where the one before it ended."""
    for row in ServerStatusHistory.objects.filter(server=server).order_by("id"):
        for name in FOLLOWED:
            assert row.data["old"].get(name, state[name]) == state[name], (row.event, name)
        state = state | {name: value for name, value in row.data["new"].items() if name in FOLLOWED}
    return state
