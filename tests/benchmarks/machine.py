"""The machine that figures are of."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import psutil


def facts() -> dict[str, str | int | None]:
    """The commit, cores, model of the processor, memory, Python and PostgreSQL. Needs Django."""
    from django.db import connection

    connection.ensure_connection()
    version = connection.cursor().execute("SHOW server_version").fetchone()[0]
    return {
        "commit": _commit(),
        "cores": os.cpu_count(),
        "cpu": _cpu(),
        "memory_mib": psutil.virtual_memory().total // 2**20,
        "python": platform.python_version(),
        "postgresql": version,
    }


def _commit() -> str:
    """That the figures are of; "" outside a repository."""
    git = shutil.which("git")
    if git is None:
        return ""
    return subprocess.run([git, "rev-parse", "HEAD"], check=False, capture_output=True, text=True).stdout.strip()


def _cpu() -> str:
    """As Linux calls it; elsewhere as Python does."""
    try:
        said = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    models = (line.partition(":")[2].strip() for line in said.splitlines() if line.startswith("model name"))
    return next(models, platform.machine())
