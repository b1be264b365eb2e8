"""Verdicts in the admin: chosen on the list or on a server's page, asked about, given with a reason."""

from __future__ import annotations

import re
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from servers.admin.pages import NAMED
from servers.models import ChatPreheat, Server, ServerStatusHistory
from servers.recovery_rules import PersonVerdict
from servers.rules import Event, Status
from tests.factories import NOON, HostFactory, ServerFactory
from tests.staff_members import allow, logged_in

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("_noon")]

PAGE = "/admin/servers/server/"
OUTCOMES: dict[str, tuple[dict[str, Any], Status, Event]] = {
    "recover": ({"status": Status.NEED_CHECK}, Status.ACTIVE, Event.RECOVERED),
    "mark_active": ({"status": Status.LOST}, Status.ACTIVE, Event.MARKED_ACTIVE),
    "start_preheat": ({"status": Status.NEW}, Status.ACTIVE, Event.PREHEAT_STARTED),
    "start_chat_preheat": ({}, Status.ACTIVE, Event.CHAT_PREHEAT_STARTED),
    "need_check": ({}, Status.NEED_CHECK, Event.NEED_CHECK),
    "lost": ({}, Status.LOST, Event.LOST),
    "disable": ({}, Status.DISABLED, Event.DISABLED),
    "delete": ({}, Status.DELETED, Event.DELETED),
}


@pytest.fixture
def _noon() -> Any:
    with time_machine.travel(NOON, tick=False):
        yield


@pytest.fixture
def onlooker(client: Client) -> Client:
    """Staff who may look at servers."""
    return logged_in(client, "servers.view_server")


def choose(client: Client, name: str, *servers: Server, query: str = "", **more: Any) -> Any:
    """Tick servers on the list and run an action; returns the page."""
    chosen = {"action": name, "_selected_action": [str(server.pk) for server in servers]}
    return client.post(PAGE + query, chosen | more)


def say_yes(client: Client, page: Any, **form: Any) -> Any:
    """Send the form of a page that asks, as a browser does; returns what came of it."""
    text = page.content.decode()
    action = re.findall(r'<form method="post" action="([^"]+)"', text)[0]
    hidden = dict(re.findall(r'<input type="hidden" name="(ids|from|filters)" value="([^"]*)"', text))
    hidden["filters"] = hidden["filters"].replace("&amp;", "&")
    return client.post(action, hidden | {"reason": "seen on its host"} | form, follow=True)


def test_every_verdict_is_an_action(admin_client: Client) -> None:
    ServerFactory.create()
    choices = dict(admin_client.get(PAGE).context["action_form"].fields["action"].choices)
    assert OUTCOMES.keys() == set(PersonVerdict)
    assert OUTCOMES.keys() <= choices.keys()


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_verdict_changes_the_servers_that_are_chosen_and_says_who_decided_and_why(
    admin_client: Client, name: str
) -> None:
    fields, status, event = OUTCOMES[name]
    chosen, other = ServerFactory.create(**fields), ServerFactory.create(**fields)
    ServerFactory.create()
    page = choose(admin_client, name, chosen)
    assert page.status_code == 200
    assert not ServerStatusHistory.objects.exists()
    answer = say_yes(admin_client, page, reason="  its phone is back  ")
    assert "1 done" in answer.content.decode()
    assert answer.redirect_chain == [(PAGE, 302)]
    chosen.refresh_from_db()
    assert chosen.status == status
    row = chosen.history.get()
    assert (row.event, row.data["by"], row.data["reason"]) == (event, "admin", "its phone is back")
    assert not other.history.exists()


def test_the_page_says_what_it_does_to_which_servers_and_why_not_to_others(admin_client: Client) -> None:
    waiting = ServerFactory.create(status=Status.NEED_CHECK, unit=11)
    active, lost = ServerFactory.create(unit=12), ServerFactory.create(unit=13, status=Status.LOST)
    page = choose(admin_client, "recover", waiting, active, lost)
    text = page.content.decode()
    preview = page.context["preview"]
    assert [preview.changed.count, preview.unchanged.count, preview.refused.count] == [1, 1, 1]
    assert "Out of Need Check, into rotation" in text
    assert f'href="{PAGE}{waiting.pk}/change/"' in text
    assert "es 12 is not in Need Check, but active" in text
    assert "es 13 is lost, not in Need Check" in text
    answer = say_yes(admin_client, page).content.decode()
    assert "1 done, 1 unchanged, 1 refused" in answer
    assert "es 12 is not in Need Check, but active" in answer
    assert "es 13 is lost, not in Need Check" in answer
    assert list(ServerStatusHistory.objects.values_list("server", "event")) == [(waiting.pk, Event.RECOVERED)]


def test_a_preheat_is_told_in_the_words_of_the_sidebar(admin_client: Client) -> None:
    page = choose(admin_client, "start_preheat", ServerFactory.create(status=Status.NEW)).content.decode()
    assert "internal sends for some days" in page


