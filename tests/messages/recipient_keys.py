"""Other HASH_KEYS for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from django.test import override_settings

from otp_service.web import fields


@contextmanager
def hash_keys(keys: Mapping[str, bytes]) -> Iterator[None]:
    """The first of them is for new rows, as after a change of the setting and a restart."""
    with override_settings(HASH_KEYS=keys):
        _forget()
        try:
            yield
        finally:
            _forget()


def _forget() -> None:
    for cached in (fields.keyed_hash, fields.keyed_hashes):
        cached.cache_clear()
