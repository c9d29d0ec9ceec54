"""Headless Chromium, driven through a pipe (the DevTools protocol), so that no driver has to be installed.

    with Chromium(tmp_path) as browser:
        browser.open(page, dark=True)
        browser.value("document.title")

It records console errors and the URL of every request.
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
TIMEOUT_SECONDS: Final = 30.0


def find_chromium() -> str:
    """The path of a Chromium; skips the test if there is none."""
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if not path:
        pytest.skip(f"no browser: install Chromium or set CHROMIUM to its path (looked for {', '.join(NAMES)})")
    return path


def _spawn(command: list[str], to_browser: int, from_browser: int) -> int:
    """Spawns the browser, which reads from descriptor 3 and writes to 4; ours are first moved out of that range."""
    pipes = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 10) for one in (to_browser, from_browser)]
    silenced = [(os.POSIX_SPAWN_OPEN, one, os.devnull, os.O_WRONLY, 0) for one in (1, 2)]
    duplicated = [(os.POSIX_SPAWN_DUP2, one, target) for one, target in zip(pipes, (3, 4), strict=True)]
    pid = os.posix_spawnp(command[0], command, os.environ, file_actions=[*silenced, *duplicated])
    for one in pipes:
        os.close(one)
    return pid


class Chromium:
    """A browser with one page; records console `errors` and requested `urls`."""

    def __init__(self, folder: Path) -> None:
        self.errors: list[str] = []
        self.urls: list[str] = []
        self._program, self._folder = find_chromium(), folder
        self._last_id, self._buffer, self._session = 0, b"", ""

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
        os.close(self._write)  # closing the pipe ends the browser
        os.waitpid(self._pid, 0)
        os.close(self._read)

    # ---- used by tests ----

    def open(self, page: Path, *, dark: bool = False, script: bool = True, width: int = 1200) -> None:
        """Opens a file and waits until it is loaded."""
        self.errors, self.urls = [], []
        self.set_media("dark" if dark else "light")
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=page.as_uri())
        self._wait_for_message(lambda message: message.get("method") == "Page.loadEventFired")

    def set_media(self, scheme: str, media: str = "screen") -> None:
        """Emulates a light or dark colour scheme, for screen or print."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        reply = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Polls until the expression is true."""
        end = time.monotonic() + TIMEOUT_SECONDS
        while not self.value(expression):
            assert time.monotonic() < end, f"still not true after {TIMEOUT_SECONDS:.0f} s: {expression}; {self.errors}"
            time.sleep(0.05)

    def screenshot(self) -> bytes:
        """A PNG of the whole page."""
        reply = self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        return base64.b64decode(reply["data"])

    # ---- the protocol: JSON messages, each followed by a zero byte ----

    def call(self, method: str, **options: object) -> Any:
        self._last_id += 1
        message_id = self._last_id
        message = {"id": message_id, "method": method, "params": options}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self._wait_for_message(lambda message: message.get("id") == message_id)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _wait_for_message(self, condition: Any) -> Any:
        end = time.monotonic() + TIMEOUT_SECONDS
        while True:
            message = self._read_message(end)
            self._record(message)
            if condition(message):
                return message

    def _read_message(self, end: float) -> Any:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"the browser did not reply for {TIMEOUT_SECONDS:.0f} s"
            part = os.read(self._read, 1 << 16)
            assert part, "the browser has exited"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _record(self, message: Any) -> None:
        params, method = message.get("params", {}), message.get("method")
        if method == "Network.requestWillBeSent":
            self.urls.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(one.get("value", one.get("description"))) for one in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