def test_where_nothing_would_change_there_is_nothing_to_say_yes_to(admin_client: Client) -> None:
    page = choose(admin_client, "recover", ServerFactory.create()).content.decode()
    assert "Yes" not in page
    assert 'name="reason"' not in page


def test_a_chat_preheat_that_could_not_be_is_refused_beforehand(admin_client: Client) -> None:
    away = ServerFactory.create(host=HostFactory.create(last_seen_at=None))
    talking, partner = ServerFactory.create(), ServerFactory.create()
    ChatPreheat.objects.create(server=talking, partner=partner, planned=6, due_at=NOON, started_at=NOON)
    preview = choose(admin_client, "start_chat_preheat", away, talking, partner).context["preview"]
    assert [preview.changed.rows, preview.unchanged.count, preview.refused.count] == [[partner], 1, 1]


def test_a_page_names_the_first_ones_and_counts_the_others(admin_client: Client) -> None:
    servers = [ServerFactory.create(status=Status.LOST) for _ in range(NAMED + 3)]
    servers += [ServerFactory.create() for _ in range(NAMED + 2)]
    page = choose(admin_client, "lost", servers[0], select_across="1")
    text = page.content.decode()
    assert text.count("is lost already") == NAMED
    assert text.count(f'href="{PAGE}') - text.count(f'href="{PAGE}"') >= NAMED
    assert "and 3 more" in text
    assert "and 2 more" in text
    answer = say_yes(admin_client, page).content.decode()
    assert f"{NAMED + 2} done, {NAMED + 3} unchanged" in answer
    assert answer.count("is lost already") == NAMED
    assert "and 3 more" in answer


def test_all_servers_of_all_pages_go_through_one_field_with_a_bounded_number_of_queries(admin_client: Client) -> None:
    host = HostFactory.create()
    Server.objects.bulk_create(
        Server(region="es", unit=n, host=host, status="active", handle=f"+3460{n:07d}", next_send_date=NOON)
        for n in range(1_100)
    )
    some = Server.objects.order_by("pk")[:100]
    page = choose(admin_client, "disable", *some, select_across="1")
    assert page.context["preview"].changed.count == 1_100
    with CaptureQueriesContext(connection) as captured:
        answer = say_yes(admin_client, page)
    assert "1100 done" in answer.content.decode()
    assert Server.objects.filter(status=Status.DISABLED).count() == 1_100
    assert len(captured) < 60


def test_the_way_back_keeps_the_lists_filters(admin_client: Client) -> None:
    server = ServerFactory.create()
    page = choose(admin_client, "disable", server, query="?status__exact=active&signed_in__exact=1")
    answer = say_yes(admin_client, page)
    assert answer.redirect_chain == [(f"{PAGE}?status__exact=active&signed_in__exact=1", 302)]


def test_the_way_back_is_never_to_another_site(admin_client: Client) -> None:
    form = {"ids": ServerFactory.create().pk, "reason": "x", "filters": "//evil.example/?a=b", "from": "//evil.example"}
    answer = admin_client.post(f"{PAGE}verdict/disable/", form)
    assert answer.headers["Location"].startswith(f"{PAGE}?")


def test_a_servers_page_has_a_button_for_each_verdict_that_would_change_it(admin_client: Client) -> None:
    server = ServerFactory.create(status=Status.NEED_CHECK)
    page = admin_client.get(f"{PAGE}{server.pk}/change/").content.decode()
    links = {name: f"{PAGE}verdict/{name}/?from=page&amp;ids={server.pk}" for name in OUTCOMES}
    offered = {name for name, link in links.items() if f'href="{link}"' in page}
    assert offered == OUTCOMES.keys() - {"need_check"}


def test_a_verdict_from_a_servers_page_leads_back_to_it(admin_client: Client) -> None:
    server = ServerFactory.create(status=Status.NEED_CHECK)
    page = admin_client.get(f"{PAGE}verdict/recover/?from=page&ids={server.pk}")
    assert not ServerStatusHistory.objects.exists()
    answer = say_yes(admin_client, page)
    assert answer.redirect_chain == [(f"{PAGE}{server.pk}/change/", 302)]
    assert "1 done" in answer.content.decode()
    server.refresh_from_db()
    assert server.status == Status.ACTIVE


@pytest.mark.parametrize("reason", ["", "   \n ", "x" * 501])
def test_without_a_reason_of_reasonable_length_nothing_is_changed(admin_client: Client, reason: str) -> None:
    server = ServerFactory.create()
    answer = say_yes(admin_client, choose(admin_client, "disable", server), reason=reason)
    assert (answer.status_code, answer.redirect_chain) == (200, [])
    assert answer.context["form"].errors["reason"]
    assert "text-red-600" in answer.content.decode()
    assert not ServerStatusHistory.objects.exists()
    assert "1 done" in say_yes(admin_client, answer, reason="x" * 500).content.decode()


