"""A text and a whole number are shown to those who may see them, when they say why, and never without an audit row."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.models import Session
from django.db import DatabaseError, connection
from django.test import Client as Browser
from django.urls import URLPattern, URLResolver, reverse

from otp_service.events.models import Event
from otp_service.messages.models import Message
from otp_service.messages.recipient_models import InvalidReport, Recipient
from otp_service.messages.reveal import Unreadable, reveal
from tests.factories import NOON, ApiKeyFactory, AttemptFactory, CampaignFactory

pytestmark = pytest.mark.django_db

TEXT, NUMBER = "Canary code 739184", "+34612345678"
REFERENCE, METADATA = f"Canary of {NUMBER}", {"code": "739184", "<b>": [NUMBER]}
REASON = {"reason": "the recipient complained"}


@pytest.fixture
def message() -> Message:
    attempt = AttemptFactory.create(
        message__text=TEXT,
        message__number=NUMBER,
        message__reference=REFERENCE,
        message__metadata=METADATA,
        raw_reply=f"{NUMBER}: {TEXT}",
    )
    found: Message = attempt.message
    return found


def staff(*codenames: str, name: str = "eve") -> Browser:
    user = User.objects.create_user(name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    browser = Browser()
    browser.force_login(user)
    return browser


@pytest.fixture
def auditor(db: None) -> Browser:
    return staff("view_message", "reveal_message", name="ada")


def address(message: Message) -> str:
    return reverse("admin:otp_messages_message_show_content", args=[message.pk])


def leaks(page: str) -> bool:
    return "739184" in page or "612345678" in page or "612 345 678" in page


def audit_rows() -> list[tuple[Any, ...]]:
    rows = Event.objects.filter(type="message.revealed").order_by("id")
    return list(rows.values_list("subject_uuid", "client_id", "data"))


def test_shows_what_the_client_wrote_once_an_audit_row_is_written(auditor: Browser, message: Message) -> None:
    answer = auditor.post(address(message), REASON)
    page = answer.content.decode()
    assert TEXT in page
    assert f">{NUMBER}<" in page
    assert REFERENCE in page
    assert "&quot;code&quot;: &quot;739184&quot;\n}" in page
    assert "&quot;&lt;b&gt;&quot;: [" in page
    assert "no-store" in answer["Cache-Control"]
    assert audit_rows() == [(message.uuid, None, {"by": "ada", "reason": "the recipient complained"})]


def test_what_the_client_left_out_has_no_heading(auditor: Browser) -> None:
    bare = AttemptFactory.create().message
    page = auditor.post(address(bare), REASON).content.decode()
    assert bare.text in page
    assert "Reference" not in page
    assert "Metadata" not in page


def test_a_reason_is_kept_without_the_blanks_around_it(auditor: Browser, message: Message) -> None:
    auditor.post(address(message), {"reason": "  she  asked \n"})
    assert [data["reason"] for _, _, data in audit_rows()] == ["she  asked"]


@pytest.mark.parametrize("method", ["get", "head", "put", "delete", "options", "patch"])
def test_nothing_but_a_post_shows_it(auditor: Browser, message: Message, method: str) -> None:
    answer = getattr(auditor, method)(f"{address(message)}?reason=why")
    assert "no-store" in answer["Cache-Control"]
    assert not leaks(answer.content.decode())
    assert audit_rows() == []


def test_each_look_is_a_row(auditor: Browser, message: Message) -> None:
    for _ in range(2):
        auditor.post(address(message), REASON)
    assert len(audit_rows()) == 2


def test_the_button_leads_to_the_question_why(auditor: Browser, message: Message) -> None:
    page = auditor.get(reverse("admin:otp_messages_message_change", args=[message.pk])).content.decode()
    assert address(message) in page
    answer = auditor.get(address(message), REASON)
    assert answer.status_code == 200
    assert 'name="reason"' in answer.content.decode()
    assert not leaks(answer.content.decode())
    assert audit_rows() == []


@pytest.mark.parametrize(
    ("reason", "is_taken"),
    [
        pytest.param("", False, id="nothing"),
        pytest.param("   ", False, id="blanks"),
        pytest.param("x", True, id="1"),
        pytest.param("x" * 200, True, id="200"),
        pytest.param("x" * 201, False, id="201"),
        pytest.param("x\x00", False, id="a NUL"),
    ],
)
def test_a_reason_has_1_to_200_characters(auditor: Browser, message: Message, reason: str, is_taken: bool) -> None:
    page = auditor.post(address(message), {"reason": reason}).content.decode()
    assert leaks(page) is is_taken
    assert len(audit_rows()) == is_taken


@pytest.mark.parametrize(
    "codenames",
    [
        pytest.param(("view_message",), id="may see messages"),
        pytest.param(("view_message", "change_message", "delete_message"), id="may change messages"),
        pytest.param(("reveal_message",), id="may not see messages"),
    ],
)
@pytest.mark.parametrize("method", ["get", "post"])
def test_others_are_refused_and_leave_no_row(message: Message, codenames: tuple[str, ...], method: str) -> None:
    answer = getattr(staff(*codenames), method)(address(message), REASON)
    assert answer.status_code == 403
    assert not leaks(answer.content.decode())
    assert audit_rows() == []


def test_a_stranger_is_sent_to_the_log_in(client: Browser, message: Message) -> None:
    answer = client.post(address(message), REASON)
    assert answer.status_code == 302
    assert "/login/" in answer["Location"]
    assert audit_rows() == []


def test_another_sites_form_shows_nothing(message: Message) -> None:
    browser = Browser(enforce_csrf_checks=True)
    browser.force_login(User.objects.create_superuser("root"))
    answer = browser.post(address(message), REASON)
    assert answer.status_code == 403
    assert not leaks(answer.content.decode())
    assert audit_rows() == []


def test_nothing_is_shown_when_the_audit_row_cannot_be_written(
    auditor: Browser, message: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_args: object, **_kwargs: object) -> None:
        raise DatabaseError("no room")

    monkeypatch.setattr("otp_service.messages.reveal.events.record", fails)
    auditor.raise_request_exception = False
    answer = auditor.post(address(message), REASON)
    assert answer.status_code == 500
    assert not leaks(answer.content.decode())


@pytest.mark.parametrize("column", ["to", "text"])
def test_a_value_that_no_key_opens_is_said_so(auditor: Browser, message: Message, column: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f'UPDATE otp_messages_message SET "{column}" = %s', [b"nonsense"])
    answer = auditor.post(address(message), REASON)
    page = answer.content.decode()
    assert answer.status_code == 200
    assert "No key in FIELD_ENCRYPTION_KEYS opens this message" in page
    assert not leaks(page)
    assert "Canary" not in page
    with pytest.raises(Unreadable):
        reveal(message.pk, now=NOON, by="ada", reason="why")
    assert audit_rows() == []  # nothing was seen


@pytest.mark.parametrize("key", ["nonsense", "99999999999999999999999", "4711"])
def test_a_message_that_there_is_not(auditor: Browser, key: str) -> None:
    assert auditor.post(f"/admin/otp_messages/message/{key}/show/", REASON).status_code == 404
    with pytest.raises(Message.DoesNotExist):
        reveal(4711, now=NOON, by="ada", reason="why")


def test_a_text_is_shown_as_it_is_and_not_run(auditor: Browser, message: Message) -> None:
    Message.objects.filter(pk=message.pk).update(text="<script>alert(1)</script>\nCode 1")
    page = auditor.post(address(message), REASON).content.decode()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\nCode 1" in page


def test_neither_is_left_anywhere_else(auditor: Browser, message: Message, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    auditor.post(address(message), REASON)
    ours = [record for record in caplog.records if record.name != "django.db.backends"]  # silent outside DEBUG
    sessions = [session.get_decoded() for session in Session.objects.all()]
    cookies = [cookie.value for cookie in auditor.cookies.values()]
    kept = [list(Event.objects.values()), list(LogEntry.objects.values()), sessions, cookies]
    assert not leaks(str(kept))
    assert not leaks(str([(record.getMessage(), record.__dict__) for record in ours]))
    assert not leaks(repr(reveal(message.pk, now=NOON, by="ada", reason="why")))


def named_patterns(patterns: list[URLPattern | URLResolver]) -> list[URLPattern]:
    found: list[URLPattern] = []
    for pattern in patterns:
        found += named_patterns(pattern.url_patterns) if isinstance(pattern, URLResolver) else [pattern]
    return [pattern for pattern in found if pattern.name]


def every_address(keys: dict[str, int]) -> list[str]:
    """Each address of the app in the admin; those of a row with that row's key."""
    addresses = []
    for pattern in named_patterns(admin.site.urls[0]):
        assert pattern.name is not None
        if pattern.name.startswith("otp_messages_"):
            model = pattern.name.split("_")[2]
            arguments = [keys[model]] if "object_id" in pattern.pattern.regex.groupindex else []
            addresses.append(reverse(f"admin:{pattern.name}", args=arguments))
    return addresses


