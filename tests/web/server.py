"""The page's real server in a thread of the test, on a free port."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seedbed.web.guard import Guard
from seedbed.web.server import Server, make_app
from seedbed.web.store_cache import StoreCache


@dataclass(frozen=True)
class RunningServer:
    """The address of a server; `login_url` gives a browser access."""

    base: str
    token: str

    @property
    def login_url(self) -> str:
        return f"{self.base}/?token={self.token}"


@contextmanager
def run_server(home: Path) -> Iterator[RunningServer]:
    """Serves the page of this home for the duration of the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        guard = Guard.create("127.0.0.1", port)
        server = Server(make_app(StoreCache(home), guard))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        end = time.monotonic() + 120
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            assert time.monotonic() < end, "the server took too long"
            time.sleep(0.01)
        try:
            yield RunningServer(f"http://127.0.0.1:{port}", guard.token)
        finally:
            server.stop()
            thread.join(20)
