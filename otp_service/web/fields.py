"""Model fields whose values are encrypted in the database, and the hash to look recipients up by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from django.conf import settings
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.query_utils import DeferredAttribute

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


@dataclass(frozen=True, slots=True, repr=False)
class _Sealed:
    """A value as it was read. It is opened when somebody asks for it: one that no key opens stops nobody else."""

    stored: bytes


class _OpenedOnUse(DeferredAttribute):
    """The attribute of an encrypted field. Raises CryptoError where the value cannot be opened."""

    def __get__(self, instance: Any, cls: Any = None) -> Any:
        value = super().__get__(instance, cls)
        if not isinstance(value, _Sealed):
            return value
        assert isinstance(self.field, EncryptedTextField)
        opened = instance.__dict__[self.field.attname] = self.field.open(value.stored)
        return opened

    def __set__(self, instance: Any, value: Any) -> None:
        # Without it, what stands in the instance would be found before anybody asks here.
        instance.__dict__[self.field.attname] = value


class EncryptedTextField(models.BinaryField):  # type: ignore[type-arg]  # generic in the stubs only
    """Text, stored encrypted; bound to its own column by authenticated data. Cannot be searched."""

    descriptor_class = _OpenedOnUse

    @property
    def purpose(self) -> str:
        """The name that is authenticated with each value."""
        return f"{self.model._meta.label_lower}.{self.name}"

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        if value is None:
            return None
        return super().get_db_prep_value(self.seal(value), connection, prepared)

    def from_db_value(self, value: Any, *_args: object) -> _Sealed | None:
        return None if value is None else _Sealed(bytes(value))

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
