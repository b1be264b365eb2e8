"""Everything that was "sent to phones", so that a test can count what came twice and what got lost.

It also keeps the attempts that were promised never to be sent. With a file it knows both after a restart: a host
that forgot what it sent would promise "never" for it, and a second copy would follow.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, repr=False)
class LedgerEntry:
    """One message that left. The text is kept as a hash: enough to tell copies from one another."""

    to: str
    attempt_id: uuid.UUID
    unit: int
    host: int
    at: datetime
    service: str
    text_sha256: str

    def __repr__(self) -> str:
        return f"<LedgerEntry {self.attempt_id}>"

    def document(self) -> dict[str, object]:
        """The entry as JSON."""
        return {
            "to": self.to,
            "attempt_id": str(self.attempt_id),
            "unit": self.unit,
            "host": self.host,
            "at": self.at.isoformat(),
            "service": self.service,
            "text_sha256": self.text_sha256,
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """The entry that was written so. Raises KeyError, TypeError and ValueError."""
        return cls(
            to=str(document["to"]),
            attempt_id=uuid.UUID(str(document["attempt_id"])),
            unit=int(document["unit"]),
            host=int(document["host"]),
            at=datetime.fromisoformat(document["at"]),
            service=str(document["service"]),
            text_sha256=str(document["text_sha256"]),
        )


def text_digest(text: str) -> str:
    """What the ledger keeps of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


#: More than any drill sends; a simulator that runs for weeks forgets the oldest. So many promises, too.
ENTRIES_LIMIT = 1_000_000
#: Bytes at the end of the file that a start reads: about 100,000 rows, in less than two seconds.
READ_BACK_LIMIT = 32 * 1024 * 1024

_Key = tuple[int, uuid.UUID]  # host, attempt
_NEVER, _RESET = "never", "reset"  # `kind` of the rows that are no entries


class Ledger:
    """Append-only, in memory; with `path`, each row is also a line of JSON there, and is read back from there."""

    def __init__(self, path: Path | None = None) -> None:
        self._entries: deque[LedgerEntry] = deque()
        self._sent: dict[_Key, LedgerEntry] = {}
        self._promised: dict[_Key, None] = {}  # a set that knows its oldest
        self._path = path
        if path is not None:
            self._read_back(path)

    def __iter__(self) -> Iterator[LedgerEntry]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: LedgerEntry) -> None:
        """Keep one entry."""
        self._keep(entry)
        self._write(entry.document())

    def sent(self, host: int, attempt_id: uuid.UUID) -> LedgerEntry | None:
        """The newest entry of this attempt by this host."""
        return self._sent.get((host, attempt_id))

    def promise(self, host: int, attempt_id: uuid.UUID) -> None:
        """Keep that this host will never send this attempt."""
        if self.is_promised(host, attempt_id):
            return
        self._write({"kind": _NEVER, "host": host, "attempt_id": str(attempt_id)})
        self._keep_promise((host, attempt_id))

    def is_promised(self, host: int, attempt_id: uuid.UUID) -> bool:
        """Whether this host promised never to send this attempt."""
        return (host, attempt_id) in self._promised

    def find(self, *, to: str = "", attempt_id: uuid.UUID | None = None) -> list[LedgerEntry]:
        """The entries with this recipient and this attempt, oldest first; what is not given matches all."""
        return [
            entry
            for entry in self._entries
            if (not to or entry.to == to) and (attempt_id is None or entry.attempt_id == attempt_id)
        ]

    def clear(self) -> None:
        """Forget everything; a file keeps its lines, but they count no more."""
        self._forget()
        self._write({"kind": _RESET})

    def _keep(self, entry: LedgerEntry) -> None:
        self._entries.append(entry)
        self._sent[entry.host, entry.attempt_id] = entry
        if len(self._entries) > ENTRIES_LIMIT:
            oldest = self._entries.popleft()
            key = (oldest.host, oldest.attempt_id)
            if self._sent.get(key) is oldest:
                del self._sent[key]

    def _keep_promise(self, key: _Key) -> None:
        self._promised[key] = None
        if len(self._promised) > ENTRIES_LIMIT:
            del self._promised[next(iter(self._promised))]

    def _forget(self) -> None:
        self._entries.clear()
        self._sent.clear()
        self._promised.clear()

    def _write(self, row: Mapping[str, object]) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def _read_back(self, path: Path) -> None:
        path.touch(mode=0o600)  # it holds whole numbers
        lines = _last_lines(path)
        unreadable = sum(not self._take(line) for line in lines)
        if unreadable:
            logger.warning("%d of %d lines of the ledger cannot be read: they are passed over", unreadable, len(lines))

    def _take(self, line: bytes) -> bool:
        """Whether the line was a row. The last one of a process that was killed may be torn."""
        try:
            row = json.loads(line)
            kind = row.get("kind")
            if kind == _RESET:
                self._forget()
            elif kind == _NEVER:
                self._keep_promise((int(row["host"]), uuid.UUID(row["attempt_id"])))
            else:
                self._keep(LedgerEntry.read(row))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return False
        return True


def _last_lines(path: Path) -> list[bytes]:
    """The last lines of the file. It ends with a whole line afterwards: the next row must not join a torn one."""
    with path.open("r+b") as file:
        size = file.seek(0, 2)
        start = max(0, size - READ_BACK_LIMIT)
        file.seek(start)
        tail = file.read(size - start)
        if tail and not tail.endswith(b"\n"):
            file.write(b"\n")
    lines = tail.splitlines()
    return lines[1:] if start else lines  # the first one is cut, most likely
