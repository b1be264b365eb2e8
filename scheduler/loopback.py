"""JSON over HTTP to a process on this machine."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ADDRESS = "127.0.0.1"
_ANSWER_WITHIN_S = 5.0
_MAX_ANSWER_BYTES = 4_194_304


class NoAnswerError(Exception):
    """Nothing listens there, or what answers does not speak HTTP."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP status, and the JSON object that came with it; empty if it was something else."""

    status: int
    body: Mapping[str, Any]


def call(port: int, method: str, path: str, *, key: str | None = None, body: Mapping[str, Any] | None = None) -> Answer:
    """One request. Raises NoAnswerError. Environment variables for proxies are not looked at."""
    headers = {"Accept": "application/json"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    if body is not None:
        headers["Content-Type"] = "application/json"
    connection = http.client.HTTPConnection(ADDRESS, port, timeout=_ANSWER_WITHIN_S)
    try:
        connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
        response = connection.getresponse()
        return Answer(response.status, _object(response.read(_MAX_ANSWER_BYTES)))
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswerError(f"{ADDRESS}:{port} does not answer: {str(error) or type(error).__name__}") from error
    finally:
        connection.close()


def _object(content: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(content)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
