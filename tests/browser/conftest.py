"""A real browser: Debian's Chromium, driven by Playwright. Without it these tests are skipped, but never under CI."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response, sync_playwright
from pytest_django.live_server_helper import LiveServer

SCREENSHOTS = Path(__file__).resolve().parents[2] / "var" / "screenshots"
PASSWORD = "a long password of a person"
PATIENCE_MS = 20_000


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for a module, and no longer: while it is open, its loop runs in this thread."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("CI has no Chromium: .ci/run installs it")
        pytest.skip("no Chromium: apt-get install chromium")
    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")  # Django takes a test beside that loop for async code
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])  # as root it has none
        yield browser
        browser.close()


class Watch:
    """What a page complained about, and what it asked others for."""

    def __init__(self, page: Page, base: str) -> None:
        self.faults: list[str] = []
        self._host = urlsplit(base).netloc
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        page.on("request", self._request)
        page.on("response", self._response)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.faults.append(f"console: {message.text} {message.location.get('url')}")

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme.startswith("http") and parts.netloc != self._host:
            self.faults.append(f"another host: {request.url}")

    def _response(self, response: Response) -> None:
        if response.status >= 400:
            self.faults.append(f"{response.status}: {response.url}")


@pytest.fixture
def page(chromium: Browser, live_server: LiveServer, request: pytest.FixtureRequest) -> Iterator[Page]:
    """An empty page on the running service. At the end nothing must have gone wrong on it; its last sight is kept."""
    context = chromium.new_context(base_url=live_server.url, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    opened = context.new_page()
    watch = Watch(opened, live_server.url)
    yield opened
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    opened.screenshot(path=SCREENSHOTS / f"{request.node.name}.png")
    context.close()
    assert watch.faults == []


def log_in(page: Page, user: User) -> None:
    """By the form, as a person does."""
    page.goto("/admin/")
    page.fill("input[name=username]", user.get_username())
    page.fill("input[name=password]", PASSWORD)
    page.click("button[type=submit]")
    page.wait_for_url("**/admin/")


@pytest.fixture
def admin(transactional_db: None) -> User:
    return User.objects.create_superuser("ada", password=PASSWORD)
