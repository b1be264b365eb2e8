"""Embedded servers from the command line.

python -m otp_service.embedded run COMMAND ...   runs a command on temporary servers and exits as it does
python -m otp_service.embedded remove            removes the state directory and the servers' data
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence

from otp_service.embedded import EmbeddedServerError, EmbeddedServers, temporary_servers


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    action: Callable[[Sequence[str]], int]
    match arguments:
        case ["run", _, *_]:
            action = _run
        case ["remove"]:
            action = _remove
        case _:
            sys.stderr.write(f"{__doc__}\n")
            return 2
    try:
        return action(arguments[1:])
    except EmbeddedServerError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _run(command: Sequence[str]) -> int:
    with temporary_servers() as servers:
        process = subprocess.Popen(command, env={**os.environ, **servers.env})  # noqa: S603 - the caller's own command
        # The terminal's Ctrl-C reaches the command too: it ends in its own way, and then the servers do.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda _number, _frame: process.terminate())
        return process.wait()


def _remove(_none: Sequence[str]) -> int:
    EmbeddedServers().remove()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
