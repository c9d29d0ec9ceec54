"""Chromium without a window, driven through a pipe (the DevTools protocol), so that no driver has to be installed.

    with Chromium(tmp_path) as browser:
        browser.open(page, dark=True)
        browser.value("document.title")

It reports what a reader would not see: errors in the console, and every address that the page asked for.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import time
from pathlib import Path
from typing import Any, Final

import pytest

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE: Final = 30.0  # seconds for any answer


def find_chromium() -> str:
    """The path of a Chromium, or a skipped test that says how to get one."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if not found:
        pytest.skip(f"no browser: install Chromium or name one in CHROMIUM (looked for {', '.join(NAMES)})")
    return found


def _spawn(command: list[str], to_browser: int, from_browser: int) -> int:
    """The browser's process; it reads descriptor 3 and writes 4, so ours are first moved out of their way."""
    pipes = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 10) for one in (to_browser, from_browser)]
    silent = [(os.POSIX_SPAWN_OPEN, one, os.devnull, os.O_WRONLY, 0) for one in (1, 2)]
    given = [(os.POSIX_SPAWN_DUP2, one, wanted) for one, wanted in zip(pipes, (3, 4), strict=True)]
    pid = os.posix_spawnp(command[0], command, os.environ, file_actions=[*silent, *given])
    for one in pipes:
        os.close(one)
    return pid


class Chromium:
    """One browser with one page; what it said is in `errors` and `addresses`."""

    def __init__(self, folder: Path) -> None:
        self.errors: list[str] = []
        self.addresses: list[str] = []
        self._program, self._folder = find_chromium(), folder
        self._number, self._buffer, self._session = 0, b"", ""

    def __enter__(self) -> Chromium:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        command = [self._program, *FLAGS, f"--user-data-dir={self._folder}", "about:blank"]
        self._pid = _spawn(command, to_browser, from_browser)
        os.close(to_browser)
        os.close(from_browser)
        (page,) = [one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{part}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._write)  # which ends it
        os.waitpid(self._pid, 0)
        os.close(self._read)

    # ---- what tests ask for ----

    def open(self, page: Path, *, dark: bool = False, script: bool = True, width: int = 1200) -> None:
        """Loads a file and waits until it is there."""
        self.errors, self.addresses = [], []
        self.appear("dark" if dark else "light")
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=page.as_uri())
        self._answer(lambda message: message.get("method") == "Page.loadEventFired")

    def appear(self, scheme: str, media: str = "screen") -> None:
        """Light or dark, for a screen or for print."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is worth in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Until the expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.value(expression):
            assert time.monotonic() < end, f"still not true after {PATIENCE:.0f} s: {expression}; {self.errors}"
            time.sleep(0.05)

    def picture(self) -> bytes:
        """The whole page as PNG."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        return base64.b64decode(found["data"])

    # ---- the protocol: JSON with a zero byte after it ----

    def call(self, method: str, **options: object) -> Any:
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": options}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self._answer(lambda message: message.get("id") == number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _answer(self, wanted: Any) -> Any:
        end = time.monotonic() + PATIENCE
        while True:
            message = self._next(end)
            self._note(message)
            if wanted(message):
                return message

    def _next(self, end: float) -> Any:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"the browser said nothing for {PATIENCE:.0f} s"
            part = os.read(self._read, 1 << 16)
            assert part, "the browser has ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, message: Any) -> None:
        said, method = message.get("params", {}), message.get("method")
        if method == "Network.requestWillBeSent":
            self.addresses.append(said["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = said["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(one.get("value", one.get("description"))) for one in said["args"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.errors.append(said["entry"]["text"])