@pytest.mark.parametrize(
    "ids",
    [
        "",
        "7;DROP",
        "1,,2",
        "-1",
        "1,",
        "9" * 19,
        "999999",
        ",".join(map(str, range(10_001))),
        pytest.param("1" * 300_000, id="long"),
    ],
)
@pytest.mark.parametrize("method", ["get", "post"])
def test_ids_that_are_none_are_refused_with_a_sentence(admin_client: Client, method: str, ids: str) -> None:
    ServerFactory.create()
    for address in ("verdict/disable/", "memberships/"):
        form = {"ids": ids, "reason": "x", "how": "set"}
        answer = getattr(admin_client, method)(PAGE + address, form, follow=True)
        assert answer.redirect_chain == [(PAGE, 302)]
        (message,) = answer.context["messages"]
        assert message.level_tag == "error"
    assert not ServerStatusHistory.objects.exists()


def test_a_nul_among_the_ids_of_a_form_is_refused_with_a_sentence(admin_client: Client) -> None:
    for address in ("verdict/disable/", "memberships/"):
        answer = admin_client.post(PAGE + address, {"ids": "\0", "reason": "x", "how": "set"}, follow=True)
        assert [message.level_tag for message in answer.context["messages"]] == ["error"]


def test_what_is_not_there_any_more_is_left_out(admin_client: Client) -> None:
    server = ServerFactory.create()
    answer = admin_client.post(
        f"{PAGE}verdict/disable/", {"ids": f"{server.pk},999999,{server.pk}", "reason": "x"}, follow=True
    )
    assert "1 done." in answer.content.decode()


def test_there_is_no_other_verdict(admin_client: Client) -> None:
    assert admin_client.get(f"{PAGE}verdict/promote/", {"ids": ServerFactory.create().pk}).status_code == 404


@pytest.mark.parametrize("method", ["get", "head", "put", "delete", "patch"])
@pytest.mark.parametrize("name", OUTCOMES)
def test_only_a_post_changes_anything(admin_client: Client, method: str, name: str) -> None:
    server = ServerFactory.create(**OUTCOMES[name][0])
    ServerFactory.create()
    getattr(admin_client, method)(f"{PAGE}verdict/{name}/?ids={server.pk}&reason=x")
    assert not ServerStatusHistory.objects.exists()


def test_a_post_without_the_pages_token_is_refused(admin_user: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)
    server = ServerFactory.create()
    for address in ("verdict/disable/", "memberships/"):
        form = {"ids": server.pk, "reason": "x", "how": "set"}
        assert client.post(PAGE + address, form).status_code == 403
    assert not ServerStatusHistory.objects.exists()


@pytest.mark.parametrize(("permission", "may"), [("view_group", False), ("change_server", True)])
def test_it_takes_the_permission_to_change(onlooker: Client, permission: str, may: bool) -> None:
    allow(f"servers.{permission}")
    server = ServerFactory.create()
    form: dict[str, Any] = {"ids": server.pk, "reason": "x"}
    offered = onlooker.get(PAGE).context["action_form"]
    assert (offered is not None) is may
    assert ("verdict/" in onlooker.get(f"{PAGE}{server.pk}/change/").content.decode()) is may
    assert onlooker.get(f"{PAGE}verdict/disable/", form).status_code == (200 if may else 403)
    assert onlooker.post(f"{PAGE}verdict/disable/", form).status_code == (302 if may else 403)
    assert ServerStatusHistory.objects.exists() is may


def test_who_may_only_look_runs_no_action(onlooker: Client) -> None:
    choose(onlooker, "disable", ServerFactory.create())
    assert not ServerStatusHistory.objects.exists()


@pytest.mark.parametrize("address", ["verdict/disable/", "memberships/"])
def test_strangers_are_sent_to_log_in(client: Client, address: str) -> None:
    form: dict[str, Any] = {"ids": ServerFactory.create().pk, "reason": "x", "how": "set"}
    for answer in (client.get(PAGE + address, form), client.post(PAGE + address, form)):
        assert (answer.status_code, answer.headers["Location"].split("?")[0]) == (302, "/admin/login/")
    assert not ServerStatusHistory.objects.exists()


def test_a_reason_is_shown_as_it_was_typed_and_never_as_markup(admin_client: Client) -> None:
    answer = say_yes(
        admin_client, choose(admin_client, "disable", ServerFactory.create()), reason="<script>x</script>" * 30
    )
    assert "&lt;script&gt;x" in answer.content.decode()
    assert "<script>x" not in answer.content.decode()


@pytest.mark.parametrize("boomerang", [True, False])
def test_a_boomerang_is_flagged_on_the_servers_page(admin_client: Client, boomerang: bool, now: Any) -> None:
    server = ServerFactory.create(status=Status.NEED_CHECK)
    ServerStatusHistory.objects.create(server=server, event=Event.NEED_CHECK, at=now, data={"boomerang": boomerang})
    page = admin_client.get(f"{PAGE}{server.pk}/change/").context["adminform"].model_admin
    assert page.is_boomerang(server) is boomerang
