"""Two people who change groups and their servers at once, and a failure in between."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import transaction

from servers.deliverability_limits import record_failed_send
from servers.groups import GroupInvalid, GroupTaken, change_group, create_group, delete_group
from servers.history import lock_servers
from servers.memberships import Assignment, How, RowsGone, assign, assign_servers, change_groups
from servers.models import Group, Server
from servers.references import ItemsRefused
from tests.factories import GroupFactory, ServerFactory
from tests.racing import Racer

pytestmark = pytest.mark.django_db(transaction=True)


def names_of(server: Server) -> list[str]:
    return sorted(server.groups.values_list("name", flat=True))


def notes_of(server: Server) -> list[str]:
    return list(server.history.order_by("id").values_list("note", flat=True))


def set_of(server: Server, *groups: Group) -> list[Assignment]:
    return [Assignment(server.uuid, [group.uuid for group in groups])]


# --- one name, one priority ---


@pytest.mark.parametrize("taken", [{"priority": 1}, {"name": "First"}], ids=["priority", "name"])
def test_of_two_groups_made_at_once_with_the_same_the_second_is_told_of_the_first(
    now: dt.datetime, taken: dict[str, Any]
) -> None:
    second = {"name": "Second", "priority": 2, **taken}
    with transaction.atomic():
        first = create_group({"name": "First", "priority": 1}, now=now, by="ada")
        making = Racer(lambda: create_group(second, now=now, by="bob"))
        making.wait_until_blocked()
    with pytest.raises(GroupTaken, match=f"The group First.*{first.uuid}") as refused:
        making.result()
    assert refused.value.code in {f"{field}_taken" for field in taken}
    assert list(Group.objects.all()) == [first]


def test_a_priority_that_is_free_again_a_moment_later_is_had_by_the_second(now: dt.datetime) -> None:
    with transaction.atomic():
        create_group({"name": "First", "priority": 1}, now=now, by="ada")
        making = Racer(lambda: create_group({"name": "Second", "priority": 1}, now=now, by="bob"))
        making.wait_until_blocked()
        transaction.set_rollback(True)
    assert making.result().priority == 1


def test_of_two_changes_that_do_not_go_together_the_second_is_refused(now: dt.datetime) -> None:
    group = GroupFactory.create()
    with transaction.atomic():
        change_group(group.uuid, {"cooldown_delay_from": 60}, now=now, by="ada")
        changing = Racer(lambda: change_group(group.uuid, {"cooldown_delay_to": 45}, now=now, by="bob"))
        changing.wait_until_blocked()
    with pytest.raises(GroupInvalid, match="cooldown_delay_to"):
        changing.result()
    group.refresh_from_db()
    assert (group.cooldown_delay_from, group.cooldown_delay_to) == (60, 0)


# --- a group is deleted ---


def test_who_adds_to_a_group_that_is_being_deleted_is_told_that_there_is_none(now: dt.datetime) -> None:
    group, server = GroupFactory.create(), ServerFactory.create()
    with transaction.atomic():
        delete_group(group.uuid, now=now, by="ada")
        adding = Racer(lambda: assign(set_of(server, group), How.ADD, now=now, by="bob"))
        adding.wait_until_blocked()
        of_group = Racer(lambda: assign_servers(group.uuid, [server.uuid], How.ADD, now=now, by="bob"))
        of_group.wait_until_blocked()
        by_rows = Racer(lambda: change_groups([server.pk], [group.pk], How.ADD, now=now, by="bob"))
        by_rows.wait_until_blocked()
    with pytest.raises(ItemsRefused) as refused:
        adding.result()
    assert [fault.code for fault in refused.value.faults] == ["unknown_group"]
    with pytest.raises(Group.DoesNotExist):
        of_group.result()
    with pytest.raises(RowsGone):
        by_rows.result()
    assert notes_of(server) == []


def test_a_group_that_is_being_deleted_while_a_server_comes_into_it_lets_that_one_go_too(now: dt.datetime) -> None:
    group, server = GroupFactory.create(name="Night"), ServerFactory.create()
    with transaction.atomic():
        assign(set_of(server, group), How.ADD, now=now, by="ada")
        deleting = Racer(lambda: delete_group(group.uuid, now=now, by="bob"))
        deleting.wait_until_blocked()
    assert deleting.result() == 1
    assert notes_of(server) == ["no group → Night", "Night → no group"]
    assert not Server.groups.through.objects.exists()


def test_a_server_that_leaves_a_group_while_it_is_deleted_is_told_of_once(now: dt.datetime) -> None:
    night, day = GroupFactory.create(name="Night"), GroupFactory.create(name="Day")
    server = ServerFactory.create()
    server.groups.add(night)
    with transaction.atomic():
        assign(set_of(server, day), How.SET, now=now, by="ada")  # names, and holds, the other group only
        deleting = Racer(lambda: delete_group(night.uuid, now=now, by="bob"))
        deleting.wait_until_blocked()
    assert deleting.result() == 0
    assert notes_of(server) == ["Night → Day"]


# --- the same server, the same group ---


def test_of_two_sets_at_once_the_second_counts_and_tells_what_it_found(now: dt.datetime) -> None:
    night, day = GroupFactory.create(name="Night"), GroupFactory.create(name="Day")
    server = ServerFactory.create()
    with transaction.atomic():
        assign(set_of(server, night), How.SET, now=now, by="ada")
        setting = Racer(lambda: assign(set_of(server, day), How.SET, now=now, by="bob"))
        setting.wait_until_blocked()
    assert setting.result().changed == 1
    assert names_of(server) == ["Day"]
    assert notes_of(server) == ["no group → Night", "Night → Day"]


def test_the_same_set_twice_at_once_is_told_once(now: dt.datetime) -> None:
    night, server = GroupFactory.create(name="Night"), ServerFactory.create()
    with transaction.atomic():
        assign(set_of(server, night), How.SET, now=now, by="ada")
        setting = Racer(lambda: assign(set_of(server, night), How.SET, now=now, by="bob"))
        setting.wait_until_blocked()
    assert setting.result().changed == 0
    assert notes_of(server) == ["no group → Night"]


def test_a_set_of_a_groups_servers_sees_the_one_that_was_just_added(now: dt.datetime) -> None:
    night, kept, added = GroupFactory.create(name="Night"), ServerFactory.create(), ServerFactory.create()
    with transaction.atomic():
        assign(set_of(added, night), How.ADD, now=now, by="ada")
        setting = Racer(lambda: assign_servers(night.uuid, [kept.uuid], How.SET, now=now, by="bob"))
        setting.wait_until_blocked()
    assert setting.result().changed == 2
    assert set(night.servers.all()) == {kept}
    assert notes_of(added) == ["no group → Night", "Night → no group"]


def test_an_addition_that_waits_for_a_set_of_the_groups_servers_is_kept(now: dt.datetime) -> None:
    night, kept, added = GroupFactory.create(name="Night"), ServerFactory.create(), ServerFactory.create()
    with transaction.atomic():
        assign_servers(night.uuid, [kept.uuid], How.SET, now=now, by="ada")
        adding = Racer(lambda: assign(set_of(added, night), How.ADD, now=now, by="bob"))
        adding.wait_until_blocked()
    assert adding.result().changed == 1
    assert set(night.servers.all()) == {kept, added}


def test_servers_named_in_opposite_orders_do_not_wait_for_each_other(now: dt.datetime) -> None:
    groups, servers = GroupFactory.create_batch(2), ServerFactory.create_batch(2)
    forwards = [Assignment(server.uuid, [group.uuid for group in groups]) for server in servers]
    backwards = [Assignment(server.uuid, [group.uuid for group in groups[::-1]]) for server in servers[::-1]]
    with transaction.atomic():
        lock_servers([servers[0].pk])
        first = Racer(lambda: assign(forwards, How.SET, now=now, by="ada"))
        first.wait_until_blocked()
        second = Racer(lambda: assign(backwards, How.SET, now=now, by="bob"))
        second.wait_until_blocked()
        with transaction.atomic():  # neither holds the second server while it waits for the first, or for a group
            lock_servers([servers[1].pk])
    assert first.result().changed + second.result().changed == 2


# --- a failure at the same moment ---


def test_a_failure_waits_for_a_set_and_is_judged_by_the_new_group(now: dt.datetime) -> None:
    strict, server = GroupFactory.create(failed_in_row=1), ServerFactory.create()
    with transaction.atomic():
        assign(set_of(server, strict), How.SET, now=now, by="ada")
        failing = Racer(lambda: record_failed_send(server.pk, now=now, reason="message_sent"))
        failing.wait_until_blocked()
    failing.result()
    server.refresh_from_db()
    assert server.cooldown


def test_a_set_waits_for_a_failure_and_goes_through(now: dt.datetime) -> None:
    strict, server = GroupFactory.create(name="Strict", failed_in_row=1), ServerFactory.create()
    with transaction.atomic():
        record_failed_send(server.pk, now=now, reason="message_sent")
        setting = Racer(lambda: assign(set_of(server, strict), How.SET, now=now, by="ada"))
        setting.wait_until_blocked()
    assert setting.result().changed == 1
    server.refresh_from_db()
    assert (server.failed_in_row, server.cooldown, names_of(server)) == (1, False, ["Strict"])
