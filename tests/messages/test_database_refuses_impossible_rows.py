"""The database itself refuses rows that cannot be, whoever writes them."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError
from factory.django import DjangoModelFactory

from otp_service.messages.models import IdempotencyKey
from tests.factories import NOON, ApiKeyFactory, AttemptFactory, ClientFactory, FlowFactory, MessageFactory

pytestmark = pytest.mark.django_db


class IdempotencyKeyFactory(DjangoModelFactory[IdempotencyKey]):
    class Meta:
        model = IdempotencyKey

    key = "k"
    fingerprint = b"f" * 32
    response: dict[str, Any] = {}
    created_at = NOON


def key_of_a_client() -> IdempotencyKey:
    row: IdempotencyKey = IdempotencyKeyFactory.create(client=ClientFactory.create())
    return row


MAKE: dict[str, Any] = {
    "api_key": ApiKeyFactory.create,
    "attempt": AttemptFactory.create,
    "flow": FlowFactory.create,
    "idempotency": key_of_a_client,
    "message": lambda: MessageFactory.create(attempts_made=9, attempts_charged=2, max_attempts=2),
}

#: Constraint, what may be written, what may not: they differ in one thing.
ROWS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("api_key_digest_is_32_bytes", {"digest": b"d" * 32}, {"digest": b"d" * 31}),
    ("attempt_submission_known", {"submission": "accepted"}, {"submission": "perhaps"}),
    ("attempt_submission_known", {"submission": ""}, {"submission": " "}),
    ("attempt_error_class_known", {"error_class": "expired"}, {"error_class": "Expired"}),
    ("attempt_error_class_known", {"error_class": ""}, {"error_class": " "}),
    ("flow_has_a_pool", {"pools": ["us"]}, {"pools": []}),
    ("idempotency_fingerprint_is_32_bytes", {"fingerprint": b"e" * 32}, {"fingerprint": b"e" * 31}),
    ("message_charged_within_max", {"attempts_charged": 2}, {"attempts_charged": 3}),
    ("message_attempts_bounded", {"attempts_made": 2}, {"attempts_made": 1}),
    (
        "message_may_be_attempted",
        {"attempts_charged": 0, "max_attempts": 1},
        {"attempts_charged": 0, "max_attempts": 0},
    ),
    ("message_on_late_first_known", {"on_late_first": "expire"}, {"on_late_first": "drop"}),
    ("message_to_hash_is_32_bytes", {"to_hash": "é".encode() * 16}, {"to_hash": "é".encode() * 16 + b"!"}),
]


@pytest.mark.parametrize(("constraint", "possible", "impossible"), ROWS)
def test_refuses(constraint: str, possible: dict[str, Any], impossible: dict[str, Any]) -> None:
    row = next(make for prefix, make in MAKE.items() if constraint.startswith(prefix))()
    rows = type(row).objects.filter(pk=row.pk)
    assert rows.update(**possible) == 1
    with pytest.raises(IntegrityError, match=f'"{constraint}"'):
        rows.update(**impossible)
