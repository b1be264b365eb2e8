"""Recipients in the admin: found by the number, which is shown nowhere; nothing is changed there."""

from __future__ import annotations

import datetime as dt

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser

from otp_service.messages.recipient_models import InvalidReport, Recipient
from otp_service.messages.recipients import Preferences, note_invalid, put_preferences
from otp_service.web.fields import recipient_hash
from tests.factories import NOON

pytestmark = pytest.mark.django_db

NUMBER, OTHER = "+34600000000", "+34600000001"


@pytest.fixture(autouse=True)
def two_recipients() -> None:
    wanted = Preferences(("sms", "voice"), (dt.time(22), dt.time(8)))
    for number in (NUMBER, OTHER):
        put_preferences(number, wanted, now=NOON, by="a test")
        note_invalid([(recipient_hash(number), "sms:a")], now=NOON)


@pytest.fixture
def browser() -> Browser:
    """A superuser's; without a password, which takes seconds to hash."""
    browser = Browser()
    browser.force_login(User.objects.create_superuser("ada"))
    return browser


def found(browser: Browser, model: str, term: str) -> list[bytes]:
    answer = browser.get(f"/admin/otp_messages/{model}/", {"q": term})
    assert answer.status_code == 200
    return [bytes(row.recipient_hash) for row in answer.context["cl"].result_list]


@pytest.mark.parametrize("model", ["recipient", "invalidreport"])
@pytest.mark.parametrize("term", [NUMBER, f" {NUMBER} ", "+34 600 00 00 00"])
def test_is_found_by_its_number(browser: Browser, model: str, term: str) -> None:
    assert found(browser, model, term) == [recipient_hash(NUMBER)]


@pytest.mark.parametrize("model", ["recipient", "invalidreport"])
@pytest.mark.parametrize(("term", "rows"), [("", 2), ("+346", 0), ("sms", 0), ("+34600000002", 0)])
def test_nothing_else_finds_it(browser: Browser, model: str, term: str, rows: int) -> None:
    assert len(found(browser, model, term)) == rows


def test_its_page_says_what_it_wants_and_not_who_it_is(browser: Browser) -> None:
    row = Recipient.objects.get(recipient_hash=recipient_hash(NUMBER))
    page = browser.get(f"/admin/otp_messages/recipient/{row.pk}/change/").content.decode()
    for told in ("sms, voice", "from 22:00 to 08:00", "Europe/Madrid"):
        assert told in page
    assert NUMBER[3:] not in page


@pytest.mark.parametrize("model", [Recipient, InvalidReport])
def test_nothing_is_changed_or_removed(browser: Browser, model: type[Recipient | InvalidReport]) -> None:
    row = model.objects.order_by("pk")[0]
    base = f"/admin/otp_messages/{model._meta.model_name}"
    assert browser.post(f"{base}/{row.pk}/change/", {}).status_code == 403
    assert browser.post(f"{base}/{row.pk}/delete/", {"post": "yes"}).status_code == 403
    assert browser.get(f"{base}/add/").status_code == 403
