"""A verdict on many servers at once: all or nothing, again without effect, and as many queries as on a few."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection
from django.db.models import Model
from django.test.utils import CaptureQueriesContext

from otp_service.events.models import Event as LogEvent
from servers.models import ChatPreheat, Server, ServerStatusHistory
from servers.recovery import VerdictRefused, carry_out
from servers.recovery_rules import PersonVerdict
from servers.rules import Event, Status
from tests.factories import (
    NOON,
    ChatPreheatFactory,
    GroupFactory,
    HostFactory,
    ServerDeliveryFactory,
    ServerFactory,
)

pytestmark = pytest.mark.django_db
MINUTE = dt.timedelta(minutes=1)
PREHEATING = {"preheating": True, "preheat_started_at": NOON - MINUTE}


def rows(model: type[Model]) -> list[dict[str, Any]]:
    return list(model._default_manager.order_by("pk").values())


def everything() -> list[list[dict[str, Any]]]:
    """All that a verdict may write."""
    return [rows(model) for model in (Server, ServerStatusHistory, LogEvent, ChatPreheat)]


def changed_by(verdict: PersonVerdict) -> Status:
    """A status that each verdict changes."""
    return Status.NEED_CHECK if verdict is PersonVerdict.RECOVER else Status.NEW


@pytest.mark.parametrize("verdict", PersonVerdict)
def test_one_that_is_refused_leaves_nothing_behind(now: dt.datetime, verdict: PersonVerdict) -> None:
    chat = ChatPreheatFactory.create(partner__status=changed_by(verdict))  # ended by what takes its partner out
    good = [chat.partner_id, *(s.pk for s in ServerFactory.create_batch(2, status=changed_by(verdict)))]
    refusing = ServerFactory.create(status=Status.DELETED).pk if verdict is not PersonVerdict.MARK_ACTIVE else 0
    if verdict is PersonVerdict.DELETE:
        refusing = 0  # it refuses nobody; 0 is no server
    before = everything()
    with pytest.raises(VerdictRefused) as refused:
        carry_out(verdict, [*good, refusing], now=now, by="ada", reason="broken")
    assert [refusal.server_id for refusal in refused.value.refusals] == [refusing]
    assert everything() == before
    assert carry_out(verdict, good, now=now, by="ada").changed == tuple(sorted(good))


@pytest.mark.parametrize("verdict", PersonVerdict)
def test_where_some_may_be_refused_the_others_are_done(now: dt.datetime, verdict: PersonVerdict) -> None:
    ServerFactory.create()  # somebody to talk with
    done = ServerFactory.create_batch(3, status=changed_by(verdict))
    deleted = ServerFactory.create(status=Status.DELETED)
    gone = deleted.pk + 1_000
    ids = [gone, deleted.pk, *(server.pk for server in done)]
    outcome = carry_out(verdict, ids, now=now, by="ada", all_or_nothing=False)
    changed = {server.pk for server in done} | ({deleted.pk} if verdict is PersonVerdict.MARK_ACTIVE else set())
    assert set(outcome.changed) == changed
    assert outcome.unchanged == ((deleted.pk,) if verdict is PersonVerdict.DELETE else ())
    refused = {refusal.server_id: refusal.code for refusal in outcome.refused}
    assert refused.pop(gone) == "unknown_server"
    if verdict in {PersonVerdict.MARK_ACTIVE, PersonVerdict.DELETE}:
        assert refused == {}
    else:
        assert refused == {deleted.pk: "deleted"}
    assert set(ServerStatusHistory.objects.values_list("server_id", flat=True)) == changed


@pytest.mark.parametrize("verdict", PersonVerdict)
def test_a_verdict_again_changes_nothing(now: dt.datetime, verdict: PersonVerdict) -> None:
    ServerFactory.create()  # somebody to talk with
    ids = [server.pk for server in ServerFactory.create_batch(3, status=changed_by(verdict))]
    first = carry_out(verdict, ids, now=now, by="ada", reason="broken")
    assert (first.changed, first.unchanged, first.refused) == (tuple(ids), (), ())
    after = everything()
    again = carry_out(verdict, ids, now=now + MINUTE, by="bob", reason="broken")
    assert (again.changed, again.unchanged, again.refused) == ((), tuple(ids), ())
    assert again.why_unchanged.keys() == set(ids)
    assert everything() == after


def test_a_server_that_is_named_twice_is_changed_once(now: dt.datetime) -> None:
    server = ServerFactory.create()
    assert carry_out(PersonVerdict.DISABLE, [server.pk, server.pk], now=now, by="ada").changed == (server.pk,)
    assert ServerStatusHistory.objects.count() == 1


def test_no_servers_are_no_work(now: dt.datetime) -> None:
    before = everything()
    assert carry_out(PersonVerdict.START_CHAT_PREHEAT, [], now=now, by="ada").changed == ()
    assert everything() == before


def test_each_row_tells_of_its_own_server(now: dt.datetime) -> None:
    failing = ServerFactory.create(in_cooldown=True)
    preheating = ServerFactory.create(**PREHEATING)
    boring = ServerFactory.create()
    ids = [failing.pk, preheating.pk, boring.pk]
    assert carry_out(PersonVerdict.LOST, ids, now=now, by="ada", reason="the rack burned").changed == tuple(ids)
    of = {row.server_id: row for row in ServerStatusHistory.objects.all()}
    assert {row.event for row in of.values()} == {Event.LOST}
    assert of[boring.pk].data["old"] == {"status": "active"}
    assert of[preheating.pk].data["old"]["preheating"] is True
    assert of[failing.pk].data["old"]["cooldown_reason"] == "failed in row"
    assert "preheating" not in of[failing.pk].data["old"]
    assert all((row.data["by"], row.data["reason"]) == ("ada", "the rack burned") for row in of.values())


def test_the_evidence_of_each_server_is_its_own(now: dt.datetime) -> None:
    host = HostFactory.create(number=39)
    failing = ServerFactory.create(host=host, failed_in_row=1, cooldown_times=3)
    delivering = ServerFactory.create(host=host)
    alone = ServerFactory.create(host__number=40)
    failing.groups.add(GroupFactory.create(name="Quick"))
    failure = {"reason": "message_failed", "error_code": 120, "old": {}, "new": {}}
    for ago in range(25):
        at = now - ago * MINUTE
        ServerStatusHistory.objects.create(server=failing, event=Event.SEND_FAILED, at=at, data=failure)
    ServerDeliveryFactory.create(server=delivering, at=now - MINUTE)
    back = {"old": {"status": "need_check"}, "new": {}}
    ServerStatusHistory.objects.create(server=alone, event=Event.RECOVERED, at=now - MINUTE, data=back)

    carry_out(PersonVerdict.NEED_CHECK, [failing.pk, delivering.pk, alone.pk], now=now, by="ada")
    data = dict(ServerStatusHistory.objects.filter(event=Event.NEED_CHECK).values_list("server_id", "data"))
    evidence = {pk: row["evidence"] for pk, row in data.items()}
    assert [len(evidence[s.pk]["outcomes"]) for s in (failing, delivering, alone)] == [20, 1, 0]
    newest, second = evidence[failing.pk]["outcomes"][:2]
    assert newest == {"at": now.isoformat(), "outcome": "failed", "reason": "message_failed", "error_code": 120}
    assert second["at"] == (now - MINUTE).isoformat()
    assert evidence[delivering.pk]["outcomes"] == [{"at": (now - MINUTE).isoformat(), "outcome": "delivered"}]
    assert evidence[failing.pk]["counters"] == {"failed_in_row": 1, "cooldown_times": 3, "fail_open_streak": 0}
    assert [evidence[s.pk]["host"] for s in (failing, delivering, alone)] == [39, 39, 40]
    assert evidence[failing.pk]["group"]["name"] == "Quick"
    assert evidence[delivering.pk]["group"] is None
    nobody = {"servers": 0, "active": 0, "cooldown": 0, "need_check": 0, "failing": 0}
    assert evidence[alone.pk]["others_of_host"] == nobody
    # As they were: those that go with it do not count as being in Need Check.
    assert evidence[failing.pk]["others_of_host"] == nobody | {"servers": 1, "active": 1}
    assert evidence[delivering.pk]["others_of_host"] == nobody | {"servers": 1, "active": 1, "failing": 1}
    assert [data[s.pk]["boomerang"] for s in (failing, delivering, alone)] == [False, False, True]
    assert data[alone.pk]["recovered_at"] == (now - MINUTE).isoformat()
    told = LogEvent.objects.order_by("id").values_list("type", "subject_uuid")
    assert list(told) == [("server.need_check", server.uuid) for server in (failing, delivering, alone)]


# --- chat-preheat --------------------------------------------------------------------------------------


def talk(now: dt.datetime, *servers: Server, **options: Any) -> dict[int, int]:
    """Server → partner, of the talks that a call began."""
    carry_out(PersonVerdict.START_CHAT_PREHEAT, [s.pk for s in servers], now=now, by="ada", **options)
    return dict(ChatPreheat.objects.filter(ended_at__isnull=True).values_list("server_id", "partner_id"))


def test_two_that_are_named_together_may_talk_with_each_other(now: dt.datetime) -> None:
    one, other = ServerFactory.create_batch(2)
    assert talk(now, one, other) == {one.pk: other.pk, other.pk: one.pk}


def test_each_has_a_partner_of_its_own_where_there_are_enough(now: dt.datetime) -> None:
    servers = ServerFactory.create_batch(3, status=Status.NEED_CHECK)
    partners = ServerFactory.create_batch(3)
    talks = talk(now, *servers)
    assert talks.keys() == {server.pk for server in servers}
    assert set(talks.values()) == {server.pk for server in partners}


def test_those_that_are_named_together_do_not_take_the_one_partner_from_each_other(now: dt.datetime) -> None:
    servers = ServerFactory.create_batch(3, status=Status.NEED_CHECK)
    partner = ServerFactory.create()
    assert talk(now, *servers) == {server.pk: partner.pk for server in servers}


def test_nobody_talks_where_one_of_them_has_nobody_to_talk_with(now: dt.datetime) -> None:
    server, partner = ServerFactory.create(status=Status.NEED_CHECK), ServerFactory.create()
    namesake = ServerFactory.create(status=Status.NEED_CHECK, handle=partner.handle)
    before = everything()
    with pytest.raises(VerdictRefused) as refused:
        talk(now, server, namesake)
    assert [(r.server_id, r.code) for r in refused.value.refusals] == [(namesake.pk, "no_partner")]
    assert str(namesake) in refused.value.detail
    assert everything() == before
    assert talk(now, server, namesake, all_or_nothing=False) == {server.pk: partner.pk}


def test_each_row_of_a_talk_names_its_partner_and_its_own_pause(now: dt.datetime) -> None:
    ServerFactory.create_batch(2)
    rested = ServerFactory.create(status=Status.NEED_CHECK)
    resting = ServerFactory.create(status=Status.NEED_CHECK, next_send_date=now + 60 * MINUTE)
    talks = talk(now, rested, resting)
    for server, free_from in ((rested, now + 24 * MINUTE), (resting, now + 60 * MINUTE)):
        server.refresh_from_db()
        assert server.next_send_date == free_from
        data = server.history.get().data
        assert data["partner"] == str(Server.objects.get(pk=talks[server.pk]).uuid)
        assert data["messages"] == 6
        assert ("next_send_date" in data["new"]) is (server is rested)


# --- how many queries ----------------------------------------------------------------------------------

#: The statements of one call, savepoints included, however many servers it names.
AT_MOST = 16


def queries(verdict: PersonVerdict, number: int, now: dt.datetime) -> int:
    """Of a call that changes so many servers, of all kinds that a verdict treats differently."""
    hosts = HostFactory.create_batch(2)
    columns: tuple[dict[str, Any], ...] = (
        {},
        {"failed_in_row": 1, "cooldown_times": 2},
        PREHEATING,
        {"next_send_date": now + 60 * MINUTE},
    )
    status = changed_by(verdict)
    built = [ServerFactory.build(host=hosts[n % 2], status=status, **columns[n % 4]) for n in range(number)]
    servers = Server.objects.bulk_create(built)
    partners = Server.objects.bulk_create(ServerFactory.build_batch(number, host=hosts[0]))
    group = GroupFactory.create()
    group.servers.set(servers)
    ChatPreheat.objects.bulk_create(
        ChatPreheat(server=partner, partner=server, planned=6, due_at=now, started_at=now)
        for server, partner in zip(servers, partners, strict=True)
    )
    with CaptureQueriesContext(connection) as captured:
        outcome = carry_out(verdict, [server.pk for server in servers], now=now, by="ada", reason="broken")
    assert outcome.changed == tuple(server.pk for server in servers)
    return len(captured)


@pytest.mark.parametrize("verdict", PersonVerdict)
def test_many_servers_take_as_many_queries_as_a_few(now: dt.datetime, verdict: PersonVerdict) -> None:
    few = queries(verdict, 5, now)
    assert few <= AT_MOST
    assert queries(verdict, 300, now) == few
