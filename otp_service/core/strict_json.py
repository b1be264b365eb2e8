"""JSON that means one thing only: no name twice in an object, no NaN, bounded in depth and in numerals."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NoReturn

_NAME_LIMIT = 64  # characters of a name that are repeated in an error


class StrictJSONError(ValueError):
    """Why bytes are not taken: a predicate, as in "must be UTF-8". `name` is that of a field which stands twice.

    It never carries the document, which may hold texts and numbers.
    """

    def __init__(self, detail: str, *, name: str = "") -> None:
        super().__init__(detail)
        self.name = name


def loads(body: bytes, *, depth: int, numeral: int) -> Any:
    """Parse JSON with at most `depth` levels of objects and lists, and whole numbers of `numeral` characters.

    Raises StrictJSONError, whatever the bytes are. Strings may hold lone surrogates and U+0000.
    """
    try:
        document = json.loads(
            body.decode(),
            object_pairs_hook=_object,
            parse_int=_whole_number(numeral),
            parse_float=_finite,
            parse_constant=_refuse_constant,
        )
    except StrictJSONError:
        raise
    except UnicodeDecodeError:
        raise StrictJSONError("must be UTF-8") from None
    except json.JSONDecodeError as error:
        raise StrictJSONError(f"must be JSON (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise StrictJSONError(f"must not be nested deeper than {depth}") from None
    _refuse_depth(document, depth)
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names differ: of two, one reader takes the first and another the last."""
    document: dict[str, Any] = {}
    for name, value in pairs:
        if name in document:
            shown = name[:_NAME_LIMIT].encode(errors="replace").decode()  # a lone surrogate cannot be answered
            raise StrictJSONError(f'must name "{shown}" once', name=shown)
        document[name] = value
    return document


def _whole_number(limit: int) -> Callable[[str], int]:
    def parse(numeral: str) -> int:
        if len(numeral) > limit:
            raise StrictJSONError(f"must not have numbers of more than {limit} digits")
        return int(numeral)

    return parse


def _finite(numeral: str) -> float:
    value = float(numeral)
    if not math.isfinite(value):
        raise StrictJSONError("must not have numbers that are too large to be kept")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise StrictJSONError(f"must be JSON: {name} is not a JSON number")


def _refuse_depth(document: object, depth: int) -> None:
    level = [document]
    for _depth in range(depth):
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    raise StrictJSONError(f"must not be nested deeper than {depth}")


def _children(node: object) -> list[object]:
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [child for child in inner if isinstance(child, dict | list)]
