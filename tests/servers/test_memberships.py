"""Which groups servers are in, said server by server: set, added, removed, all or nothing."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from servers.memberships import Assignment, Changed, How, RowsGone, assign, change_groups
from servers.models import Group, Server, ServerStatusHistory
from servers.references import ItemsRefused, RegionUnit, TooManyItems
from servers.rules import Event, Status
from tests.factories import GroupFactory, HostFactory, ServerFactory

pytestmark = pytest.mark.django_db


def names_of(server: Server) -> set[str]:
    return set(server.groups.values_list("name", flat=True))


def refused(items: Sequence[Assignment], how: How, now: dt.datetime) -> list[tuple[int, str, str]]:
    """The faults; nothing may have changed."""
    before = set(Server.groups.through.objects.values_list("server_id", "group_id"))
    with pytest.raises(ItemsRefused) as refusal:
        assign(items, how, now=now, by="ada")
    assert set(Server.groups.through.objects.values_list("server_id", "group_id")) == before
    assert not ServerStatusHistory.objects.exists()
    return [(fault.index, fault.field, fault.code) for fault in refusal.value.faults]


@pytest.fixture
def a() -> Group:
    return GroupFactory.create(name="A")


@pytest.fixture
def b() -> Group:
    return GroupFactory.create(name="B")


@pytest.fixture
def c() -> Group:
    return GroupFactory.create(name="C")


@pytest.mark.parametrize(
    ("how", "named", "after"),
    [
        pytest.param(How.SET, "BC", "BC", id="set to others"),
        pytest.param(How.SET, "", "", id="set to none"),
        pytest.param(How.ADD, "BC", "ABC", id="add one that is there and one that is not"),
        pytest.param(How.REMOVE, "BC", "A", id="remove one that is there and one that is not"),
        pytest.param(How.REMOVE, "AB", "", id="remove all"),
    ],
)
def test_a_server_is_in_the_groups_that_were_said_and_its_history_tells(
    now: dt.datetime, a: Group, b: Group, c: Group, *, how: How, named: str, after: str
) -> None:
    server, other = ServerFactory.create_batch(2)
    server.groups.add(a, b)
    other.groups.add(a)
    groups = {group.name: group.uuid for group in (a, b, c)}
    item = Assignment(server.uuid, [groups[name] for name in named])
    assert assign([item], how, now=now, by="ada") == Changed(servers=1, changed=1)
    assert names_of(server) == set(after)
    assert names_of(other) == {"A"}
    row = ServerStatusHistory.objects.get()
    assert (row.server, row.event, row.at) == (server, Event.GROUPS_CHANGED, now)
    assert row.note == f"A, B → {', '.join(after) or 'no group'}"
    assert row.data == {
        "old": {"groups": sorted(str(groups[name]) for name in "AB")},
        "new": {"groups": sorted(str(groups[name]) for name in after)},
        "by": "ada",
    }


@pytest.mark.parametrize(
    ("how", "named"),
    [
        pytest.param(How.SET, "AB", id="set to what it is in"),
        pytest.param(How.ADD, "A", id="add what it is in"),
        pytest.param(How.ADD, "", id="add nothing"),
        pytest.param(How.REMOVE, "C", id="remove what it is not in"),
    ],
)
def test_what_is_so_already_is_not_written_again(
    now: dt.datetime, a: Group, b: Group, c: Group, *, how: How, named: str
) -> None:
    server = ServerFactory.create()
    server.groups.add(a, b)
    links = set(Server.groups.through.objects.values_list("pk", flat=True))
    groups = {group.name: group.uuid for group in (a, b, c)}
    item = Assignment(server.uuid, [groups[name] for name in named])
    assert assign([item], how, now=now, by="ada") == Changed(servers=1, changed=0)
    assert set(Server.groups.through.objects.values_list("pk", flat=True)) == links
    assert not ServerStatusHistory.objects.exists()


def test_each_server_gets_its_own_groups_and_only_those_that_change_are_told_of(
    now: dt.datetime, a: Group, b: Group
) -> None:
    first, second, third = ServerFactory.create_batch(3)
    second.groups.add(a)
    items = [
        Assignment(RegionUnit(first.region, first.unit), [a.uuid, b.uuid]),
        Assignment(second.uuid, [a.uuid]),
        Assignment(third.uuid, ()),
    ]
    assert assign(items, How.SET, now=now, by="ada") == Changed(servers=3, changed=1)
    assert [names_of(server) for server in (first, second, third)] == [{"A", "B"}, {"A"}, set()]
    assert ServerStatusHistory.objects.get().note == "no group → A, B"


def test_a_server_out_of_rotation_is_in_groups_too(now: dt.datetime, a: Group) -> None:
    server = ServerFactory.create(status=Status.DELETED)
    assert assign([Assignment(server.uuid, [a.uuid])], How.ADD, now=now, by="ada").changed == 1


def test_nothing_to_do_is_done(now: dt.datetime) -> None:
    assert assign([], How.SET, now=now, by="ada") == Changed(servers=0, changed=0)


@pytest.mark.parametrize("how", How)
def test_one_bad_item_and_nothing_is_changed(now: dt.datetime, a: Group, how: How) -> None:
    server, held = ServerFactory.create_batch(2)
    held.groups.add(a)
    nobody, nothing = RegionUnit("es", 2_000_000), uuid.uuid4()
    items = [
        Assignment(server.uuid, [a.uuid]),
        Assignment(held.uuid, (a.uuid,)),
        Assignment(nobody, [a.uuid]),
        Assignment(uuid.uuid4(), [a.uuid]),
        Assignment(RegionUnit("pt", server.unit), [a.uuid, nothing]),
    ]
    assert refused(items, how, now) == [
        (2, "server", "unknown_server"),
        (3, "server", "unknown_server"),
        (4, "server", "unknown_server"),
        (4, "groups.1", "unknown_group"),
    ]


def test_a_fault_names_what_it_means(now: dt.datetime) -> None:
    nothing = uuid.uuid4()
    with pytest.raises(ItemsRefused) as refusal:
        assign([Assignment(RegionUnit("es", 228), [nothing])], How.ADD, now=now, by="ada")
    assert [(fault.field, fault.detail) for fault in refusal.value.faults] == [
        ("server", "There is no server es 228."),
        ("groups.0", f"There is no group {nothing}."),
    ]


@pytest.mark.parametrize("how", How)
@pytest.mark.parametrize("by_unit", [False, True], ids=["by uuid twice", "by uuid, then by region and unit"])
@pytest.mark.parametrize(
    ("again", "is_refused"), [("AB", False), ("BA", False), ("A", True), ("", True), ("ABC", True)]
)
def test_a_server_is_named_twice_only_with_the_same_groups(
    now: dt.datetime, a: Group, b: Group, c: Group, *, how: How, by_unit: bool, again: str, is_refused: bool
) -> None:
    groups = {group.name: group.uuid for group in (a, b, c)}
    other, server = ServerFactory.create_batch(2)
    items = [
        Assignment(other.uuid, ()),
        Assignment(server.uuid, [a.uuid, b.uuid]),
        Assignment(
            RegionUnit(server.region, server.unit) if by_unit else server.uuid, [groups[name] for name in again]
        ),
    ]
    if is_refused:
        assert refused(items, how, now) == [(2, "server", "conflicting")]
    else:
        assert assign(items, how, now=now, by="ada").servers == 2


def test_a_conflict_names_the_item_before(now: dt.datetime, a: Group) -> None:
    other, server = ServerFactory.create_batch(2)
    items = [Assignment(other.uuid, ()), Assignment(server.uuid, ()), Assignment(server.uuid, [a.uuid])]
    with pytest.raises(ItemsRefused) as refusal:
        assign(items, How.SET, now=now, by="ada")
    (fault,) = refusal.value.faults
    assert "Item 1 " in fault.detail


def test_five_hundred_items_are_taken_and_one_more_is_not(now: dt.datetime, a: Group) -> None:
    item = Assignment(ServerFactory.create().uuid, [a.uuid])
    assert assign([item] * 500, How.ADD, now=now, by="ada") == Changed(servers=1, changed=1)
    with pytest.raises(TooManyItems, match=r"at most 500 items.*501.*add/ and remove/") as refusal:
        assign([item] * 501, How.REMOVE, now=now, by="ada")
    assert (refusal.value.status, refusal.value.code) == (400, "too_many_items")


@pytest.mark.parametrize("how", How)
def test_five_hundred_servers_take_the_queries_of_five(now: dt.datetime, a: Group, b: Group, how: How) -> None:
    host = HostFactory.create()

    def queries(count: int) -> int:
        servers = Server.objects.bulk_create(ServerFactory.build_batch(count, host=host))
        (a if how is How.REMOVE else b).servers.add(*servers)
        items = [Assignment(server.uuid, [a.uuid]) for server in servers]
        with CaptureQueriesContext(connection) as captured:
            assert assign(items, how, now=now, by="ada") == Changed(servers=count, changed=count)
        return len(captured)

    few = queries(5)
    assert few <= 12
    assert queries(500) == few


# --- by row ids ---


def test_row_ids_may_be_given_instead(now: dt.datetime, a: Group, b: Group) -> None:
    first, second = ServerFactory.create_batch(2)
    first.groups.add(a)
    ids = [first.pk, second.pk]
    assert change_groups(ids, [a.pk, b.pk], How.ADD, now=now, by="ada") == Changed(servers=2, changed=2)
    assert change_groups(ids, [b.pk], How.REMOVE, now=now, by="ada") == Changed(servers=2, changed=2)
    assert change_groups(ids, [a.pk], How.SET, now=now, by="ada") == Changed(servers=2, changed=0)
    assert [row.note for row in first.history.order_by("id")] == ["A → A, B", "A, B → A"]


def test_a_group_that_is_gone_is_not_written(now: dt.datetime, a: Group, b: Group) -> None:
    server, gone = ServerFactory.create(), b.pk
    b.delete()
    with pytest.raises(RowsGone, match="A group was deleted") as refusal:
        change_groups([server.pk], [a.pk, gone], How.ADD, now=now, by="ada")
    assert refusal.value.status == 409
    assert names_of(server) == set()
