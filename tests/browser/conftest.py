"""A real browser for the tests of the page; what goes wrong out of a reader's sight fails the test.

def test_…(visit, trained):
    page = visit(trained, "/study/tiny/rule", dark=True)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from ..web.server import Served, served
from .chromium import find_chromium


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, driven by Playwright."""
    with sync_playwright() as playwright:
        expect.set_options(timeout=20_000)  # a model worker on a busy machine needs seconds to start
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server_of() -> Iterator[Callable[[Path], Served]]:
    """The server of a home, started once a session."""
    running: dict[Path, Served] = {}
    with ExitStack() as stack:

        def start(home: Path) -> Served:
            if home not in running:
                running[home] = stack.enter_context(served(home))
            return running[home]

        yield start


@pytest.fixture
def visit(chromium: Browser, server_of: Callable[[Path], Served]) -> Iterator[Callable[..., Page]]:
    """Opens a place of a home's page; at the end no console error and no address outside may have been seen.

    A test that provokes an error takes it out of `page.troubles`.
    """
    opened: list[Page] = []

    def open_page(home: Path | Served, place: str = "/", dark: bool = False, width: int = 1200, **more: object) -> Page:
        server = home if isinstance(home, Served) else server_of(home)
        context = chromium.new_context(
            color_scheme="dark" if dark else "light", viewport={"width": width, "height": 900}, **more
        )
        context.set_default_timeout(15_000)
        page = context.new_page()
        troubles: list[str] = []
        page.troubles = troubles  # type: ignore[attr-defined]
        page.on("console", lambda said: troubles.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda asked: None if _inside(asked.url, server) else troubles.append(f"asked {asked.url}"))
        opened.append(page)
        page.goto(server.door)
        page.goto(server.base + place)
        return page

    yield open_page
    troubles = [trouble for page in opened for trouble in page.troubles]  # type: ignore[attr-defined]
    for page in opened:
        page.context.close()
    assert troubles == []


def _inside(address: str, server: Served) -> bool:
    return address.startswith((f"{server.base}/", "data:", "blob:"))


def until(page: Page, expression: str, seconds: float = 15.0) -> None:
    """Waits for an expression to be true; Playwright's own way evaluates text, which the page's policy forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"still not true after {seconds:.0f} s: {expression}"
        time.sleep(0.02)


def ready(page: Page) -> Page:
    """The page once it has read what it shows."""
    page.wait_for_selector("[data-ready=true]", state="attached")
    return page
