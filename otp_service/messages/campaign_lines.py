"""The upload of a campaign, line by line: NDJSON or CSV, bounded in memory, and known by a hash of what was read.

A line that cannot be read is a Fault in its place, and those behind it are read all the same.
"""

from __future__ import annotations

import csv
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, NoReturn

from otp_service.core import strict_json
from otp_service.core.phone_numbers import mask_within
from otp_service.core.strict_json import StrictJSONError
from otp_service.web.fields import keyed_hashes

MAX_LINE = 65_536  # bytes: as much as a message that is posted alone
_DEPTH = 16  # of nested objects and lists; what fields take is less, and they say so by name
_NUMERAL = 4_300  # characters of a whole number: what Python itself reads by default
_BLOCK = 1_048_576  # bytes that are read at once where lines do not matter
_UNHASHED = 256  # lines that are kept until they are hashed together
_BOM = b"\xef\xbb\xbf"
_NAME = re.compile(r"[A-Za-z_][A-Za-z_.]{0,31}")
_OVERLONG = "\ud800"  # stands for a line of CSV that is too long: no line that can be read has it


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a line is not accepted. It repeats neither a text nor a whole number."""

    code: str
    detail: str
    field: str = ""


_TOO_LONG = Fault("line_too_long", f"Send lines of {MAX_LINE:,} bytes at most.")
_NOT_UTF8 = Fault("not_utf8", "Send the line in UTF-8.")

#: A line's number in the upload, from 1, and what it says.
Record = tuple[int, Mapping[str, Any] | Fault]


class Lines:
    """The lines of a stream. `number` and `offset` (bytes) are of the last one that was read."""

    def __init__(self, stream: IO[bytes], *, seed: str) -> None:
        """`seed` is hashed before the first byte: what must be the same beside the bytes."""
        self.number = 0
        self.offset = 0
        self._stream = stream
        self._unhashed: list[bytes] = []
        self._hashes = [hmac.new(one.key, f"campaign\x00{seed}\x00".encode(), hashlib.sha256) for one in keyed_hashes()]
        self.at_start = self.fingerprints()

    def __iter__(self) -> Iterator[bytes | None]:
        return self

    def __next__(self) -> bytes | None:
        """The next line; None for one that is too long."""
        line = self._read()
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) <= MAX_LINE:
            return line.removeprefix(_BOM) if self.number == 1 else line
        while line and not line.endswith(b"\n"):
            self._hash()
            line = self._read()
        return None

    def skip(self, *, to_offset: int, to_number: int) -> None:
        """Read on to a place that an earlier upload reached, or to the end of what is there."""
        while self.offset < to_offset:
            block = self._stream.read(min(_BLOCK, to_offset - self.offset))
            if not block:
                break
            self._keep(block)
            self._hash()
        self.number = to_number

    def is_at_end(self) -> bool:
        """Whether nothing is left. What is left may no longer be read after it."""
        return not self._stream.read(1)

    def fingerprints(self) -> list[bytes]:
        """The hash of all that was read, by each of HASH_KEYS, the one for new rows first."""
        self._hash()
        return [one.digest() for one in self._hashes]

    def _read(self) -> bytes:
        return self._keep(self._stream.readline(MAX_LINE + 1))

    def _keep(self, read: bytes) -> bytes:
        if len(self._unhashed) >= _UNHASHED:
            self._hash()
        self._unhashed.append(read)
        self.offset += len(read)
        return read

    def _hash(self) -> None:
        read = b"".join(self._unhashed)
        self._unhashed.clear()
        for one in self._hashes:
            one.update(read)


# --- NDJSON ------------------------------------------------------------------------------------------------


def ndjson(lines: Lines) -> Iterator[Record]:
    """One JSON object a line. Blank lines are passed over."""
    for line in lines:
        if line is None:
            yield lines.number, _TOO_LONG
        elif not line.isspace():
            found = _plain_object(line)
            yield lines.number, _object(line) if found is None else found


class _Doubtful(ValueError):
    """Something that only the strict reader can judge."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Doubtful
    return found


