"""A real Kannel on free ports of this machine, with a fake SMSC that writes down what it got."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote_to_bytes

from otp_service.embedded.processes import dying_with_parent
from tests.deadline import eventually
from tests.http import call

BEARERBOX, SMSBOX, FAKESMSC = "bearerbox", "smsbox", "/usr/lib/kannel/test/fakesmsc"
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"  # where Debian puts the boxes
_GOT = re.compile(r"Got message \d+: <(\S+) (\S+) (text|ucs-2|udh [%0-9A-F]+ data) (.*)>$", re.MULTILINE)
_CONFIGURATION = """
group = core
admin-port = {admin}
admin-interface = "127.0.0.1"
admin-password = admin
status-password = status
smsbox-port = {boxes}
smsbox-interface = "127.0.0.1"
box-allow-ip = "127.0.0.1"
dlr-storage = internal
store-type = spool
store-location = "{spool}"

group = smsc
smsc = fake
smsc-id = fake
host = 127.0.0.1
port = {smsc}
connect-allow-ip = 127.0.0.1

group = smsbox
bearerbox-host = 127.0.0.1
sendsms-port = {sendsms}
sendsms-interface = "127.0.0.1"

group = sendsms-user
username = {username}
password = "{password}"
max-messages = 3
concatenation = true

group = sms-service
keyword = default
catch-all = true
{service}
max-messages = 0
"""


def missing() -> list[str]:
    """The programs that this machine does not have."""
    return [program for program in (BEARERBOX, SMSBOX, FAKESMSC) if shutil.which(program, path=_PATH) is None]


class Gateway:
    """Starts its boxes on entry, ends what it started on exit. What is written comes to `inbound_url`, if given."""

    def __init__(self, folder: Path, *, username: str, password: str, inbound_url: str = "") -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = dict(zip(("admin", "boxes", "smsc", "sendsms"), _free_ports(4), strict=True))
        (folder / "spool").mkdir()
        (folder / "kannel.conf").write_text(
            _CONFIGURATION.format(
                **self._ports,
                spool=folder / "spool",
                username=username,
                password=password,
                service=f'get-url = "{inbound_url}"' if inbound_url else 'text = "none"',
            )
        )

    def __enter__(self) -> Self:
        try:
            self._start(BEARERBOX, "kannel.conf")
            eventually(lambda: _listens(self._ports["boxes"]))
            self._start(SMSBOX, "kannel.conf")
            eventually(lambda: _listens(self._ports["sendsms"]))
        except BaseException:
            self._end_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_all()

    @property
    def base_url(self) -> str:
        """Of its sendsms."""
        return f"http://127.0.0.1:{self._ports['sendsms']}"

    @property
    def status_url(self) -> str:
        """Its status page, whose password is `status`."""
        return f"http://127.0.0.1:{self._ports['admin']}/status.xml"

    def start_smsc(self, writes: str = "") -> None:
        """Start the fake SMSC, which forgets what it got before, and wait until it is connected.

        `writes`: what somebody writes over it, once, as in "+34600000017 12345 text hello".
        """
        what = ("1", writes) if writes else ("0", "1 2 text unused")
        self._start(FAKESMSC, "-H", "127.0.0.1", "-r", str(self._ports["smsc"]), "-m", *what)
        eventually(self._is_online)

    def end_smsc(self) -> None:
        """End the fake SMSC, and wait until Kannel knows."""
        self._end(FAKESMSC)
        eventually(lambda: not self._is_online())

    def freeze_bearerbox(self) -> None:
        """It takes nothing and answers nothing from here on."""
        self._running[BEARERBOX].send_signal(signal.SIGSTOP)

    def kill_bearerbox(self) -> None:
        """End it as a crash does; smsbox then closes by itself."""
        self._end(BEARERBOX)

    def is_closed(self) -> bool:
        """Whether nobody listens at sendsms."""
        return not _listens(self._ports["sendsms"])

    def has_read(self, username: str) -> bool:
        """Whether smsbox has read a submission of this user."""
        return f"sendsms used by <{username}>" in self._said(SMSBOX)

    def received(self) -> list[tuple[str, str, str, str]]:
        """What the fake SMSC got: from, to, how it was coded, text."""
        return [
            (sender, to, coding, _ucs2(text) if coding == "ucs-2" else text)
            for sender, to, coding, text in _GOT.findall(self._said(FAKESMSC))
        ]

    def _is_online(self) -> bool:
        return "<status>online " in call("GET", f"{self.status_url}?password=status").body

    def _said(self, program: str) -> str:
        return self._log(program).read_text(errors="replace")

    def _log(self, program: str) -> Path:
        return self._folder / f"{Path(program).name}.log"

    def _start(self, program: str, *arguments: str) -> None:
        argv = dying_with_parent([str(shutil.which(program, path=_PATH)), *arguments], "KILL")
        with self._log(program).open("wb") as log:
            process = subprocess.Popen(argv, cwd=self._folder, stdout=log, stderr=subprocess.STDOUT)
        self._running[program] = process

    def _end(self, program: str) -> None:
        process = self._running.pop(program)
        process.kill()
        process.wait()

    def _end_all(self) -> None:
        for program in list(self._running):
            self._end(program)


class Listener:
    """Where Kannel reports: keeps every address that was called."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                listener.urls.append(listener.base_url + self.path)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                """Say nothing."""

        return Handler


def _ucs2(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-16-be")


def _free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in taken:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in taken]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
