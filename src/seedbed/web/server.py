"""Runs the page's HTTP server: prints the URL to open, warns if other machines can reach it, shuts down cleanly.

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

SHUTDOWN_TIMEOUT_SECONDS: Final = 6  # for open requests, which are slow at low priority beside training
WILDCARD_HOSTS: Final = ("", "0.0.0.0", "::", "[::]")


def serve(home: Path, host: str, port: int, browser: bool) -> None:
    """Serves the page of a home until Ctrl-C; port 0 picks a free port."""
    with _bind(host, port) as listener:
        guard = Guard.create(host, listener.getsockname()[1])
        forbid_network()
        lower_priority()
        app = make_app(StoreCache(home), guard)
        _print_address(home, host, guard)
        Thread(
            target=import_module, args=("seedbed.charts.line_chart",), daemon=True
        ).start()  # import ahead: takes half a second
        if browser:
            webbrowser.open(guard.login_url)
        with suppress(KeyboardInterrupt):  # uvicorn re-raises Ctrl-C after its shutdown
            Server(app).run([listener])


def _bind(host: str, port: int) -> socket.socket:
    """A socket bound to this address; binding first makes the port known before the URL is printed."""
    if host in WILDCARD_HOSTS:
        raise UsageError(
            f"--host {host!r} means every address of this machine; give the one that people will use, "
            "because requests are checked against it"
        )
    try:
        return socket.create_server((host.strip("[]"), port), family=_address_family(host), backlog=512)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"{host}:{port} cannot be served ({reason}); try another --port or --host") from None


def _address_family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _print_address(home: Path, host: str, guard: Guard) -> None:
    """Prints the URL to stdout, for scripts, and notes for people to stderr."""
    if not is_loopback(host):
        print(
            f"seedbed: warning: {host} can be reached from other machines, and traffic is not encrypted; "
            "whoever has this URL can read the store and start studies",
            file=sys.stderr,
        )
    print(guard.login_url, flush=True)
    print(f"seedbed: serving {home}; stop with Ctrl-C", file=sys.stderr, flush=True)


class Server(uvicorn.Server):
    """uvicorn without an access log (URLs may contain the token), ending open streams on shutdown."""

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
        """Stops the server from another thread."""
        self._live.close()
        self.should_exit = True
