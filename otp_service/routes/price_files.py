"""Files of call records or prices that a provider exports: CSV with a header, read line by line.

Columns, in any order: `id` (the provider's own, or the uuid of our attempt), and any of `state`, `parts`, `cost` with
`currency`. Others are passed over, empty cells say nothing. A line that cannot be read is a BadLine in its place.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import IO

from otp_service.core.outcomes import ReportedState

MOST_BYTES = 1_073_741_824
MOST_LINES = 2_000_000
_MOST_OF_A_LINE = 4_096  # bytes
_LONGEST_ID = 200
_MOST_COST = Decimal(1_000)  # of one message
_COST = re.compile(r"-?[0-9]{1,4}(\.[0-9]{1,12})?", re.ASCII)
_CURRENCY = re.compile(r"[A-Z]{3}", re.ASCII)
_PARTS = re.compile(r"[0-9]{1,3}", re.ASCII)
_MOST_PARTS = 255

COLUMNS = ("id", "state", "parts", "cost", "currency")

#: Words for states, in lower case. What is not here says nothing: ReportedState.UNKNOWN.
STATES: Mapping[str, ReportedState] = {
    **{state.value: state for state in ReportedState},
    "accepted": ReportedState.QUEUED,
    "acceptd": ReportedState.QUEUED,
    "enroute": ReportedState.QUEUED,
    "sending": ReportedState.QUEUED,
    "buffered": ReportedState.QUEUED,
    "submitted": ReportedState.SENT,
    "delivrd": ReportedState.DELIVERED,
    "read": ReportedState.DELIVERED,
    "undelivered": ReportedState.FAILED,
    "undeliv": ReportedState.FAILED,
    "expired": ReportedState.FAILED,
    "rejected": ReportedState.FAILED,
    "rejectd": ReportedState.FAILED,
    "deleted": ReportedState.FAILED,
    "canceled": ReportedState.NEVER,
    "cancelled": ReportedState.NEVER,
}


@dataclass(frozen=True, slots=True)
class Priced:
    """What a line says of one message. None: nothing. `cost` is what we pay, however it is signed in the file."""

    number: int  # of the line, from 1; the header is the first
    id: str
    state: ReportedState | None = None
    parts: int | None = None
    cost: Decimal | None = None
    currency: str = ""


@dataclass(frozen=True, slots=True)
class BadLine:
    """Why a line cannot be read: a sentence that repeats nothing of it."""

    number: int
    why: str


class UnreadableFile(Exception):
    """The whole file cannot be read; the message is a sentence that says what to do."""


class _Bad(ValueError):
    """A line's fault."""


def read(path: Path) -> Iterator[Priced | BadLine]:
    """The lines of a file. Raises UnreadableFile: at once for a bad file, at the line where it becomes too long."""
    try:
        size = path.stat().st_size
        stream = path.open("rb")
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror}.") from None
    with stream:
        if size > MOST_BYTES:
            raise UnreadableFile(f"{path} is larger than {MOST_BYTES:,} bytes: split it.")
        yield from _lines(stream)


def _lines(stream: IO[bytes]) -> Iterator[Priced | BadLine]:
    columns = _columns(stream)
    number = 1
    while line := stream.readline(_MOST_OF_A_LINE + 1):
        number += 1
        if number > MOST_LINES:
            raise UnreadableFile(f"The file has more than {MOST_LINES:,} lines: split it. Those before were compared.")
        try:
            if (priced := _priced(number, _cells(line, stream), columns)) is not None:
                yield priced
        except _Bad as fault:
            yield BadLine(number, str(fault))


def _columns(stream: IO[bytes]) -> Sequence[str]:
    try:
        header = _cells(stream.readline(_MOST_OF_A_LINE + 1).removeprefix(b"\xef\xbb\xbf"), stream)
    except _Bad as fault:
        raise UnreadableFile(f"The header cannot be read. {fault}") from None
    names = [cell.strip().lower() for cell in header]
    known = [name for name in names if name in COLUMNS]
    if "id" not in known or len(set(known)) < len(known):
        raise UnreadableFile(f"The first line must name the column id, and any of {', '.join(COLUMNS[1:])}, once each.")
    if ("cost" in known) != ("currency" in known):
        raise UnreadableFile("The columns cost and currency belong together: give both, or neither.")
    return names


def _cells(line: bytes, stream: IO[bytes]) -> list[str]:
    if len(line) > _MOST_OF_A_LINE:
        while line and not line.endswith(b"\n"):
            line = stream.readline(_MOST_OF_A_LINE)
        raise _Bad(f"It is longer than {_MOST_OF_A_LINE:,} bytes.")
    try:
        return next(csv.reader([line.decode().rstrip("\r\n")], strict=True), [])
    except UnicodeDecodeError:
        raise _Bad("It is not UTF-8.") from None
    except csv.Error:
        raise _Bad("Its quotes do not match; a cell may have no line break.") from None


def _priced(number: int, cells: Sequence[str], columns: Sequence[str]) -> Priced | None:
    """None for a blank line. Raises _Bad."""
    if not any(cell.strip() for cell in cells):
        return None
    if len(cells) != len(columns):
        raise _Bad(f"The header has {len(columns)} columns, this line {len(cells)}.")
    said = {name: cell.strip() for name, cell in zip(columns, cells, strict=True)}
    if not said["id"] or len(said["id"]) > _LONGEST_ID or not said["id"].isprintable():
        raise _Bad(f"id must have 1 to {_LONGEST_ID} printable characters.")
    cost, currency = _cost(said.get("cost", "")), said.get("currency", "").upper()
    if cost is not None and not _CURRENCY.fullmatch(currency):
        raise _Bad("currency must be three letters where a cost is given, as in EUR.")
    return Priced(
        number=number,
        id=said["id"],
        state=_state(said.get("state", "")),
        parts=_parts(said.get("parts", "")),
        cost=cost,
        currency=currency if cost is not None else "",
    )


def _state(text: str) -> ReportedState | None:
    return STATES.get(text.lower(), ReportedState.UNKNOWN) if text else None


def _parts(text: str) -> int | None:
    if not text:
        return None
    if not _PARTS.fullmatch(text) or not 1 <= int(text) <= _MOST_PARTS:
        raise _Bad(f"parts must be a whole number from 1 to {_MOST_PARTS}.")
    return int(text)


def _cost(text: str) -> Decimal | None:
    if not text:
        return None
    cost = abs(Decimal(text)) if _COST.fullmatch(text) else None
    if cost is None or cost > _MOST_COST:
        raise _Bad(f"cost must be a number with a point, up to {_MOST_COST:,}, as in 0.0075.")
    return cost
