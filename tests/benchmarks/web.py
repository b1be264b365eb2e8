"""The product's addresses and a bare view under one server, and clients that post to it.

The server is a process of its own, as `python -m otp_service.serve` runs it; the bare view goes through the same
middleware and inserts one row.
"""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

CLIENTS = 8
START = 60  # seconds that a server may take
_BARE_TABLE = "CREATE TABLE IF NOT EXISTS bench_bare (id bigserial PRIMARY KEY, body text NOT NULL)"


@dataclass(frozen=True, slots=True)
class Post:
    """One request."""

    path: str
    body: bytes
    headers: Mapping[str, str]


#: What the bare view is sent.
BARE = Post("/bench/bare/", b'{"a": "row"}', {"Content-Type": "application/json"})


@contextmanager
def served() -> Iterator[int]:
    """Serve DATABASE_URL, the bare view beside the product's addresses; the port."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(_BARE_TABLE)
    with running(lambda port: ["-m", "tests.benchmarks.web", str(port)]) as (port, _):
        yield port


@contextmanager
def running(arguments: Callable[[int], Sequence[str]]) -> Iterator[tuple[int, int]]:
    """A server in Python, started with what `arguments` makes of a free port; its port, and its process id."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, *arguments(port)])
    try:
        _wait_for(port, process)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START
    pause = threading.Event()
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        pause.wait(0.1)
    raise RuntimeError("the server does not start")


def rate(port: int, posts: Iterator[Post], seconds: float, *, status: int) -> float:
    """Requests a second that clients get answers for; any other status than `status` is an error."""
    until = time.monotonic() + seconds
    counts: list[int] = []
    faults: list[BaseException] = []
    lock = threading.Lock()

    def one_client() -> None:
        try:
            counts.append(_post_until(until, port, posts, lock, status))
        except BaseException as fault:  # noqa: BLE001 - raised below, in the caller's thread
            faults.append(fault)

    threads = [threading.Thread(target=one_client) for _ in range(CLIENTS)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    return sum(counts) / (time.monotonic() - started)


def _post_until(until: float, port: int, posts: Iterator[Post], lock: threading.Lock, status: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    made = 0
    while time.monotonic() < until:
        with lock:
            post = next(posts, None)
        if post is None:
            break
        connection.request("POST", post.path, post.body, dict(post.headers))
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != status:
            raise RuntimeError(f"{post.path} was answered {answer.status}: {text[:300]!r}")
        made += 1
    connection.close()
    return made


def report(rows: Sequence[tuple[str, float, str]], ratios: Sequence[tuple[str, float, float]]) -> None:
    """Print figures with their units, and ratios with their bars."""
    print()
    for name, figure, unit in rows:
        print(f"{name:<44}{figure:>10,.0f} {unit}")
    for name, ratio, bar in ratios:
        print(f"{name:<44}{ratio:>10.2f}   {'within' if ratio >= bar else 'UNDER'} the bar of {bar}")
    print()


def _serve(port: int) -> None:
    import django
    import waitress

    os.environ["DJANGO_SETTINGS_MODULE"] = "otp_service.settings"
    django.setup()
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application

    settings.ROOT_URLCONF = "tests.benchmarks.web_urls"
    application = get_wsgi_application()
    waitress.serve(application, listen=f"127.0.0.1:{port}", threads=settings.WEB_THREADS, asyncore_use_poll=True)


def copies(pattern: Any, each: Mapping[str, str], rows: str, parameters: Mapping[str, Any]) -> None:
    """Insert a copy of `pattern` for each of `rows`, with the columns of `each` of its own."""
    from django.db import connection

    table = pattern._meta.db_table
    names = [field.column for field in pattern._meta.concrete_fields if field.column not in {*each, "id"}]
    own = ", ".join(f'"{name}"' for name in each)
    copied = ", ".join(f'pattern."{name}"' for name in names)
    plain = ", ".join(f'"{name}"' for name in names)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({own}, {plain}) SELECT {', '.join(each.values())}, {copied} "
            f"FROM {rows}, (SELECT * FROM {table} WHERE id = {pattern.pk}) AS pattern",
            parameters,
        )


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
