"""Everything that was "sent to phones", so that a test can count what came twice and what got lost."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


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


def text_digest(text: str) -> str:
    """What the ledger keeps of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


#: More than any drill sends; a simulator that runs for weeks forgets the oldest.
ENTRIES_LIMIT = 1_000_000


class Ledger:
    """Append-only, in memory; with `path`, each entry is also a line of JSON there."""

    def __init__(self, path: Path | None = None) -> None:
        self._entries: deque[LedgerEntry] = deque(maxlen=ENTRIES_LIMIT)
        self._path = path

    def __iter__(self) -> Iterator[LedgerEntry]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: LedgerEntry) -> None:
        """Keep one entry."""
        self._entries.append(entry)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry.document()) + "\n")

    def find(self, *, to: str = "", attempt_id: uuid.UUID | None = None) -> list[LedgerEntry]:
        """The entries with this recipient and this attempt, oldest first; what is not given matches all."""
        return [
            entry
            for entry in self._entries
            if (not to or entry.to == to) and (attempt_id is None or entry.attempt_id == attempt_id)
        ]

    def clear(self) -> None:
        """Forget what is in memory; a file keeps its lines."""
        self._entries.clear()
