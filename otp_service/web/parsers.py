"""JSON bodies, bounded in size, and clean of what PostgreSQL cannot store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from otp_service.core import strict_json
from otp_service.core.errors import ServiceError

MAX_BODY = 65_536  # bytes; a view that takes more says so by `max_body`
DEPTH_LIMIT = 64  # of nested objects and lists; what fields take is less, and they say so by name
NUMERAL_LIMIT = 4_300  # characters of a whole number: what Python itself reads by default


class BodyTooLarge(ServiceError):
    """The body is larger than this address takes."""

    status = 413
    code = "body_too_large"
    title = "The body is too large"


def loads_strict(body: bytes) -> Any:
    """Parse JSON, raising ParseError for all that is not, and for names given twice, NaN, and lone surrogates."""
    try:
        value = strict_json.loads(body, depth=DEPTH_LIMIT, numeral=NUMERAL_LIMIT)
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate parses, but cannot be written
    except strict_json.StrictJSONError as error:
        raise ParseError(f"The body {error}.") from None
    except UnicodeEncodeError:
        raise ParseError("The body must be UTF-8: it has half of a surrogate pair.") from None
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
