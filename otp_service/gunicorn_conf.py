"""How gunicorn serves the API, the webhooks and the admin; what differs by place (`--bind`) is a flag.

Threads, because sync views under ASGI run one at a time in a process.
"""

from __future__ import annotations

import os

worker_class = "gthread"
workers = int(os.environ.get("WEB_WORKERS", "2"))
threads = int(os.environ.get("WEB_THREADS", "8"))
timeout = 30  # seconds that a worker may be silent: a request is bounded by the database's own time-outs
graceful_timeout = 20  # seconds for requests in flight when it is told to stop
accesslog = None  # query strings may hold numbers
control_socket_disable = True  # it would be written into the home folder, which production mounts read-only
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108, PTH112 - the heartbeat must not wait for a disk
