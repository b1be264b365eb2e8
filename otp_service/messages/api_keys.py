"""Keys of clients: made once, shown once, and recognised without being kept.

A key is `otp_<prefix>_<secret>`. The prefix finds its row; of the secret, 256 random bits, only SHA-256 is stored.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import re
import secrets
import string
from collections.abc import Iterable
from datetime import datetime

from django.db import connection, transaction

from otp_service.core.errors import ServiceError
from otp_service.events import log as events
from otp_service.messages.models import ApiKey, Client
from otp_service.web.authentication import Caller

_PREFIX_LENGTH = 12
_PREFIX_LETTERS = string.ascii_lowercase + string.digits  # no underscore: it separates the parts
_SECRET_BYTES = 32
#: Who made or revoked a key, where no user of the admin did.
COMMAND_LINE = "command line"
_WRITTEN = re.compile(r"otp_([a-z0-9]{12})_([A-Za-z0-9_-]{43})", re.ASCII)

# Written out: it runs with every request, and the ORM takes many times as long to say the same.
_FIND = f"""
SELECT key.digest, key.scopes, key.expires_at, key.revoked_at, key.client_id, client.enabled
FROM {ApiKey._meta.db_table} key JOIN {Client._meta.db_table} client ON client.id = key.client_id
WHERE key.prefix = %s
"""  # noqa: S608 - the tables' own names


class Scope(enum.StrEnum):
    """What a key allows."""

    MESSAGES = "messages"  # post, read and cancel the client's own messages


class KeyRefused(ServiceError):
    """A key that opens nothing."""

    status = 401


def create(
    client: Client, scopes: Iterable[Scope], now: datetime, expires_at: datetime | None = None
) -> tuple[ApiKey, str]:
    """A new key and its text. The text cannot be had again."""
    prefix = "".join(secrets.choice(_PREFIX_LETTERS) for _ in range(_PREFIX_LENGTH))
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    key = ApiKey.objects.create(
        client=client,
        prefix=prefix,
        digest=_digest(secret),
        scopes=sorted({scope.value for scope in scopes}),
        created_at=now,
        expires_at=expires_at,
    )
    return key, f"otp_{prefix}_{secret}"


def issue(
    client: Client, scopes: Iterable[Scope], *, now: datetime, expires_at: datetime | None = None, by: str
) -> tuple[ApiKey, str]:
    """`create`, and the Event that says who did it."""
    with transaction.atomic():
        key, text = create(client, scopes, now, expires_at)
        _record("api_key.created", key, now, by)
    return key, text


def revoke(prefix: str, *, now: datetime, by: str = COMMAND_LINE) -> bool:
    """End a key at once, with an Event. False if there is none, or it was revoked before."""
    with transaction.atomic():
        rows = ApiKey.objects.select_for_update(no_key=True, of=("self",)).select_related("client")
        key = rows.filter(prefix=prefix, revoked_at__isnull=True).first()
        if key is None:
            return False
        key.revoked_at = now
        key.save(update_fields=["revoked_at"])
        _record("api_key.revoked", key, now, by)
    return True


def _record(event_type: str, key: ApiKey, now: datetime, by: str) -> None:
    """No `client_id`: who of our people did it is not the client's business."""
    events.record(event_type, at=now, subject_uuid=key.client.uuid, data={"prefix": key.prefix, "by": by})


def caller(token: str, *, now: datetime) -> Caller:
    """The client whose key this is, in one query. Raises KeyRefused.

    What a key's state is, only the holder of its secret is told.
    """
    parts = _WRITTEN.fullmatch(token)
    if parts is None:
        raise _not_valid()
    with connection.cursor() as cursor:
        cursor.execute(_FIND, [parts[1]])
        row = cursor.fetchone()
    digest, scopes, expires_at, revoked_at, client_id, enabled = row or (b"", [], None, None, 0, False)
    if not hmac.compare_digest(bytes(digest), _digest(parts[2])):
        raise _not_valid()
    if revoked_at is not None:
        raise KeyRefused("This key was revoked: use another.", code="key_revoked")
    if expires_at is not None and expires_at <= now:
        raise KeyRefused("This key has expired: ask for a new one.", code="key_expired")
    if not enabled:
        raise KeyRefused("This client is disabled: ask the operator.", code="client_disabled")
    return Caller(client_id, frozenset(scopes))


def _not_valid() -> KeyRefused:
    return KeyRefused("This key is not valid: check that it was copied whole.", code="key_not_valid")


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
