"""The page as an ASGI application: all routers behind one guard, and errors as sentences.

make_app(Lab(Path("lab")), Guard.fresh("127.0.0.1", 8765))
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
from seedbed.web import assets, downloads, live, model_views
from seedbed.web.aside import Aside
from seedbed.web.control import Control
from seedbed.web.guard import Guard
from seedbed.web.lab import Lab
from seedbed.web.live import Live
from seedbed.web.models import Models
from seedbed.web.pages import said, status_of
from seedbed.web.views import compare, inside, playground, run, start, studies, study

ROUTERS: Final[tuple[APIRouter, ...]] = (
    assets.router, live.router, studies.router, study.router, run.router, model_views.router, inside.router,
    playground.router, compare.router, start.router, downloads.router,
)  # fmt: skip


class Page(FastAPI):
    """The application; its guard stands before everything else, error handling included."""

    guard: Guard

    def build_middleware_stack(self) -> ASGIApp:
        return self.guard.wrap(super().build_middleware_stack())


def make_app(lab: Lab, guard: Guard) -> Page:
    """The page over this home; no documentation routes, since those ask other addresses for their scripts."""
    app = Page(openapi_url=None, docs_url=None, redoc_url=None, lifespan=_lifespan, redirect_slashes=False)
    app.guard = guard
    app.state.lab, app.state.live, app.state.models = lab, Live(lab), Models(lab.home)
    app.state.control, app.state.aside = Control(lab.home), Aside()
    for router in ROUTERS:
        app.include_router(router)
    app.exception_handler(SeedbedError)(_say_ours)
    app.exception_handler(HTTPException)(_say_refusal)
    app.exception_handler(RequestValidationError)(_say_invalid)
    app.exception_handler(Exception)(_say_bug)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    app.state.live.close()
    app.state.models.close()
    app.state.aside.close()


def _say_ours(request: Request, error: SeedbedError) -> Response:
    return said(request, str(error), status_of(error))


def _say_refusal(request: Request, error: HTTPException) -> Response:
    sentence = f"there is nothing at {request.url.path}" if error.detail == "Not Found" else str(error.detail)
    response = said(request, sentence, error.status_code)
    response.headers.update(error.headers or {})
    return response


def _say_invalid(request: Request, error: RequestValidationError) -> Response:
    found = [f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg'].lower()}" for one in error.errors()[:5]]
    return said(request, "; ".join(found), 400)


def _say_bug(request: Request, error: Exception) -> Response:
    traceback.print_exception(error, file=sys.stderr)
    return said(request, "something in seedbed broke; the terminal of `seedbed serve` shows where", 500)
