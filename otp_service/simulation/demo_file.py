"""The demo's port, and the file that holds the way into it: readable by its owner only. Free of Django."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from otp_service.embedded.secret_keys import write_private_json

#: Where the simulated relay hosts are, if nothing else is asked for.
DEFAULT_SIMULATOR_PORT = 8900


@dataclass(frozen=True, slots=True)
class DemoAccess:
    """A log-in for the admin, a key for the API, and a number to send to."""

    username: str
    password: str = field(repr=False)
    api_key: str = field(repr=False)
    to: str


def read_access(path: Path) -> DemoAccess | None:
    """What the file holds; None when there is none, or it is not whole."""
    try:
        stored = json.loads(path.read_text())
        return DemoAccess(**{part.name: str(stored[part.name]) for part in fields(DemoAccess)})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_access(path: Path, access: DemoAccess) -> None:
    """Write it whole or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private_json(path, asdict(access))
