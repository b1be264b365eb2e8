"""Standard Webhooks signatures: on what we post, and on what is posted to us.

Signed is `<id>.<unix seconds>.<raw body>` with HMAC-SHA256; the header carries `v1,<base64>`, once per
secret while secrets are rotated. A secret's text is `whsec_<base64>`. See standardwebhooks.com.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from secrets import token_bytes

from otp_service.core.errors import ServiceError

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"

#: How far the sender's clock may be from ours, either way: a recorded call is worthless after it.
TOLERANCE = timedelta(minutes=5)

SECRET_PREFIX = "whsec_"  # noqa: S105 - the marker in front of every secret, not one
SECRET_BYTES = 32  # as long as the digest: more adds nothing

_VERSION = "v1"
_ID_LIMIT = 256  # characters
_TIMESTAMP_LIMIT = 12  # digits: until the year 33658
_SIGNATURES_LIMIT = 16  # in one header; a rotation needs two


class SecretError(ServiceError):
    """A secret in our own configuration cannot be used. Not the caller's fault, who may try again later.

    It never holds the secret.
    """

    status = 503
    code = "signing_secret_unusable"
    title = "Signatures cannot be made or checked now"


class SignatureFault(enum.StrEnum):
    """Why a signature was not accepted."""

    MISSING_HEADER = "missing_header"
    MALFORMED_HEADER = "malformed_header"
    TOO_OLD = "too_old"
    TOO_NEW = "too_new"
    NO_MATCH = "no_match"


_SENTENCES: Mapping[SignatureFault, str] = {
    SignatureFault.MISSING_HEADER: f"Send the headers {ID_HEADER}, {TIMESTAMP_HEADER} and {SIGNATURE_HEADER}.",
    SignatureFault.MALFORMED_HEADER: "A signature header is malformed: see Standard Webhooks for their shape.",
    SignatureFault.TOO_OLD: "The timestamp is over 5 minutes old: check the clock, and sign every repetition anew.",
    SignatureFault.TOO_NEW: "The timestamp is over 5 minutes ahead: check the clock.",
    SignatureFault.NO_MATCH: "No signature matches: check the secret, and sign the exact bytes of the body.",
}


class SignatureError(ServiceError):
    """A call that is not signed by somebody who knows a valid secret, at about this time."""

    status = 401
    code = "invalid_signature"
    title = "The signature was not accepted"

    def __init__(self, reason: SignatureFault) -> None:
        super().__init__(_SENTENCES[reason], reason=reason.value)
        self.reason = reason


def new_secret(draw: Callable[[int], bytes] = token_bytes) -> str:
    """A fresh secret; `draw(n)` gives n random bytes."""
    return SECRET_PREFIX + base64.b64encode(draw(SECRET_BYTES)).decode("ascii")


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """One signature, `v1,<base64>`. `timestamp` is in unix seconds."""
    digest = _digest(_key(secret), message_id, str(timestamp), body)
    return f"{_VERSION},{base64.b64encode(digest).decode('ascii')}"


def signature_headers(secrets: Sequence[str], *, message_id: str, now: datetime, body: bytes) -> dict[str, str]:
    """The three headers, with one signature per secret: the receiver may know the old one or the new one."""
    _refuse_none(secrets)
    timestamp = int(now.timestamp())
    return {
        ID_HEADER: message_id,
        TIMESTAMP_HEADER: str(timestamp),
        SIGNATURE_HEADER: " ".join(sign(secret, message_id, timestamp, body) for secret in secrets),
    }


def verify(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, *, now: datetime) -> None:
    """Return if any signature in `headers` was made over these bytes with any of `secrets`.

    Raises SignatureError whatever the caller sent, and SecretError when one of our secrets is unusable.
    """
    keys = [_key(secret) for secret in _refuse_none(secrets)]
    message_id, timestamp, offered = _read(headers)
    _refuse_wrong_time(int(timestamp), now)
    expected = [_digest(key, message_id, timestamp, body) for key in keys]
    # Every pair is compared, so that the time taken does not say which one matched.
    matches = [hmac.compare_digest(ours, theirs) for ours in expected for theirs in offered]
    if not any(matches):
        raise SignatureError(SignatureFault.NO_MATCH)


def _digest(key: bytes, message_id: str, timestamp: str, body: bytes) -> bytes:
    return hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)


def _key(secret: str) -> bytes:
    encoded = secret.removeprefix(SECRET_PREFIX).rstrip("=")
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except ValueError:
        # `from None`: the inner error would carry what it could not decode.
        raise SecretError(f"A signing secret is not {SECRET_PREFIX}<base64>.") from None
    if not key:
        raise SecretError("A signing secret is empty.")
    return key


def _refuse_none(secrets: Sequence[str]) -> Sequence[str]:
    if isinstance(secrets, str):
        raise SecretError("Secrets come as a list: a text alone would be read letter by letter.")
    if not secrets:
        raise SecretError("There is no signing secret.")
    return secrets


def _read(headers: Mapping[str, str]) -> tuple[str, str, list[bytes]]:
    given = {name.lower(): value for name, value in headers.items()}
    message_id, timestamp, signatures = (
        given.get(name, "") for name in (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER)
    )
    if not (message_id and timestamp and signatures):
        raise SignatureError(SignatureFault.MISSING_HEADER)
    if not (_is_id(message_id) and _is_timestamp(timestamp)):
        raise SignatureError(SignatureFault.MALFORMED_HEADER)
    return message_id, timestamp, _offered(signatures)


def _is_id(text: str) -> bool:
    return len(text) <= _ID_LIMIT and text.isascii() and text.isprintable()


def _is_timestamp(text: str) -> bool:
    return len(text) <= _TIMESTAMP_LIMIT and text.isascii() and text.isdigit()


def _offered(header: str) -> list[bytes]:
    """The signatures of our version; others, and what cannot be read, are no match and no fault."""
    listed = header.split(" ", _SIGNATURES_LIMIT)
    if len(listed) > _SIGNATURES_LIMIT:
        raise SignatureError(SignatureFault.MALFORMED_HEADER)
    return [signature for item in listed if (signature := _decoded(item)) is not None]


def _decoded(item: str) -> bytes | None:
    version, _, encoded = item.partition(",")
    if version != _VERSION:
        return None
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None


def _refuse_wrong_time(timestamp: int, now: datetime) -> None:
    age = timedelta(seconds=now.timestamp() - timestamp)
    if age > TOLERANCE:
        raise SignatureError(SignatureFault.TOO_OLD)
    if age < -TOLERANCE:
        raise SignatureError(SignatureFault.TOO_NEW)