def _doubt(_: str) -> NoReturn:
    raise _Doubtful


_decode = json.JSONDecoder(object_pairs_hook=_pairs, parse_float=_doubt, parse_constant=_doubt).decode


def _plain_object(line: bytes) -> dict[str, Any] | None:
    """An object as nearly all are. None for everything else: `_object` says what is wrong with it, if anything."""
    if b"\\u" in line or line.count(b"{") + line.count(b"[") > 2:  # escaped, or nested
        return None
    try:
        found = _decode(line.decode())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _object(line: bytes) -> dict[str, Any] | Fault:
    try:
        found = strict_json.loads(line, depth=_DEPTH, numeral=_NUMERAL)
        json.dumps(found, ensure_ascii=False).encode()  # half of a surrogate pair parses, but cannot be written
    except StrictJSONError as error:
        return _NOT_UTF8 if "UTF-8" in str(error) else Fault("not_json", _sentence(error))
    except UnicodeEncodeError:
        return _NOT_UTF8
    return found if isinstance(found, dict) else Fault("not_an_object", "Send one JSON object a line.")


def _sentence(error: StrictJSONError) -> str:
    sentence = str(error).replace("(line 1, column", "(column")
    if error.name:
        sentence = sentence.replace(f'"{error.name}"', shown_name(error.name))
    return mask_within(f"The line {sentence}.")


def shown_name(name: str) -> str:
    """A name that a line gives, if it looks like one: anything else might be a text or a code."""
    return name if _NAME.fullmatch(name) else "a name"


# --- CSV ---------------------------------------------------------------------------------------------------


def csv_header(lines: Lines) -> list[str]:
    """The names of the first line. Empty if there is none that can be read."""
    try:
        return next(csv.reader([_decoded(next(lines))], strict=True), [])
    except (csv.Error, StopIteration):
        return []


def csv_records(lines: Lines, header: Sequence[str]) -> Iterator[Record]:
    """The records behind the header, empty cells left out. A record with line breaks has the number of its first."""
    reader = csv.reader(map(_decoded, lines), strict=True)
    while True:
        first = lines.number + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield first, Fault("not_csv", f"Check the quotes and line breaks between lines {first} and {lines.number}.")
            continue
        if cells:
            yield first, _values(header, cells)


def _decoded(line: bytes | None) -> str:
    return f"{_OVERLONG}\n" if line is None else line.decode(errors="surrogateescape")


def _values(header: Sequence[str], cells: Sequence[str]) -> dict[str, Any] | Fault:
    written = "".join(cells)
    if not written.isascii() and (fault := _unreadable(written)):
        return fault
    if len(cells) != len(header):
        return Fault("wrong_columns", f"The header has {len(header)} columns, this line {len(cells)}.")
    values: dict[str, Any] = {name: cell for name, cell in zip(header, cells, strict=True) if cell}
    for name in _FROM_CELL.keys() & values.keys():
        found = _FROM_CELL[name](values[name])
        if isinstance(found, Fault):
            return Fault(found.code, found.detail, name)
        values[name] = found
    return values


def _unreadable(written: str) -> Fault | None:
    if _OVERLONG in written:
        return _TOO_LONG
    try:
        written.encode()
    except UnicodeEncodeError:
        return _NOT_UTF8
    return None


def _whole_number(cell: str) -> int | Fault:
    if re.fullmatch(r"-?[0-9]{1,18}", cell):
        return int(cell)
    return Fault("invalid", "Write a whole number in the digits 0 to 9.")


def _names(cell: str) -> list[str]:
    return cell.replace(",", " ").split()


_FROM_CELL: Mapping[str, Callable[[str], Any]] = {
    "ttl_s": _whole_number,
    "first_attempt_within_s": _whole_number,
    "max_attempts": _whole_number,
    "max_routes": _whole_number,
    "channels": _names,
    "addresses": lambda cell: _object(cell.encode()),
    "metadata": lambda cell: _object(cell.encode()),
}
