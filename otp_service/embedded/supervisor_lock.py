"""One supervisor at a time for a state directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from otp_service.embedded.errors import EmbeddedServerError


class SupervisorLock:
    """A file lock that the kernel drops when its holder ends, however it ends."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "lock"
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether we hold it."""
        return self._descriptor is not None

    def take(self) -> None:
        """Raises EmbeddedServerError, naming the process that holds it."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise EmbeddedServerError(
                f"Process {holder} already runs the servers of {self._path.parent}. Stop it first, "
                "or set OTP_STATE_DIR to another folder to run beside it."
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        self._descriptor = descriptor

    def release(self) -> None:
        """Let the next one in."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
