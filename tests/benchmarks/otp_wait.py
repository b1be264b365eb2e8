"""How long otp wait under 500,000 promotional messages while push hangs: the lab's full size, once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

P99_LIMIT_MS, MAX_LIMIT_MS = 250, 1_000


def run() -> dict[str, float]:
    """Waits in milliseconds. Raises RuntimeError if an otp was not started at all."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "lab.json"
        command = [sys.executable, "manage.py", "lanes_lab", "--full", "--runs", "1", "--json", str(kept)]
        subprocess.run(command, check=False, env=os.environ)  # it ends with 1 where a limit is not held
        (cell,) = json.loads(kept.read_text())["cells"]
    if cell["started"] != cell["of"]:
        raise RuntimeError(f"{cell['of'] - cell['started']} of {cell['of']} otp were not started")
    return {
        "otp_wait_p99_ms": cell["p99"]["seconds"] * 1_000,
        "otp_wait_p99_limit_ms": P99_LIMIT_MS,
        "otp_wait_max_ms": cell["worst"]["seconds"] * 1_000,
        "otp_wait_max_limit_ms": MAX_LIMIT_MS,
    }
