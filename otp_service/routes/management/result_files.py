"""Files that commands write what they found to."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from pathlib import Path


def writable(text: str) -> Path:
    """Checked before the work begins: a result that cannot be kept is not worth the wait."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ArgumentTypeError(f"{text!r}: a file cannot be written there")
    return path