QUERIES: list[dict[str, str]] = [
    {"q": "Canary"},
    {"q": "Canary", "_to_field": "text"},
    {"_popup": "1", "_to_field": "to"},
    {"text__contains": "Canary"},
    {"to__isnull": "0"},
    {"o": "1"},
    {"e": "1"},
    {"all": ""},
]


def test_a_viewer_sees_neither_at_any_address_of_the_app(message: Message) -> None:
    verbs = ("view", "change", "add", "delete")
    models = ("message", "attempt", "client", "apikey", "flow", "campaign", "recipient", "invalidreport")
    viewer = staff(*(f"{verb}_{model}" for verb in verbs for model in models), "view_event", "view_logentry")
    viewer.raise_request_exception = False
    key = ApiKeyFactory.create(client=message.client)
    keys = {"message": message.pk, "client": message.client_id, "apikey": key.pk, "flow": message.flow_id}
    keys["campaign"] = CampaignFactory.create(client=message.client).pk
    keys["recipient"] = Recipient.objects.create(recipient_hash=message.to_hash, changed_at=NOON).pk
    keys["invalidreport"] = InvalidReport.objects.create(recipient_hash=message.to_hash, route="sms:one", at=NOON).pk
    addresses = every_address(keys)
    assert address(message) in addresses
    assert len(addresses) >= 4 * len(keys)
    pages = [viewer.get(one) for one in addresses]
    listing = reverse("admin:otp_messages_message_changelist")
    pages += [viewer.get(listing, query) for query in QUERIES]
    pages += [viewer.get(listing, {"q": sought}) for sought in (str(message.uuid), "0034-612-345678")]
    pages += [viewer.get(listing, query) for query in ({"metadata__code": "739184"}, {"reference__contains": "6123"})]
    written = Event.objects.create(
        type="message.sent", at=NOON, client_id=7, subject_uuid=message.uuid, data={"reference": REFERENCE}
    )
    of_events = reverse("admin:events_event_changelist")
    pages += [viewer.get(of_events), viewer.get(reverse("admin:events_event_change", args=[written.pk]))]
    for field in ("message", "client", "flow"):
        query = {"app_label": "otp_messages", "model_name": "attempt", "field_name": field, "term": ""}
        pages.append(viewer.get(reverse("admin:autocomplete"), query))
    pages += [
        viewer.get(reverse("admin:search"), {"s": "message", "extended": "1"}),
        viewer.get(reverse("admin:index")),
    ]
    pages += [viewer.post(one, REASON | {"post": "yes"}) for one in addresses]
    opened = [answer for answer in pages if answer.status_code == 200]
    assert sum(str(message.uuid) in answer.content.decode() for answer in opened) >= 3
    assert [answer.request["PATH_INFO"] for answer in pages if leaks(answer.content.decode())] == []
    assert [answer.request["PATH_INFO"] for answer in pages if answer.status_code >= 500] == []
    assert audit_rows() == []
