"""The page as an ASGI application: all routers behind one guard, and error handlers that answer with one sentence.

make_app(StoreCache(Path("lab")), Guard.create("127.0.0.1", 8765))
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from seedbed.errors import SeedbedError
from seedbed.web import assets, downloads, live, model_routes
from seedbed.web.guard import Guard
from seedbed.web.job_manager import JobManager
from seedbed.web.live import LiveProgress
from seedbed.web.model_client import ModelClient
from seedbed.web.process_pool import ProcessPool
from seedbed.web.responses import error_response, http_status
from seedbed.web.store_cache import StoreCache
from seedbed.web.views import compare_page, interp_page, playground_page, run_page, start_page, studies_page, study_page

ROUTERS: Final[tuple[APIRouter, ...]] = (
    assets.router, live.router, studies_page.router, study_page.router, run_page.router, model_routes.router,
    interp_page.router, playground_page.router, compare_page.router, start_page.router, downloads.router,
)  # fmt: skip


class SeedbedApp(FastAPI):
    """The application; its guard is the outermost middleware, outside even the error handlers."""

    guard: Guard

    def build_middleware_stack(self) -> ASGIApp:
        return self.guard.wrap(super().build_middleware_stack())


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
