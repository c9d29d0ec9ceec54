"""The page as a running server: an address to open, a warning where others can reach it, a clean end.

serve(Path("lab"), "127.0.0.1", 8765, browser=True)
"""

from __future__ import annotations

import socket
import sys
import webbrowser
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Final

import uvicorn

from seedbed.errors import UsageError
from seedbed.web.app import SeedbedApp, make_app
from seedbed.web.guard import Guard, is_loopback
from seedbed.web.offline import forbid_network
from seedbed.web.processes import lower_priority
from seedbed.web.store_cache import StoreCache

SHUTDOWN_TIMEOUT_SECONDS: Final = (
    6  # seconds that answers under way may take at the end, at a low priority beside training
)
WILDCARD_HOSTS: Final = ("", "0.0.0.0", "::", "[::]")


def serve(home: Path, host: str, port: int, browser: bool) -> None:
    """Serves the page of a home until Ctrl-C; port 0 takes a free one."""
    with _bind(host, port) as listening:
        guard = Guard.create(host, listening.getsockname()[1])
        forbid_network()
        lower_priority()
        app = make_app(StoreCache(home), guard)
        _print_address(home, host, guard)
        Thread(target=import_module, args=("seedbed.charts.line_chart",), daemon=True).start()  # half a second of work
        if browser:
            webbrowser.open(guard.login_url)
        with suppress(KeyboardInterrupt):  # the way to end it, which uvicorn hands on after its own end
            Server(app).run([listening])


def _bind(host: str, port: int) -> socket.socket:
    """A socket at this address, so that its port is known before anything is said."""
    if host in WILDCARD_HOSTS:
        raise UsageError(
            f"--host {host!r} means every address of this machine; name the one that people will use, "
            "since requests are held against it"
        )
    try:
        return socket.create_server((host.strip("[]"), port), family=_address_family(host), backlog=512)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"{host}:{port} cannot be served ({reason}); name another --port or --host") from None


def _address_family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _print_address(home: Path, host: str, guard: Guard) -> None:
    """The address goes to stdout, where a script can take it; what a person should know to stderr."""
    if not is_loopback(host):
        print(
            f"seedbed: warning: {host} can be reached from other machines, and what is sent is not encrypted; "
            "whoever has this address sees the store and can start studies",
            file=sys.stderr,
        )
    print(guard.login_url, flush=True)
    print(f"seedbed: showing {home}; end with Ctrl-C", file=sys.stderr, flush=True)


class Server(uvicorn.Server):
    """uvicorn, which says nothing of requests (addresses may hold the token) and ends streams when it is asked to."""

    def __init__(self, app: SeedbedApp) -> None:
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_keep_alive=30,
            timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_SECONDS, ws="none", lifespan="on",
        )  # fmt: skip
        super().__init__(config)
        self._live = app.state.live

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._live.close()
        super().handle_exit(sig, frame)

    def stop(self) -> None:
        """Ends it from another thread."""
        self._live.close()
        self.should_exit = True
