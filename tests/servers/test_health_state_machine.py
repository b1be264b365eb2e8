"""Whatever happens to servers, in whatever order: they stand where an independent model says, and history tells it."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.db import transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from otp_service.core.outcomes import ReportedState
from servers.cooldown import check_cooldown_servers, confirm_cooldown_warmup_delivery
from servers.deliverability_limits import record_delivery, record_failed_send
from servers.hosts import set_signed_in
from servers.internal_sends import News, take_news
from servers.models import Group, Host, InternalSend, Server, ServerDelivery, ServerStatusHistory
from servers.preheat import preheat_otp_sender_names
from servers.recovery import carry_out
from servers.recovery_rules import PersonVerdict
from tests.draws import Highest, Lowest
from tests.factories import NOON, GroupFactory, HostFactory, ServerFactory
from tests.servers.health_model import (
    LADDER,
    LEAD,
    PROOF_FOR,
    RESET_WINDOW,
    HealthModel,
    ModelGroup,
    ModelSend,
    ModelServer,
)
from tests.servers.scripted_relay import ACCEPTED, NOT_CONNECTED, SIGNED_OUT, THROTTLED, UNKNOWN, ScriptedRelay

MINUTE, SECOND = dt.timedelta(minutes=1), dt.timedelta(seconds=1)
ANSWERS = {
    "accepted": ACCEPTED,
    "signed out": SIGNED_OUT,
    "throttled": THROTTLED,
    "not connected": NOT_CONNECTED,
    "unclear": UNKNOWN,
}
#: Column → what the model calls it.
COMPARED = {
    "status": "status",
    "signed_in": "signed_in",
    "failed_in_row": "failed_in_row",
    "cooldown": "cooldown",
    "cooldown_times": "cooldown_times",
    "fail_open_streak": "fail_open_streak",
    "preheating": "preheating",
    "cooldown_extensions": "extensions",
    "cooldown_start_date": "start",
    "cooldown_end_date": "end",
    "cooldown_warmup_at": "slot",
    "cooldown_warmup_sent_date": "sent_at",
    "cooldown_warmup_delivered": "proved",
    "released_at": "released_at",
    "next_send_date": "next_send_date",
}
#: What history must tell in full, by the old and new values of its rows.
REPLAYED = ("status", "signed_in", "failed_in_row", "cooldown", "cooldown_times", "fail_open_streak", "preheating")
PATHS = {"ladder", "fail_open", "admin", "chat_preheat"}
#: All but chat-preheat.
VERDICTS = ("recover", "mark_active", "start_preheat", "need_check", "lost", "disable", "delete")
WHOLE_DAY = (dt.time(0), dt.time(23, 59, 59))

which = st.integers(0, 2)  # in no group, in one, in both
moments = st.sampled_from(["slot", "lead", "end", "end", "verdict", "proof", "window", "delivery"])


def name_of(event: int, data: dict[str, Any]) -> str:
    """A row as the model writes it."""
    detail = data.get("verdict", data.get("path", "")) if event in {100, 106} else ""
    return f"{event} {detail}".strip()


class Health(RuleBasedStateMachine):
    """Three servers on one host, a partner on another that receives, and the clock."""

    reached: set[str] = set()  # rows of history, in all runs together

    def __init__(self) -> None:
        super().__init__()
        self._undone = transaction.atomic()
        self._undone.__enter__()

    def teardown(self) -> None:
        transaction.set_rollback(True)
        self._undone.__exit__(None, None, None)

    @initialize(
        high=st.booleans(), preheating=st.booleans(), times=st.integers(0, len(LADDER)), streak=st.integers(0, 2)
    )
    def begin(self, high: bool, preheating: bool, times: int, streak: int) -> None:
        self.now, self.rng = NOON, Highest(0) if high else Lowest(0)
        self.host, self.partner = HostFactory.create(), ServerFactory.create()
        self.host_away = self.partner_away = False
        self.groups = [ModelGroup(1), ModelGroup(2)]
        rows = [GroupFactory.create(priority=group.priority) for group in self.groups]
        self.group_ids = [row.pk for row in rows]
        columns = {"fail_open_streak": streak, "cooldown_times": times}
        started = {"preheating": preheating, "preheat_started_at": NOON if preheating else None}
        self.rows: list[Server] = []
        servers = {}
        for number in range(3):
            row = ServerFactory.create(host=self.host, **columns, **started)
            row.groups.set(rows[:number])
            self.rows.append(row)
            servers[row.pk] = ModelServer(
                self.groups[:number],
                preheating,
                row.next_send_date,
                cooldown_times=times,
                fail_open_streak=streak,
            )
        self.model = HealthModel(servers, high=high)
        self.replayed = {row.pk: {name: getattr(row, name) for name in REPLAYED} for row in self.rows}
        self.running = dict.fromkeys(servers, 0)
        self.seen = self.sends_seen = 0
        self.send_ids: dict[int, int] = {}  # of a model's send, by its identity
        newest = ServerStatusHistory.objects.order_by("-id").values_list("id", flat=True).first()
        self.seen = newest or 0

    def one(self, number: int) -> tuple[Server, ModelServer]:
        row = self.rows[number]
        return row, self.model.servers[row.pk]

    # --- the clock ---

    @rule(minutes=st.sampled_from([1, 3, 5, 10, 20, 30, 75, 120, 180, 840]))
    def time_passes(self, minutes: int) -> None:
        self.now += minutes * MINUTE

    @rule(number=which, moment=moments, seconds=st.integers(-1, 1))
    def a_moment_comes(self, number: int, moment: str, seconds: int) -> None:
        at = self._moment(self.one(number)[1], moment)
        if at is not None:
            self.now = max(self.now, at + seconds * SECOND)

    def _moment(self, server: ModelServer, moment: str) -> dt.datetime | None:
        sent = max((send.at for send in server.sends), default=None)
        _, closes = server.group(self.now).window
        found = {
            "slot": server.slot,
            "lead": server.end and server.end - LEAD,
            "end": server.end,
            "verdict": server.sent_at and server.sent_at + 3 * MINUTE,
            "proof": sent and sent + PROOF_FOR,
            "window": dt.datetime.combine(self.now.date(), closes, dt.UTC),
            "delivery": server.deliveries[0] + RESET_WINDOW if server.deliveries else None,
        }
        return found[moment]

    # --- client messages ---

    @rule(number=which, count=st.booleans())
    def a_message_fails(self, number: int, count: bool) -> None:
        row, server = self.one(number)
        record_failed_send(row.pk, now=self.now, reason="message_failed", count=count, rng=self.rng)
        self.model.fail(server, self.now, count=count)

    @rule(number=which)
    def messages_fail_up_to_the_threshold(self, number: int) -> None:
        for _ in range(3):
            if not self.one(number)[1].rests:
                self.a_message_fails(number, count=True)

    @rule(number=which, several=st.sampled_from([1, 2, 10, 11]))
    def messages_are_delivered(self, number: int, several: int) -> None:
        row, server = self.one(number)
        ServerDelivery.objects.bulk_create(ServerDelivery(server=row, at=self.now) for _ in range(several - 1))
        record_delivery(row.pk, now=self.now, recipient_hash=b"r" * 32)
        server.deliveries += [self.now] * (several - 1)
        self.model.deliver(server, self.now)

    # --- cooldowns ---

    @rule()
    def cooldowns_are_looked_at(self) -> None:
        check_cooldown_servers(now=self.now, rng=self.rng)
        self.model.sweep(self.now)

    @rule(answer=st.sampled_from(list(ANSWERS)))
    def warm_ups_are_sent(self, answer: str) -> None:
        self._hosts_show()
        free = set() if self.host_away else self.model.may_receive(self.now, None)
        receivers = free | (set() if self.partner_away else self.model.may_receive(self.now, self.partner.pk) - free)
        relay = ScriptedRelay(ANSWERS[answer])
        taken = preheat_otp_sender_names(now=self.now, rng=self.rng, adapter=relay)
        senders = [] if self.host_away else self.model.send_warm_ups(answer, self.now, receivers)
        assert len(relay.sends) == len(senders)
        assert taken == (len(senders) if answer == "accepted" else 0)
        if senders:
            self._note_sends(senders, receivers, answer)

    def _hosts_show(self) -> None:
        for host_id, away in ((self.host.pk, self.host_away), (self.partner.host_id, self.partner_away)):
            Host.objects.filter(pk=host_id).update(last_seen_at=self.now - (91 * SECOND if away else 0 * SECOND))

    def _note_sends(self, senders: list[int], receivers: set[int], answer: str) -> None:
        sent = InternalSend.objects.filter(id__gt=self.sends_seen, sender__in=senders).order_by("id")
        pairs = list(sent.values_list("id", "sender_id", "receiver_id"))
        assert [sender for _, sender, _ in pairs] == senders
        chosen = [receiver for _, _, receiver in pairs]
        assert len(set(chosen)) == len(chosen)
        assert set(chosen) <= receivers
        state = answer if answer in {"accepted", "unclear"} else "refused"
        for send_id, sender, receiver in pairs:
            self.sends_seen = send_id
            send = ModelSend(self.now, receiver, state)
            self.model.servers[sender].sends.append(send)
            self.send_ids[id(send)] = send_id

    @rule(number=which, service=st.sampled_from(["imessage", "imessage", "sms"]), oldest=st.booleans())
    def a_send_is_reported(self, number: int, service: str, oldest: bool) -> None:
        _, server = self.one(number)
        open_ones = [send for send in server.sends if send.state in {"accepted", "unclear"}]
        if open_ones:
            send = open_ones[0 if oldest else -1]
            news = News(self.send_ids[id(send)], ReportedState.SENT, "message_sent", service)
            take_news(news, now=self.now, rng=self.rng)
            self.model.report(server, send, service, self.now)

    @rule(number=which)
    def something_comes_in_from_its_handle(self, number: int) -> None:
        row, server = self.one(number)
        confirm_cooldown_warmup_delivery(row.pk, now=self.now, via="inbound")
        self.model.inbound(server, self.now)

    @rule(
        number=which,
        answer=st.sampled_from(["accepted", "accepted", "accepted", *ANSWERS]),
        proof=st.sampled_from(["", "", "report", "inbound"]),
    )
    def a_round_passes(self, number: int, answer: str, proof: str) -> None:
        """From wherever the cooldown stands to its verdict, by the shortest way."""
        _, server = self.one(number)
        if server.end is None:
            return
        if server.slot is not None:
            self.now = max(self.now, server.slot, server.end - LEAD)
            self.warm_ups_are_sent(answer)
        if proof == "report":
            self.a_send_is_reported(number, "imessage", oldest=False)
        elif proof == "inbound":
            self.something_comes_in_from_its_handle(number)
        self.now = max(self.now, server.end + 3 * MINUTE)
        self.cooldowns_are_looked_at()

    @rule(number=which)
    def a_cooldown_passes_without_proof(self, number: int) -> None:
        self.messages_fail_up_to_the_threshold(number)
        for _ in range(3):
            self.a_round_passes(number, "accepted", "")

    @rule(number=which, seconds=st.integers(0, 1))
    def a_proof_comes_at_the_last_moment(self, number: int, seconds: int) -> None:
        self.messages_fail_up_to_the_threshold(number)
        server = self.one(number)[1]
        if server.end is not None and server.slot is not None:
            self.now = max(self.now, server.slot, server.end - LEAD)
            self.warm_ups_are_sent("accepted")
        if server.sends:
            self.now = max(self.now, server.sends[-1].at + PROOF_FOR + seconds * SECOND)
            self.something_comes_in_from_its_handle(number)

    @rule(number=which, several=st.integers(10, 11), seconds=st.integers(0, 1))
    def a_failure_follows_when_deliveries_grow_old(self, number: int, several: int, seconds: int) -> None:
        self.messages_are_delivered(number, several)
        self.now += RESET_WINDOW + seconds * SECOND
        self.cooldowns_are_looked_at()
        self.a_message_fails(number, count=True)

    # --- hosts and people ---

    @rule(host=st.booleans(), away=st.booleans())
    def a_host_goes_or_comes_back(self, host: bool, away: bool) -> None:
        if host:
            self.host_away = away
        else:
            self.partner_away = away

    @rule(number=which, signed_in=st.booleans())
    def a_unit_signs_in_or_out(self, number: int, signed_in: bool) -> None:
        row, server = self.one(number)
        set_signed_in(self.host.pk, row.unit, signed_in=signed_in, now=self.now)
        self.model.sign(server, signed_in=signed_in)

    @rule(
        number=st.integers(0, 1),
        threshold=st.integers(0, 3),
        delay=st.sampled_from([(0, 0), (0, 45), (9, 9), (12, 15), (15, 45), (120, 240)]),
        reset_rule=st.sampled_from(["", "calendar_window", "since_release", "either"]),
        window=st.sampled_from([WHOLE_DAY, (dt.time(22), dt.time(8)), (dt.time(12), dt.time(18))]),
    )
    def a_group_changes(
        self, number: int, threshold: int, delay: tuple[int, int], reset_rule: str, window: tuple[dt.time, dt.time]
    ) -> None:
        Group.objects.filter(pk=self.group_ids[number]).update(
            failed_in_row=threshold,
            cooldown_delay_from=delay[0],
            cooldown_delay_to=delay[1],
            reset_rule=reset_rule,
            from_time=window[0],
            to_time=window[1],
        )
        group = self.groups[number]
        group.threshold, group.delay, group.reset_rule, group.window = threshold, delay, reset_rule, window

    @rule(numbers=st.sets(which, min_size=1), verdict=st.sampled_from(["recover", "recover", "mark_active", *VERDICTS]))
    def a_person_decides(self, numbers: set[int], verdict: str) -> None:
        ids = [self.rows[number].pk for number in numbers]
        outcome = carry_out(
            PersonVerdict(verdict), ids, now=self.now, by="a person", reason="looked at it", all_or_nothing=False
        )
        changed = {pk for pk in ids if self.model.decide(self.model.servers[pk], verdict, self.now)}
        assert set(outcome.changed) == changed
        assert {*outcome.unchanged, *(refusal.server_id for refusal in outcome.refused)} == set(ids) - changed

    # --- what must hold after each step ---

    @invariant()
    def every_server_stands_where_the_model_says(self) -> None:
        told = self._told()
        columns = Server.objects.filter(pk__in=self.replayed).values("pk", "cooldown_warmup_uuid", *COMPARED)
        for row in columns:
            server = self.model.servers[row["pk"]]
            assert {name: row[name] for name in COMPARED} == {
                name: getattr(server, known) for name, known in COMPARED.items()
            }
            assert told.pop(row["pk"], []) == server.told
            self.reached.update(server.told)
            server.told.clear()
            assert self.replayed[row["pk"]] == {name: row[name] for name in REPLAYED}
            assert self.running[row["pk"]] == int(row["cooldown"])
            self._check_legal(row)
        assert told == {}

    def _check_legal(self, row: dict[str, Any]) -> None:
        counters = ("failed_in_row", "cooldown_times", "fail_open_streak", "cooldown_extensions")
        assert min(row[name] for name in counters) >= 0
        assert row["cooldown_times"] <= len(LADDER)
        assert row["cooldown"] == (row["cooldown_start_date"] is not None) == (row["cooldown_end_date"] is not None)
        assert not (row["cooldown"] and row["status"] == "need_check")
        assert (row["cooldown_warmup_uuid"] is None) == (row["cooldown_warmup_sent_date"] is None)

    def _told(self) -> dict[int, list[str]]:
        """The rows since the last look, by server; each must begin where the one before it ended."""
        told: dict[int, list[str]] = {}
        new = ServerStatusHistory.objects.filter(id__gt=self.seen).order_by("id")
        for self.seen, pk, event, data in new.values_list("id", "server_id", "event", "data"):
            told.setdefault(pk, []).append(name_of(event, data))
            state = self.replayed[pk]
            assert {name: state[name] for name in data["old"] if name in REPLAYED} == {
                name: value for name, value in data["old"].items() if name in REPLAYED
            }
            self.running[pk] += (event == 101) - (data["new"].get("cooldown") is False)
            enters = data["new"].get("status") == "need_check"
            assert enters == (event == 106)
            assert not enters or data["path"] in PATHS
            state.update({name: value for name, value in data["new"].items() if name in REPLAYED})
        return told


class HealthOfServers(TestCase):
    def test_servers_stand_where_the_model_says_whatever_happens(self) -> None:
        Health.reached.clear()
        run_state_machine_as_test(
            Health,
            settings=settings(
                max_examples=200,
                stateful_step_count=50,
                deadline=None,
                derandomize=True,  # what must have been reached, below, is no matter of luck
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
            ),
        )
        verdicts = {f"100 {verdict}" for verdict in ("verified", "neutral", "fail_open")}
        paths = {f"106 {path}" for path in ("ladder", "fail_open", "admin")}
        others = {"101", "102", "104", "105", "107", "108", "109", "110", "113", "115", "116", "117", "120"}
        assert verdicts | paths | others <= Health.reached
