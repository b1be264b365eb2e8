"""Operators find messages and read what happened to them; they see no text and no whole number."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection, transaction
from django.test import Client as Browser
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from factory.django import DjangoModelFactory

from otp_service.messages.admin_messages import AmongTheNewest
from otp_service.messages.models import Message
from otp_service.web.admin import BoundedPaginator
from otp_service.web.fields import keyed_hashes
from tests.factories import NOON, AttemptFactory, ClientFactory, FlowFactory, MessageFactory, ServerFactory

pytestmark = pytest.mark.django_db

FACTORIES: dict[str, type[DjangoModelFactory[Any]]] = {"flow": FlowFactory, "message": MessageFactory}
MESSAGES = "/admin/otp_messages/message/"


@pytest.fixture(autouse=True)
def at_five_past(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otp_service.messages.admin_messages.utc_now", lambda: NOON + dt.timedelta(minutes=5))


def page_of(model: str, pk: int) -> str:
    return reverse(f"admin:otp_messages_{model}_change", args=[pk])


def shown(browser: Browser, address: str, **query: str) -> str:
    answer = browser.get(address, query)
    assert answer.status_code == 200
    return answer.content.decode()


def found(browser: Browser, term: str) -> set[Message]:
    return set(browser.get(MESSAGES, {"q": term}).context["cl"].result_list)


def queries_of(browser: Browser, address: str) -> int:
    with CaptureQueriesContext(connection) as captured:
        shown(browser, address)
    return len(captured)


@pytest.mark.parametrize("model", FACTORIES)
def test_list_takes_as_many_queries_for_ten_rows_as_for_one(admin_client: Browser, model: str) -> None:
    address = reverse(f"admin:otp_messages_{model}_changelist")
    counts = []
    for number in (1, 9):
        FACTORIES[model].create_batch(number)
        counts.append(queries_of(admin_client, address))
    assert counts[0] == counts[1]


def test_page_takes_as_many_queries_for_four_attempts_as_for_one(admin_client: Browser) -> None:
    first = AttemptFactory.create(state="failed", finished_at=NOON)
    address = page_of("message", first.message.pk)
    queries_of(admin_client, address)  # fills caches
    few = queries_of(admin_client, address)
    for number in (2, 3, 4):
        AttemptFactory.create(message=first.message, number=number, state="failed", finished_at=NOON)
    assert queries_of(admin_client, address) == few


@pytest.mark.parametrize("model", FACTORIES)
@pytest.mark.parametrize("action", ["add", "delete", "change"])
def test_what_services_write_is_not_edited(admin_client: Browser, model: str, action: str) -> None:
    arguments = [] if action == "add" else [FACTORIES[model].create().pk]
    assert admin_client.post(reverse(f"admin:otp_messages_{model}_{action}", args=arguments), {}).status_code == 403


def test_message_shows_no_text_and_no_whole_number(admin_client: Browser) -> None:
    message = MessageFactory.create(
        text="Your code is 739184", number="+34612345678", addresses='{"push": "token-739184"}'
    )
    for address in (MESSAGES, page_of("message", message.pk)):
        with CaptureQueriesContext(connection) as queries:
            page = shown(admin_client, address)
        for secret in ("text", "addresses"):
            assert not [query for query in queries if f'"otp_messages_message"."{secret}"' in query["sql"]]
        assert str(message.uuid) in page
        assert "+34 6•• ••• •78" in page
        assert "739184" not in page
        assert "612345678" not in page


def test_a_number_that_no_key_opens_does_not_stop_the_page(admin_client: Browser) -> None:
    message = MessageFactory.create()
    with connection.cursor() as cursor:
        cursor.execute('UPDATE otp_messages_message SET "to" = %s', [b"nonsense"])
    for address in (MESSAGES, page_of("message", message.pk)):
        assert "no key opens it" in shown(admin_client, address)


@pytest.mark.parametrize("found_by", ["uuid", "reference"])
def test_message_is_found_by(admin_client: Browser, found_by: str) -> None:
    wanted, _ = MessageFactory.create(reference="order 42"), MessageFactory.create(reference="order 421")
    assert found(admin_client, f" {getattr(wanted, found_by)} ") == {wanted}


@pytest.mark.parametrize(
    "reference", ["for +34612345678", "+34612345678", "0f8fad5b-d9cb-469f-a165-70867728950e", "12345678"]
)
def test_message_is_found_by_its_whole_reference_whatever_that_looks_like(
    admin_client: Browser, reference: str
) -> None:
    wanted, _ = MessageFactory.create(reference=reference), MessageFactory.create(reference=f"{reference} 2")
    assert found(admin_client, reference) == {wanted}


def test_a_reference_shows_no_whole_number_and_metadata_is_not_read(admin_client: Browser) -> None:
    message = MessageFactory.create(reference="for +34612345678", metadata={"code": "739184"})
    for address in (MESSAGES, page_of("message", message.pk)):
        with CaptureQueriesContext(connection) as captured:
            page = shown(admin_client, address)
        assert "for +34 6•• ••• •78" in page
        assert "612345678" not in page
        assert "739184" not in page
        assert not [query for query in captured if '"otp_messages_message"."metadata"' in query["sql"]]


@pytest.mark.parametrize("written", ["+34612345678", "0034 612 345 678", "+34 612-345-678"])
def test_message_is_found_by_its_whole_number(admin_client: Browser, written: str) -> None:
    wanted, _ = MessageFactory.create(number="+34612345678"), MessageFactory.create(number="+34612345679")
    assert found(admin_client, written) == {wanted}


@pytest.mark.parametrize("part", ["612345678", "+3461234567", "+34612", "5678"])
def test_message_is_not_found_by_a_part_of_its_number(admin_client: Browser, part: str) -> None:
    MessageFactory.create(number="+34612345678")
    assert found(admin_client, part) == set()


def test_message_is_found_by_its_number_after_the_key_was_changed(admin_client: Browser, settings: Any) -> None:
    wanted = MessageFactory.create(number="+34612345678")
    keyed_hashes.cache_clear()
    try:
        with override_settings(HASH_KEYS={"new": b"n" * 32} | settings.HASH_KEYS):
            assert found(admin_client, "+34612345678") == {wanted}
    finally:
        keyed_hashes.cache_clear()


def copy_20_000_times(pattern: Message) -> None:
    """Each to a recipient, and with a reference, of its own."""
    own = {"id", "uuid", "to_hash", "reference"}
    columns = [field.column for field in Message._meta.concrete_fields if field.column not in own]
    names = ", ".join(f'"{name}"' for name in columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO otp_messages_message (uuid, to_hash, reference, {names}) "
            f"SELECT gen_random_uuid(), sha256(nth::text::bytea), 'order ' || nth, {names} "
            "FROM otp_messages_message, generate_series(1, 20000) nth WHERE id = %s",
            [pattern.pk],
        )
        cursor.execute("ANALYZE otp_messages_message")


def plans(captured: CaptureQueriesContext, condition: str) -> list[str]:
    """How the queries with that condition are carried out."""
    told = []
    for sql in [query["sql"] for query in captured if condition in query["sql"]]:
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN " + sql.replace("%", "%%"), {})
            told.append(str(cursor.fetchall()))
    return told


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        pytest.param("number", "message_by_recipient", id="number"),
        pytest.param("uuid", "otp_messages_message_uuid_key", id="uuid"),
        pytest.param("reference", "message_by_reference", id="reference"),
    ],
)
def test_what_is_searched_for_is_looked_up_by_indexes(admin_client: Browser, asked: str, index: str) -> None:
    pattern = MessageFactory.create(number="+34612345678", reference="the first")
    copy_20_000_times(pattern)
    term = "+34612345678" if asked == "number" else str(getattr(pattern, asked))
    with CaptureQueriesContext(connection) as captured:
        assert found(admin_client, term) == {pattern}
    told = plans(captured, '"reference" =')
    assert len(told) == 2  # counted, and read
    assert all(index in plan and "Seq Scan on otp_messages_message" not in plan for plan in told), told


@pytest.mark.parametrize("asked", [{"status": "cancelled"}, {"lane": "promo"}])
def test_filters_look_at_the_newest_messages_only(
    admin_client: Browser, monkeypatch: pytest.MonkeyPatch, asked: dict[str, str]
) -> None:
    ended = {"status": "cancelled", "finished_at": NOON, "final_reason": "cancelled", "flow__lane": "promo"}
    old = MessageFactory.create(reference="old", **ended)
    copy_20_000_times(MessageFactory.create())
    first, second = MessageFactory.create(**ended), MessageFactory.create(**ended)
    monkeypatch.setattr(AmongTheNewest, "MOST", second.pk - first.pk + 1)
    with CaptureQueriesContext(connection) as captured:
        assert set(admin_client.get(MESSAGES, asked).context["cl"].result_list) == {first, second}
    told = plans(captured, f'"{next(iter(asked))}" =')
    assert told
    # By the key, or by the client's index, which ends in it: either reads no more than the newest.
    assert all("Index" in plan and "Seq Scan on otp_messages_message" not in plan for plan in told), told
    assert set(admin_client.get(MESSAGES, asked | {"q": "old"}).context["cl"].result_list) == {old}


@pytest.mark.parametrize("asked", [{"status": "cancelled"}, {"lane": "promo"}])
def test_messages_are_filtered_by(admin_client: Browser, asked: dict[str, str]) -> None:
    ended = {"status": "cancelled", "finished_at": NOON, "final_reason": "cancelled"}
    wanted = MessageFactory.create(flow__lane="promo", **ended)
    MessageFactory.create()
    assert set(admin_client.get(MESSAGES, asked).context["cl"].result_list) == {wanted}


def test_messages_are_filtered_by_client(admin_client: Browser) -> None:
    wanted, _ = MessageFactory.create(), MessageFactory.create(flow=FlowFactory.create(client=ClientFactory.create()))
    answer = admin_client.get(MESSAGES, {"client__id__exact": str(wanted.client_id)})
    assert set(answer.context["cl"].result_list) == {wanted}


@pytest.mark.parametrize(
    "asked", ["text", "text__contains", "to", "to_hash", "metadata__a", "flow__client__name", "nonsense"]
)
def test_an_address_asks_about_nothing_but_the_filters(admin_client: Browser, asked: str) -> None:
    MessageFactory.create()
    assert admin_client.get(MESSAGES, {asked: "x"}).status_code == 400


def test_messages_are_counted_up_to_a_bound(admin_client: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedPaginator, "MOST", 3)
    MessageFactory.create_batch(5)
    with CaptureQueriesContext(connection) as captured:
        answer = admin_client.get(MESSAGES)
    assert answer.context["cl"].result_count == 3
    counted = [
        query["sql"] for query in captured if "COUNT(" in query["sql"] and "otp_messages_message" in query["sql"]
    ]
    assert counted
    assert all("LIMIT 3" in sql for sql in counted)


def test_page_tells_what_happened_and_why(admin_client: Browser) -> None:
    server = ServerFactory.create(region="es", unit=228)
    attempt = AttemptFactory.create(
        server=server,
        state="not_submitted",
        submission="refused",
        error_class="sender_fault",
        error_code=120,
        duration_ms=400,
        finished_at=NOON,
        message__status="failed",
        message__finished_at=NOON,
        message__final_reason="attempts_exhausted",
    )
    page = shown(admin_client, page_of("message", attempt.message.pk))
    assert "Accepted at 12:00:00 in lane otp" in page
    told = "Attempt 1 over imessage:es by es 228: it was refused (code 120, the sender&#x27;s fault) after 0.4 s."
    assert told in page
    assert "Ended failed at 12:00:00: every attempt that it may have failed." in page
    assert reverse("admin:servers_server_change", args=[server.pk]) in page
    assert "400 ms" in page


def test_page_shows_how_a_message_may_go_on_and_what_an_attempt_cost(admin_client: Browser) -> None:
    message = MessageFactory.create(
        sender_name="ACME",
        supersede_key="log-in of +34612345678",
        on_unknown="race",
        max_routes=7,
        status="waiting",
        run_after=NOON,
        refusals={"sms:one": "breaker_open", "sms:two": "hours"},
    )
    AttemptFactory.create(
        message=message,
        server=None,
        route="sms:three",
        possible_duplicate=True,
        parts=2,
        cost=Decimal("0.0905"),
        currency="EUR",
        refusals={"sms:one": "breaker_open"},
    )
    page = shown(admin_client, page_of("message", message.pk))
    for told in ("ACME", "log-in of +34 6•• ••• •78", "race", "0.090500 EUR", "although an earlier copy may have left"):
        assert told in page
    assert "612345678" not in page
    assert page.count("Not over sms:one: too many failures of late") == 2
    assert "not over sms:two: closed at this time of day." in page


def test_page_reads_no_reply_of_a_host(admin_client: Browser) -> None:
    attempt = AttemptFactory.create(raw_reply="you wrote: 739184")
    with CaptureQueriesContext(connection) as captured:
        page = shown(admin_client, page_of("message", attempt.message.pk))
    assert "739184" not in page
    assert not [query for query in captured if "raw_reply" in query["sql"]]


def test_who_may_see_messages_sees_their_attempts_too(client: Browser) -> None:
    viewer = User.objects.create_user("eve", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_message"))
    client.force_login(viewer)
    attempt = AttemptFactory.create(route="imessage:zp", error_code=4711)
    page = shown(client, page_of("message", attempt.message.pk))
    assert "4711" in page
    assert "Show text and recipient" not in page


@pytest.mark.parametrize("key", ["nonsense", "99999999999999999999999", "4711"])
def test_a_message_that_there_is_not_leads_to_the_front_page(admin_client: Browser, key: str) -> None:
    assert admin_client.get(f"{MESSAGES}{key}/change/").status_code == 302


def test_search_takes_what_nobody_would_write(admin_client: Browser) -> None:
    with transaction.atomic():
        for term in ("%", "'", "\\", "+", "00", "é" * 400, "+34" + "0" * 50, "١٢٣"):
            assert found(admin_client, term) == set()
