"""Encryption of single fields (AES-256-GCM with key ids) and keyed hashes for looking them up.

A stored value is `version (1 byte) | key id length (1) | key id | nonce (12) | ciphertext and tag`.
The name of the field is authenticated with it, so a value copied into another column does not open.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_VERSION = 1
_NONCE_BYTES = 12  # what GCM is specified for
_KEY_BYTES = 32  # AES-256, and as much for HMAC-SHA256


class CryptoError(Exception):
    """A key or a value cannot be used; the message names the key id, never the key or the value."""


def parse_keys(text: str) -> dict[str, bytes]:
    """Turn `id:base64,id:base64` into keys by id; the first one is used for writing.

    Raises CryptoError for an empty list, an id that is not 1 to 32 plain characters, a repeated id, and a
    key that is not base64 of 32 bytes.
    """
    keys: dict[str, bytes] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key_id, _, encoded = part.partition(":")
        if not (key_id.isascii() and key_id.isalnum() and len(key_id) <= 32):
            raise CryptoError("a key is written id:base64, its id 1 to 32 letters and digits")
        if key_id in keys:
            raise CryptoError(f"the key id {key_id} stands twice")
        keys[key_id] = _decode_key(key_id, encoded)
    if not keys:
        raise CryptoError("no key given")
    return keys


def _decode_key(key_id: str, encoded: str) -> bytes:
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise CryptoError(f"key {key_id} is not base64") from None
    if len(key) != _KEY_BYTES:
        raise CryptoError(f"key {key_id} has {len(key)} bytes, {_KEY_BYTES} are needed")
    return key


class FieldCipher:
    """Encrypts with the first key, decrypts with whichever key a value names."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._primary = next(iter(keys))
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.items()}

    def encrypt(self, plaintext: str, *, field: str) -> bytes:
        """Encrypt `plaintext` for the column named `field`."""
        key_id = self._primary.encode()
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._ciphers[self._primary].encrypt(nonce, plaintext.encode(), field.encode())
        return bytes((_VERSION, len(key_id))) + key_id + nonce + sealed

    def decrypt(self, stored: bytes, *, field: str) -> str:
        """Open what `encrypt` made for the same column. Raises CryptoError if it cannot be opened."""
        if len(stored) < 2 or stored[0] != _VERSION:
            raise CryptoError(f"{field}: not a value that this service encrypted")
        start = 2 + stored[1]
        key_id = stored[2:start].decode(errors="replace")
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise CryptoError(f"{field}: key {key_id} is not among FIELD_ENCRYPTION_KEYS")
        nonce, sealed = stored[start : start + _NONCE_BYTES], stored[start + _NONCE_BYTES :]
        try:
            return cipher.decrypt(nonce, sealed, field.encode()).decode()
        except InvalidTag:
            raise CryptoError(f"{field}: the value was changed, or belongs to another column") from None


@dataclass(frozen=True, slots=True, repr=False)
class KeyedHash:
    """HMAC-SHA256 under a key: the same value gives the same 32 bytes, and nobody else can compute them."""

    key_id: str
    key: bytes

    @classmethod
    def primary(cls, keys: Mapping[str, bytes]) -> KeyedHash:
        """The hash that new rows are written with."""
        key_id = next(iter(keys))
        return cls(key_id, keys[key_id])

    def digest(self, value: str | bytes, *, purpose: str) -> bytes:
        """The hash of `value` for one `purpose`; the same value under another purpose gives other bytes."""
        data = value.encode() if isinstance(value, str) else value
        return hmac.digest(self.key, purpose.encode() + b"\x00" + data, "sha256")
