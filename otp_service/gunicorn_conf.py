"""How gunicorn serves the API, the webhooks and the admin; what differs by place (`--bind`) is a flag.

Threads, because sync views under ASGI run one at a time in a process.
"""

from __future__ import annotations

import os

_MOST = 1_000  # so many processes or threads are a slip of the finger


def _whole(name: str, text: str) -> int:
    """The number in `text`; else the end, with a sentence instead of gunicorn's traceback."""
    if not (text.isdecimal() and text.isascii() and 1 <= int(text) <= _MOST):
        raise SystemExit(f"{name} is {text!r}: a whole number from 1 to {_MOST} is allowed")
    return int(text)


worker_class = "gthread"
workers = _whole("WEB_WORKERS", os.environ.get("WEB_WORKERS") or "2")
threads = _whole("WEB_THREADS", os.environ.get("WEB_THREADS") or "8")
timeout = 30  # seconds that a worker may be silent: a request is bounded by the database's own time-outs
graceful_timeout = 20  # seconds for requests in flight when it is told to stop
accesslog = None  # query strings may hold numbers
control_socket_disable = True  # it would be written into the home folder, which production mounts read-only
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108, PTH112 - the heartbeat must not wait for a disk
