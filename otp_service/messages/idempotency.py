"""One key, one message: what a client's Idempotency-Key was answered with.

The key's row is written by the statement that stores the message. A second request with the key waits on the
unique index until the first commits, and then replays its answer; there are no leases, and nothing to clean up
after a crash. Refusals are not stored.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import OperationalError
from psycopg.errors import LockNotAvailable

from otp_service.core.errors import ServiceError
from otp_service.messages.models import IdempotencyKey
from otp_service.messages.plan import NewMessage
from otp_service.web.batches import remove_batch
from otp_service.web.fields import keyed_hash, keyed_hashes

KEY_WAIT = timedelta(seconds=2)  # how long a second request waits for the first
_PURPOSE = "idempotency"

#: Parts of the statement that stores a message: `patience` bounds the wait on the unique index, for this
#: transaction only and before the row is tried; `claimed` has a row if the key was free. Their parameters are
#: `KeyedRequest.claim_params`. Without a flow there is no claim: the statement does everything or nothing.
CLAIM = f"""patience AS MATERIALIZED (
  SELECT set_config('lock_timeout', %(key_wait)s, true) FROM flow
), claimed AS (
  INSERT INTO {IdempotencyKey._meta.db_table} (client_id, key, fingerprint, response, created_at)
  SELECT %(client_id)s, %(key)s, %(fingerprint)s, %(response)s::jsonb, %(key_used_at)s FROM patience
  ON CONFLICT (client_id, key) DO NOTHING RETURNING id
)"""  # noqa: S608 - the table's own name


class KeyReused(ServiceError):
    """The key was used for another request."""

    status = 422
    code = "idempotency_key_reused"
    title = "The request contradicts an earlier one"


class KeyInProgress(ServiceError):
    """Another request with the key is being carried out."""

    status = 409
    code = "idempotency_key_in_progress"
    title = "The request conflicts with another"

    def __init__(self) -> None:
        super().__init__(
            "A request with this Idempotency-Key is being carried out: ask again, with the same key and body.",
            retry_after_s=1,
        )


@dataclass(frozen=True, slots=True, repr=False)
class KeyedRequest:
    """A request and its key, in the form that two requests are compared in."""

    client_id: int
    key: str
    canonical: str

    @classmethod
    def of(cls, client_id: int, key: str, request: NewMessage) -> KeyedRequest:
        """The canonical form does not depend on the order of fields, on spelling, or on defaults being written out."""
        return cls(client_id, key, json.dumps(request.given(), sort_keys=True, default=str))

    def claim_params(self, response: Mapping[str, Any], now: datetime) -> dict[str, Any]:
        """What CLAIM needs to keep `response` for the key."""
        return {
            "key_wait": str(int(KEY_WAIT.total_seconds() * 1000)),  # ms
            "client_id": self.client_id,
            "key": self.key,
            "fingerprint": keyed_hash().digest(self.canonical, purpose=_PURPOSE),
            "response": json.dumps(response),
            "key_used_at": now,
        }


@contextmanager
def bounded_wait() -> Iterator[None]:
    """Around the statement that CLAIM is a part of: KeyInProgress if another one held the key for too long."""
    try:
        yield
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            raise KeyInProgress from None
        raise


def stored(request: KeyedRequest) -> dict[str, Any] | None:
    """What the key was answered with before, or None. Raises KeyReused."""
    return stored_among([request]).answer(request)


@dataclass(frozen=True, slots=True, repr=False)
class StoredAnswers:
    """What keys of one client were answered with before."""

    rows: Mapping[str, tuple[bytes, dict[str, Any]]]  # by key: fingerprint, answer

    def answer(self, request: KeyedRequest) -> dict[str, Any] | None:
        """As `stored`."""
        if request.key not in self.rows:
            return None
        fingerprint, response = self.rows[request.key]
        # The row may be older than the newest hash key.
        known = [hashed.digest(request.canonical, purpose=_PURPOSE) for hashed in keyed_hashes()]
        if not any(hmac.compare_digest(fingerprint, digest) for digest in known):
            raise KeyReused("This Idempotency-Key was used for another request: take a new key for a new message.")
        return response


def stored_among(requests: Sequence[KeyedRequest]) -> StoredAnswers:
    """What is stored of requests of one client, in one query."""
    if not requests:
        return StoredAnswers({})
    rows = IdempotencyKey.objects.filter(client_id=requests[0].client_id, key__in=[r.key for r in requests])
    found = rows.values_list("key", "fingerprint", "response")
    return StoredAnswers({key: (bytes(fingerprint), response) for key, fingerprint, response in found})


def remove_old(now: datetime, batch: int = 1000) -> int:
    """Remove a batch of keys that are older than IDEMPOTENCY_KEY_LIFE; returns how many. Safe beside itself."""
    old = IdempotencyKey.objects.filter(created_at__lt=now - settings.IDEMPOTENCY_KEY_LIFE).order_by("created_at")
    return remove_batch(old, batch)
