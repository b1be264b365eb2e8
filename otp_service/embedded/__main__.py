"""`python -m otp_service.embedded remove`: remove the state directory and the embedded servers' data."""

from __future__ import annotations

import sys

from otp_service.embedded import EmbeddedServerError, EmbeddedServers


def main() -> int:
    """The exit code."""
    if sys.argv[1:] != ["remove"]:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    try:
        EmbeddedServers().remove()
    except EmbeddedServerError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
