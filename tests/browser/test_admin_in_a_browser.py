"""The admin as an operator uses it, in a browser, on a fleet of the size of production."""

from __future__ import annotations

import pytest
from django.contrib.admin import site
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import Page, expect

from otp_service.core.clock import utc_now
from servers.models import Group, Server
from servers.rules import Event, Status
from tests import big_fleet
from tests.browser.conftest import log_in
from tests.web.admin_rows import a_row_of_everything

pytestmark = pytest.mark.django_db(transaction=True)

REASON = "signed in again after a new SIM"


@pytest.fixture
def fleet(transactional_db: None) -> None:
    big_fleet.build(now=utc_now())


def test_every_page_loads(page: Page, admin: User, fleet: None) -> None:
    rows = a_row_of_everything(utc_now())
    log_in(page, admin)
    for model in site._registry:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        for address in (reverse(f"{name}_changelist"), reverse(f"{name}_change", args=[rows[model].pk])):
            answer = page.goto(address)
            assert answer is not None
            assert answer.status == 200, address


@pytest.mark.usefixtures("fleet")
def test_a_night_group_is_made_and_servers_are_put_into_it(page: Page, admin: User) -> None:
    log_in(page, admin)
    page.click("text=Groups >> nth=0")
    page.click("a:has-text('Add group'), a[href$='/servers/group/add/']")
    page.fill("input[name=name]", "Night")
    page.fill("input[name=priority]", "500")
    page.fill("input[name=from_time]", "22:00")
    page.fill("input[name=to_time]", "08:00")
    page.fill("input[name=cooldown_delay_from]", "120")
    page.fill("input[name=cooldown_delay_to]", "240")
    page.click("button[name=_save]")
    expect(page.locator("table")).to_contain_text("22:00–08:00")  # noqa: RUF001 - as it is shown

    page.goto(reverse("admin:servers_server_changelist") + "?region=es")
    for box in page.locator("input[name=_selected_action]").all()[:3]:
        box.check()
    page.select_option("select[name=action]", label="Groups…")
    page.click("button[name=index]")
    page.get_by_label("Night").check()
    page.click("button:has-text('Yes')")
    expect(page.locator("body")).to_contain_text("3 of 3 servers changed")

    night = Group.objects.get(name="Night")
    assert night.servers.count() == 3
    rows = [server.history.get(event=Event.GROUPS_CHANGED) for server in night.servers.all()]
    assert {row.data["by"] for row in rows} == {"ada"}


@pytest.mark.usefixtures("fleet")
def test_a_server_is_recovered_with_a_reason_and_found_in_the_history(page: Page, admin: User) -> None:
    server = Server.objects.filter(status=Status.NEED_CHECK).order_by("pk")[0]
    log_in(page, admin)
    page.goto(reverse("admin:servers_server_changelist"))
    page.fill("input[name=q]", str(server.unit))
    page.press("input[name=q]", "Enter")
    page.click(f"a[href*='/servers/server/{server.pk}/change/'] >> nth=0")
    expect(page.locator("body")).to_contain_text("In Need Check")
    expect(page.locator("svg[role=img]")).to_be_visible()
    page.click("a:has-text('Recover')")
    page.fill("textarea[name=reason]", REASON)
    page.click("button:has-text('Yes')")
    expect(page.locator("body")).to_contain_text("1 done")
    server.refresh_from_db()
    assert server.status == Status.ACTIVE

    page.goto(reverse("admin:servers_serverstatushistory_changelist"))
    page.fill("input[name=q]", str(server.uuid))
    page.press("input[name=q]", "Enter")
    expect(page.locator("table tbody tr").first).to_contain_text("Recovered")
    expect(page.locator("table tbody tr").first).to_contain_text(REASON)
