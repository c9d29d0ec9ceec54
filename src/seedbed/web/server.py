"""The page's server: an ASGI application with all routers behind one guard, served by uvicorn until Ctrl-C.

    serve(Path("lab"), "127.0.0.1", 8765, browser=True)
    make_app(StoreCache(Path("lab")), Guard.create("127.0.0.1", 8765))

It prints the URL to open, warns if other machines can reach it, answers every error with one sentence, and shuts down
cleanly.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import traceback
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Final

import uvicorn
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from seedbed.errors import SeedbedError, UsageError
from seedbed.format import escape_controls
from seedbed.web import compare_page, downloads, live, model_pages, responses, run_page, start_page, study_page
from seedbed.web.guard import Guard, is_loopback
from seedbed.web.jobs import JobManager
from seedbed.web.live import LiveProgress
from seedbed.web.model_client import ModelClient
from seedbed.web.processes import ProcessPool, forbid_network, lower_priority
from seedbed.web.responses import error_response, http_status
from seedbed.web.store_cache import StoreCache

ROUTERS: Final[tuple[APIRouter, ...]] = (
    responses.router, live.router, study_page.router, run_page.router, model_pages.router, compare_page.router,
    start_page.router, downloads.router,
)  # fmt: skip
SHUTDOWN_TIMEOUT_SECONDS: Final = 6  # for open requests, which are slow at low priority beside training
MIN_COMPRESSED_BYTES: Final = 1_000
COMPRESSION_LEVEL: Final = 4  # level 9 takes three times as long for a few per cent
WILDCARD_HOSTS: Final = ("", "0.0.0.0", "::", "[::]")


# ---- the application ----


class SeedbedApp(FastAPI):
    """The application; its guard is the outermost middleware, outside even the error handlers."""

    guard: Guard

    def build_middleware_stack(self) -> ASGIApp:
        app = GZipMiddleware(super().build_middleware_stack(), MIN_COMPRESSED_BYTES, COMPRESSION_LEVEL)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            """HEAD is GET without its body, which uvicorn leaves out."""
            await app({**scope, "method": "GET"} if scope.get("method") == "HEAD" else scope, receive, send)

        return self.guard.wrap(answer)


def make_app(cache: StoreCache, guard: Guard) -> SeedbedApp:
    """Builds the application for a home; without the documentation routes, which load scripts from other hosts."""
    app = SeedbedApp(openapi_url=None, docs_url=None, redoc_url=None, lifespan=_lifespan, redirect_slashes=False)
    app.guard = guard
    app.state.store_cache, app.state.live, app.state.model_client = cache, LiveProgress(cache), ModelClient(cache.home)
    app.state.job_manager, app.state.process_pool = JobManager(cache.home), ProcessPool()
    for router in ROUTERS:
        app.include_router(router)
    app.exception_handler(SeedbedError)(_handle_seedbed_error)
    app.exception_handler(HTTPException)(_handle_http_error)
    app.exception_handler(RequestValidationError)(_handle_validation_error)
    app.exception_handler(Exception)(_handle_internal_error)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    app.state.live.close()
    app.state.model_client.close()
    app.state.process_pool.close()


def _handle_seedbed_error(request: Request, error: SeedbedError) -> Response:
    return error_response(request, str(error), http_status(error))


def _handle_http_error(request: Request, error: HTTPException) -> Response:
    message = f"there is nothing at {request.url.path}" if error.detail == "Not Found" else str(error.detail)
    response = error_response(request, message, error.status_code)
    response.headers.update(error.headers or {})
    return response


def _handle_validation_error(request: Request, error: RequestValidationError) -> Response:
    messages = [f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg'].lower()}" for one in error.errors()[:5]]
    return error_response(request, "; ".join(messages), 400)


def _handle_internal_error(request: Request, error: Exception) -> Response:
    traceback.print_exception(error, file=sys.stderr)
    return error_response(
        request, "internal error in seedbed; see the traceback in the terminal of `seedbed serve`", 500
    )


# ---- serving it ----


def serve(home: Path, host: str, port: int, browser: bool) -> None:
    """Serves the page of a home until Ctrl-C; port 0 picks a free port.

    The URL goes to stdout, for scripts, and notes for people to stderr.
    """
    with _bind(host, port) as listener:
        guard = Guard.create(host, listener.getsockname()[1])
        forbid_network()
        lower_priority()
        app = make_app(StoreCache(home), guard)
        if not is_loopback(host):
            print(
                f"seedbed: warning: {host} can be reached from other machines, and traffic is not encrypted; "
                "whoever has this URL can read the store and start studies",
                file=sys.stderr,
            )
        print(guard.login_url, flush=True)
        print(f"seedbed: serving {escape_controls(str(home))}; stop with Ctrl-C", file=sys.stderr, flush=True)
        Thread(target=_import_ahead, daemon=True).start()
        if browser:
            webbrowser.open(guard.login_url)
        with suppress(KeyboardInterrupt):  # uvicorn re-raises Ctrl-C after its shutdown
            Server(app).run([listener])


def _import_ahead() -> None:
    """Imports what the first figure and the first answer need, beside the first requests: it takes most of a second."""
    for name in ("seedbed.charts.line_chart", "scipy.special"):
        import_module(name)


def _bind(host: str, port: int) -> socket.socket:
    """A socket bound to this address; binding first makes the port known before the URL is printed."""
    if host in WILDCARD_HOSTS:
        raise UsageError(
            f"--host {host!r} means every address of this machine; give the one that people will use, "
            "because requests are checked against it"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=512)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"{host}:{port} cannot be served ({reason}); try another --port or --host") from None


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    """False for requests that a shutdown has cut off: whoever stops the server knows."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, asyncio.CancelledError) and not str(record.msg).startswith("Cancel %s running task")


class Server(uvicorn.Server):
    """uvicorn without an access log (URLs may contain the token), ending open streams on shutdown."""

    def __init__(self, app: SeedbedApp) -> None:
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_keep_alive=30,
            timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_SECONDS, ws="none", lifespan="on",
        )  # fmt: skip
        super().__init__(config)
        logging.getLogger("uvicorn.error").addFilter(_is_no_cancellation)
        self._live = app.state.live

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._live.close()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closes the connections whose request body has not arrived, then waits for the other requests."""
        for connection in list(self.server_state.connections):
            cycle = getattr(connection, "cycle", None)
            if cycle is not None and cycle.more_body and not cycle.response_complete:
                connection.transport.close()
        await super().shutdown(sockets)

    def stop(self) -> None:
        """Stops the server from another thread."""
        self._live.close()
        self.should_exit = True
