"""A real browser for the tests of the page; console errors and external requests fail the test.

def test_…(visit, trained_home):
    page = visit(trained_home, "/study/tiny/rule", dark=True)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from ..web.server import RunningServer, run_server
from .chromium import find_chromium

EVENT_TIMEOUT_MS = 120_000  # tests wait for events; this only ends one whose event never comes, on any machine


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The system's Chromium, driven by Playwright."""
    with sync_playwright() as playwright:
        expect.set_options(timeout=EVENT_TIMEOUT_MS)
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server_of() -> Iterator[Callable[[Path], RunningServer]]:
    """The server of a home, started once per session."""
    running: dict[Path, RunningServer] = {}
    with ExitStack() as stack:

        def start(home: Path) -> RunningServer:
            if home not in running:
                running[home] = stack.enter_context(run_server(home))
            return running[home]

        yield start


@pytest.fixture
def visit(chromium: Browser, server_of: Callable[[Path], RunningServer]) -> Iterator[Callable[..., Page]]:
    """Opens a path of a home's page; afterwards there must be no console errors and no external requests.

    A test that provokes an error removes it from `page.problems`.
    """
    opened: list[Page] = []

    def open_page(
        home: Path | RunningServer, path: str = "/", dark: bool = False, width: int = 1200, **more: object
    ) -> Page:
        server = home if isinstance(home, RunningServer) else server_of(home)
        context = chromium.new_context(
            color_scheme="dark" if dark else "light", viewport={"width": width, "height": 900}, **more
        )
        context.set_default_timeout(EVENT_TIMEOUT_MS)
        page = context.new_page()
        problems: list[str] = []
        page.problems = problems  # type: ignore[attr-defined]
        page.on(
            "console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request", lambda sent: None if _is_internal(sent.url, server) else problems.append(f"requested {sent.url}")
        )
        opened.append(page)
        page.goto(server.login_url)
        page.goto(server.base + path)
        return page

    yield open_page
    problems = [problem for page in opened for problem in page.problems]  # type: ignore[attr-defined]
    for page in opened:
        page.context.close()
    assert problems == []


def _is_internal(url: str, server: RunningServer) -> bool:
    return url.startswith((f"{server.base}/", "data:", "blob:"))


def until(page: Page, expression: str, seconds: float = 15.0) -> None:
    """Polls until an expression is true; Playwright's own wait evaluates strings, which the page's CSP forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"still not true after {seconds:.0f} s: {expression}"
        time.sleep(0.02)


def ready(page: Page) -> Page:
    """The page once its content is loaded."""
    page.wait_for_selector("[data-ready=true]", state="attached")
    return page
