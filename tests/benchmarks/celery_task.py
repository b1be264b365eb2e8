"""The peer that the dispatcher is measured against: one Celery task for each message.

One worker process of 200 threads, on a Valkey of its own. A task waits as long as the provider takes and does nothing
else: no database, no decryption, no retry. What a real one would do comes on top.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from celery import Celery

from otp_service.embedded import celery_broker_url, temporary_servers

THREADS = 200
TASKS = 3_000
#: Seconds until the worker must have done them all.
_PATIENCE_S = 120
_CALL_S = 0.15

app = Celery("bench", broker=os.environ.get("BENCH_BROKER_URL"))
app.conf.update(task_ignore_result=True, worker_hijack_root_logger=False)

_lock = threading.Lock()
_spans: list[tuple[float, float]] = []


@app.task
def send(_message_id: int) -> None:
    """One message. The last one writes down how long all of them took."""
    started = time.monotonic()
    threading.Event().wait(_CALL_S)
    with _lock:
        _spans.append((started, time.monotonic()))
        if len(_spans) == TASKS:
            seconds = max(ended for _, ended in _spans) - min(started for started, _ in _spans)
            report = Path(os.environ["BENCH_REPORT"])
            report.with_suffix(".new").write_text(str(seconds))
            report.with_suffix(".new").replace(report)


def rate() -> float:
    """Tasks a second that one worker process does, with the queue full before it begins."""
    print(f"Celery, {TASKS:,} tasks of {_CALL_S * 1000:.0f} ms, {THREADS} threads …", flush=True)
    only_valkey = {**os.environ, "REDIS_URL": ""}
    with tempfile.TemporaryDirectory() as folder, temporary_servers(only_valkey) as servers:
        report = Path(folder) / "seconds"
        broker = celery_broker_url(servers.env["REDIS_URL"])
        with app.connection_for_write(broker) as publisher:
            for number in range(TASKS):
                app.send_task(send.name, [number], connection=publisher)
        with _worker(BENCH_BROKER_URL=broker, BENCH_REPORT=str(report)) as worker:
            try:
                return TASKS / _seconds(report, worker)
            finally:
                worker.terminate()


def _worker(**more_env: str) -> subprocess.Popen[bytes]:
    # Without Django, or Celery would see to its connections after every task.
    env = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"} | more_env
    quietly = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"]
    command = ["celery", "-A", __name__, "worker", "--pool", "threads", "-c", str(THREADS), *quietly]
    return subprocess.Popen([sys.executable, "-m", *command], env=env, stdout=subprocess.DEVNULL)


def _seconds(report: Path, worker: subprocess.Popen[bytes]) -> float:
    give_up_at = time.monotonic() + _PATIENCE_S
    while not report.exists():
        if worker.poll() is not None or time.monotonic() > give_up_at:
            raise RuntimeError(f"the Celery worker did not do {TASKS:,} tasks in {_PATIENCE_S} s")
        threading.Event().wait(0.1)
    return float(report.read_text())
