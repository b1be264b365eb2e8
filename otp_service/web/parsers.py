"""JSON bodies, bounded in size, and clean of what PostgreSQL cannot store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from otp_service.core.errors import ServiceError

MAX_BODY = 65_536  # bytes; a view that takes more says so by `max_body`


class BodyTooLarge(ServiceError):
    """The body is larger than this address takes."""

    status = 413
    code = "body_too_large"
    title = "The body is too large"


def _refuse_constant(name: str) -> Any:
    raise ParseError(f"The body is not JSON: {name} is not a JSON number.")


def loads_strict(body: bytes) -> Any:
    """Parse JSON, raising ParseError for everything that is not: also NaN, lone surrogates and deep nesting."""
    try:
        value = json.loads(body.decode(), parse_constant=_refuse_constant)
        # A lone surrogate parses but cannot be written, nor can 1e999, which parses as infinity.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeError:
        raise ParseError("The body is not UTF-8 text.") from None
    except (ValueError, RecursionError) as error:
        place = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise ParseError(f"The body is not JSON{place}.") from None
    return value


class BoundedJSONParser(BaseParser):
    """Reads at most `max_body` bytes of the view, or MAX_BODY."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        limit: int = getattr((parser_context or {}).get("view"), "max_body", MAX_BODY)
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise BodyTooLarge(f"The body may have {limit} bytes at most.", limit=limit)
        return loads_strict(body)
