"""A supervisor to kill: starts the servers of a state directory and holds them until it is ended."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from otp_service.embedded import EmbeddedServers

if __name__ == "__main__":
    with EmbeddedServers(Path(sys.argv[1]), durable=False, environ={}):
        signal.pause()
