"""One HTTP call, without a client library in between."""

from __future__ import annotations

import http.client
import json
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What came back; `body` is parsed JSON, or the text when it is none."""

    status: int
    headers: Mapping[str, str]
    body: Any


def call(
    method: str,
    url: str,
    body: Mapping[str, Any] | list[Any] | bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Make a call; JSON unless the body is bytes."""
    parts = urllib.parse.urlsplit(url)
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **(headers or {})}
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(method, target, data, sent)
        response = connection.getresponse()
        raw = response.read().decode()
    finally:
        connection.close()
    try:
        parsed = json.loads(raw)
    except ValueError:
        parsed = raw
    return Answer(response.status, dict(response.getheaders()), parsed)
