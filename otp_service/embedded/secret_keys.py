"""The secrets of an embedded installation: made once, kept in the state directory, readable by its owner only."""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from otp_service.embedded.errors import EmbeddedServerError

_KEY_BYTES = 32  # AES-256, and as much for the keyed hashes


def _key_with_id(key_id: str) -> str:
    return f"{key_id}:{base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()}"


#: Environment variable → how its value is made.
_MAKERS: Mapping[str, Callable[[], str]] = {
    "DJANGO_SECRET_KEY": lambda: secrets.token_urlsafe(50),
    "FIELD_ENCRYPTION_KEYS": lambda: _key_with_id("k1"),
    "HASH_KEYS": lambda: _key_with_id("h1"),
    "MANAGE_SERVERS_API_AUTH_KEY": lambda: secrets.token_urlsafe(_KEY_BYTES),
}


def read_or_make_secrets(path: Path) -> dict[str, str]:
    """The secrets in `path`; those that are missing are made and written."""
    known = _read(path)
    missing = {name: make() for name, make in _MAKERS.items() if name not in known}
    if missing:
        known |= missing
        write_private_json(path, known)
    return known


def write_private_json(path: Path, content: Mapping[str, object]) -> None:
    """Write `path` whole or not at all, with mode 600 from its first byte on."""
    partial = path.with_suffix(".part")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(content, file, indent=2)
        file.write("\n")
    partial.replace(path)


def _read(path: Path) -> dict[str, str]:
    try:
        stored = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError:
        stored = None
    if not isinstance(stored, dict):
        raise EmbeddedServerError(
            f"{path} is not readable JSON. What is encrypted in the database needs the keys in it: restore it, "
            "or remove the whole state directory to begin again."
        )
    return {str(name): str(value) for name, value in stored.items()}
