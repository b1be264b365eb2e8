"""Our settings, read anew under an environment of a test's own."""

from __future__ import annotations

import base64
import os
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
KEY = base64.b64encode(bytes(32)).decode()
#: What is required, as a production would say it.
REQUIRED: dict[str, str] = {
    "DJANGO_SECRET_KEY": "given",
    "DATABASE_URL": "postgres://user:password@db.example/otp",
    "REDIS_URL": "redis://redis.example:6379/0",
    "FIELD_ENCRYPTION_KEYS": f"k1:{KEY}",
    "HASH_KEYS": f"h1:{KEY}",
}


def read_settings(environ: Mapping[str, str]) -> dict[str, Any]:
    """What the settings say where nothing but `environ` is set. This process keeps its own, and its logs."""
    with (
        mock.patch.dict(os.environ, environ, clear=True),
        mock.patch("otp_service.core.logs.logging_config", autospec=True),
    ):
        return runpy.run_path(str(ROOT / "otp_service/settings.py"))
