"""Model fields whose values are encrypted in the database, and the hash to look recipients up by."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.conf import settings
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from otp_service.core.crypto import FieldCipher, KeyedHash


@cache
def field_cipher() -> FieldCipher:
    """The cipher of this process, made from FIELD_ENCRYPTION_KEYS."""
    return FieldCipher(settings.FIELD_ENCRYPTION_KEYS)


@cache
def keyed_hash() -> KeyedHash:
    """The hash of this process for new rows, made from HASH_KEYS."""
    return KeyedHash.primary(settings.HASH_KEYS)


@cache
def keyed_hashes() -> tuple[KeyedHash, ...]:
    """Every hash that a stored row may have been made with, the one for new rows first."""
    return tuple(KeyedHash(key_id, key) for key_id, key in settings.HASH_KEYS.items())


def recipient_hash(address: str) -> bytes:
    """32 bytes by which everything about one recipient is found, without storing the number in clear."""
    return keyed_hash().digest(address, purpose="recipient")


def recipient_hashes(address: str) -> list[bytes]:
    """What `recipient_hash` may have been for older rows too: what to look for."""
    return [hashed.digest(address, purpose="recipient") for hashed in keyed_hashes()]


class EncryptedTextField(models.BinaryField):  # type: ignore[type-arg]  # generic in the stubs only
    """Text, stored encrypted; bound to its own column by authenticated data. Cannot be searched."""

    @property
    def purpose(self) -> str:
        """The name that is authenticated with each value."""
        return f"{self.model._meta.label_lower}.{self.name}"

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        if value is None:
            return None
        return super().get_db_prep_value(self.seal(value), connection, prepared)

    def from_db_value(self, value: Any, *_args: object) -> str | None:
        return None if value is None else self.open(value)

    def to_python(self, value: Any) -> Any:
        return value

    def value_to_string(self, obj: models.Model) -> str:
        raise TypeError(f"{self.purpose} is a secret: it is not serialised")

    def seal(self, text: str) -> bytes:
        """Encrypt a value for this column, for statements that the ORM does not write."""
        return field_cipher().encrypt(text, field=self.purpose)

    def open(self, stored: bytes | memoryview) -> str:
        """Decrypt a value of this column that a raw statement returned."""
        return field_cipher().decrypt(bytes(stored), field=self.purpose)


def encrypted_field(model: type[models.Model], name: str) -> EncryptedTextField:
    """The field itself, for sealing and opening values of statements that the ORM does not write."""
    found = model._meta.get_field(name)
    assert isinstance(found, EncryptedTextField)
    return found
