"""What all views share: the server's objects as dependencies, HTML pages, JSON, events, errors and static files.

Every value in a template is escaped, so markup in a study's name is displayed and never executed. Nothing is loaded
from another host. Names of static files are looked up in a directory listing, so no path can leave the folder; files
are revalidated by ETag, and the Vega bundle that draws charts is cached for good, with its version in the URL.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from seedbed import __version__
from seedbed.charts.render import vega_javascript
from seedbed.charts.theme import THEMES, vega_config
from seedbed.errors import Busy, MissingData, OutOfResources, SeedbedError, StoreError
from seedbed.records import to_jsonable
from seedbed.report.figures import RenderedFigure
from seedbed.web.processes import ProcessPool
from seedbed.web.store_cache import StoreCache

_TEMPLATES: Final = Environment(
    loader=PackageLoader("seedbed.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
    lstrip_blocks=True,
)  # fmt: skip
_ERROR_STATUS: Final[dict[type[SeedbedError], int]] = {
    MissingData: 404,
    Busy: 503,
    StoreError: 503,
    OutOfResources: 507,
}
NAV_LINKS: Final = (
    ("Studies", "/"), ("Compare", "/compare"), ("Inside", "/inside"), ("Playground", "/playground"),
    ("Start", "/start"),
)  # fmt: skip
_STATIC_DIR: Final = Path(__file__).parent / "static"
_MEDIA_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
VEGA_URL: Final = f"/static/vega.js?v={version('vl-convert-python')}"

router = APIRouter(prefix="/static")


def app_state(name: str) -> Any:
    """A dependency on one of the objects that `make_app` creates once a server."""

    def get_object(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(get_object)


StoreCacheDep = Annotated[StoreCache, app_state("store_cache")]
ProcessPoolDep = Annotated[ProcessPool, app_state("process_pool")]


def render_page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A template rendered as HTML; `here` marks the current page in the navigation."""
    here = "/" + request.url.path.strip("/").partition("/")[0]
    text = _TEMPLATES.get_template(template).render(here=here, nav=NAV_LINKS, version=__version__, **values)
    return HTMLResponse(text, status)


def json_response(value: Any, status: int = 200) -> Response:
    """A value as strict JSON, in which NaN and infinities are strings."""
    text = json.dumps(to_jsonable(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "surrogatepass"), status, media_type="application/json")


def format_event(name: str, value: Any) -> str:
    """A server-sent event, its value as JSON."""
    return f"event: {name}\ndata: {json.dumps(to_jsonable(value), allow_nan=False)}\n\n"


def figure_as_json(figure: RenderedFigure, number: int) -> dict[str, Any]:
    """A rendered figure for the page."""
    return {
        "number": number, "title": figure.title, "report": figure.report, "notes": figure.notes,
        "command": figure.command, "spec": figure.spec,
    }  # fmt: skip


# ---- errors ----


def http_status(error: SeedbedError) -> int:
    """404 for missing data, 503 for a busy or unusable store, 507 for lack of resources, else 400."""
    return next((status for kind, status in _ERROR_STATUS.items() if isinstance(error, kind)), 400)


def error_response(request: Request, message: str, status: int) -> Response:
    """An error message, as JSON for requests from scripts and as a page with navigation otherwise."""
    if request.url.path.startswith(("/api/", "/download/", "/static/")):
        return json_response({"error": message}, status)
    return render_page(request, "error.html", status, message=message)


# ---- static files ----


@router.get("/vega.js")
def serve_vega() -> Response:
    """Vega, Vega-Lite and Vega-Embed as bundled with vl-convert; cached by the browser for good."""
    return Response(
        _load_vega(), media_type="text/javascript", headers={"cache-control": "private, max-age=31536000, immutable"}
    )


@cache
def _load_vega() -> bytes:
    return vega_javascript().encode()


@router.get("/themes.js")
def serve_themes(request: Request) -> Response:
    """Both chart themes and the URL of the Vega bundle, as a JavaScript module."""
    themes = {theme.name: vega_config(theme) for theme in THEMES.values()}
    text = f"export const themes = {json.dumps(themes)};\nexport const vega = {json.dumps(VEGA_URL)};\n"
    return _etag_response(request, text.encode(), "text/javascript")


@router.get("/{name}")
def serve_static(request: Request, name: str) -> Response:
    """One of our own files."""
    path = {path.name: path for path in _STATIC_DIR.iterdir() if path.suffix in _MEDIA_TYPES}.get(name)
    if path is None:
        raise HTTPException(404, f"there is no file {name!r}")
    return _etag_response(request, path.read_bytes(), _MEDIA_TYPES[path.suffix])


def _etag_response(request: Request, content: bytes, media_type: str) -> Response:
    """The content with its ETag, or 304 if the browser's copy is current."""
    tag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
    headers = {"etag": tag, "cache-control": "private, no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)
