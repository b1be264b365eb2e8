"""The dispatcher over real HTTP, against what bare aiohttp reaches in one process with as many calls at once.

Both post the same JSON to the same nginx on the loopback interface, which says at once that it took it. The provider
is one of the benchmark, as no protocol that the product speaks yet is so simple; it calls through the product's HTTP
seam, with its limits of time and size, and checks the answer. Bare aiohttp only reads it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks import databases, dispatching, http_dispatcher, waiting

ROWS = int(os.environ.get("BENCH_HTTP_ROWS", "200000"))
_NGINX = """
daemon off; worker_processes 1; pid {folder}/pid; error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000000; default_type application/json;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{ return 202 '{{"attempt_id":"$http_attempt_id"}}'; }}
  }}
}}
"""


def run() -> dict[str, float]:
    """Measure both; returns calls a second, or nothing where there is no nginx."""
    if shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
        print("http is left out: there is no nginx (Debian: apt-get install nginx-light)")
        return {}
    from scheduler.dispatcher import _loop_factory

    with stub() as url:
        print(f"bare aiohttp, {dispatching.SLOTS:,} calls at once, {dispatching.SECONDS} s …", flush=True)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            bare = runner.run(_bare(url))
        name = "otp_bench_http"
        with databases.migrated(name) as address, databases.using(name):
            waiting.fill(ROWS)
            print(f"dispatcher over HTTP, {dispatching.SLOTS:,} slots, {dispatching.SECONDS} s …", flush=True)
            env = {"BENCH_HTTP_URL": url}
            dispatcher = dispatching.rate(["-m", "tests.benchmarks.http_dispatcher"], address, env)
    return {"bare_aiohttp_per_s": bare, "dispatcher_over_http_per_s": dispatcher}


@contextmanager
def stub() -> Iterator[str]:
    """A server that takes everything; gives its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # nginx's worker is another user, where we are root
        conf = Path(folder) / "nginx.conf"
        conf.write_text(_NGINX.format(folder=folder, port=port))
        with subprocess.Popen(["nginx", "-e", "stderr", "-c", str(conf), "-p", folder]) as nginx:
            try:
                _wait_for(port, nginx)
                yield f"http://127.0.0.1:{port}/v1/sends"
            finally:
                nginx.terminate()


def _wait_for(port: int, nginx: subprocess.Popen[bytes]) -> None:
    while nginx.poll() is None:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
    raise RuntimeError(f"nginx ended with {nginx.returncode}")


async def _bare(url: str) -> float:
    """Calls a second, without anything around them."""
    import aiohttp

    body = b'{"attempt_id": "%s", "to": "+34600000000", "text": "%s"}' % (b"0" * 36, b"x" * 48)
    headers = {"Content-Type": "application/json", http_dispatcher.ATTEMPT_HEADER: "0" * 36}
    calls = 0
    begin = time.monotonic()

    async def call_again_and_again(session: aiohttp.ClientSession) -> None:
        nonlocal calls
        while time.monotonic() < begin + dispatching.SECONDS:
            async with session.post(url, data=body, headers=headers) as response:
                await response.read()
            calls += 1

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(call_again_and_again(session) for _ in range(dispatching.SLOTS)))
    return calls / (time.monotonic() - begin)
