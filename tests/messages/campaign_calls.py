"""What tests of campaigns share: uploads, and the report of what was refused."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from django.http import HttpResponse, StreamingHttpResponse

from tests.messages.client_api import ClientApi, body

CAMPAIGNS = "/api/v1/campaigns/"
LINE = {"to": "+34600000000", "text": "Everything must go"}


def ndjson(lines: Iterable[Any]) -> bytes:
    """Lines of objects; bytes as they are."""
    return b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)


def upload(
    api: ClientApi, data: bytes, *, key: str = "k", kind: str = "application/x-ndjson", **query: str
) -> HttpResponse:
    headers = {"Idempotency-Key": key} if key else {}
    return api.call("POST", CAMPAIGNS, data, content_type=kind, headers=headers, query=query)


def loaded(api: ClientApi, lines: Iterable[Any], **query: str) -> dict[str, Any]:
    """A campaign that was accepted."""
    answer = upload(api, ndjson(lines), **query)
    assert answer.status_code == 202, answer.content
    return body(answer)


def loaded_csv(api: ClientApi, text: str | bytes) -> dict[str, Any]:
    answer = upload(api, text.encode() if isinstance(text, str) else text, kind="text/csv")
    assert answer.status_code == 202, answer.content
    return body(answer)


def ask(api: ClientApi, campaign: Mapping[str, Any], what: str) -> HttpResponse:
    """`pause`, `resume` or `cancel`."""
    return api.call("POST", f"{campaign['links']['self']}{what}/")


def refusals(api: ClientApi, campaign: Mapping[str, Any]) -> list[tuple[int, str, str]]:
    """Line, field and code of each refused line."""
    answer = cast("StreamingHttpResponse", api.get(campaign["links"]["errors"]))
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/csv; charset=utf-8")
    rows = list(csv.DictReader(io.StringIO(b"".join(answer).decode())))
    assert all(row["detail"] for row in rows)
    return [(int(row["line"]), row["field"], row["code"]) for row in rows]
