"""What hosts let us know: that they are alive, and which of their units are signed in."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import transaction

from servers.hosts import mark_seen, set_signed_in
from servers.models import ServerStatusHistory
from servers.rules import Event
from tests.factories import HostFactory, ServerFactory
from tests.racing import Racer

SECOND = dt.timedelta(seconds=1)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("ago", "writes"),
    [
        pytest.param(None, True, id="never seen"),
        pytest.param(6 * SECOND, True, id="6 s ago"),
        pytest.param(5 * SECOND, False, id="5 s ago"),
        pytest.param(0 * SECOND, False, id="just now"),
        pytest.param(-60 * SECOND, False, id="by a call that came later"),
    ],
)
def test_a_host_is_marked_as_seen_now_and_then(now: dt.datetime, ago: dt.timedelta | None, writes: bool) -> None:
    before = None if ago is None else now - ago
    host, other = HostFactory.create(last_seen_at=before), HostFactory.create(last_seen_at=None)
    assert mark_seen(host.pk, now=now) is writes
    host.refresh_from_db()
    other.refresh_from_db()
    assert host.last_seen_at == (now if writes else before)
    assert other.last_seen_at is None


@pytest.mark.django_db
def test_signing_out_and_in_is_told_once_per_change(now: dt.datetime) -> None:
    server = ServerFactory.create()
    other_host = ServerFactory.create(unit=server.unit, region="zp")
    for signed_in, changes in [(True, False), (False, True), (False, False), (True, True)]:
        changed = set_signed_in(server.host_id, server.unit, signed_in=signed_in, now=now)
        assert changed is changes
        server.refresh_from_db()
        assert server.signed_in is signed_in
    rows = ServerStatusHistory.objects.order_by("id")
    assert [(row.server_id, row.event, row.note) for row in rows] == [
        (server.pk, Event.SIGNED_IN_CHANGED, "signed out"),
        (server.pk, Event.SIGNED_IN_CHANGED, "signed in"),
    ]
    assert rows[0].data == {
        "old": {"signed_in": True, "signed_out_at": None},
        "new": {"signed_in": False, "signed_out_at": now.isoformat()},
    }
    other_host.refresh_from_db()
    assert other_host.signed_in


@pytest.mark.django_db
def test_news_of_a_unit_that_we_do_not_know_changes_nothing(now: dt.datetime) -> None:
    server = ServerFactory.create()
    assert not set_signed_in(server.host_id, server.unit + 1, signed_in=False, now=now)
    assert not ServerStatusHistory.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_same_news_twice_at_once_is_told_once(now: dt.datetime) -> None:
    server = ServerFactory.create()
    with transaction.atomic():
        set_signed_in(server.host_id, server.unit, signed_in=False, now=now)
        other = Racer(lambda: set_signed_in(server.host_id, server.unit, signed_in=False, now=now))
        other.wait_until_blocked()
    assert other.result() is False
    assert ServerStatusHistory.objects.count() == 1
