"""HTML pages, JSON and error responses, shared by all views.

Every value in a template is escaped, so markup in a study's name is displayed and never executed.
"""

from __future__ import annotations

import json
from typing import Any, Final

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from seedbed import __version__
from seedbed.errors import Busy, MissingData, OutOfResources, SeedbedError, StoreError
from seedbed.records import to_jsonable

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


def render_page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A template rendered as HTML; `here` marks the current page in the navigation."""
    here = "/" + request.url.path.strip("/").partition("/")[0]
    text = _TEMPLATES.get_template(template).render(here=here, nav=NAV_LINKS, version=__version__, **values)
    return HTMLResponse(text, status)


def json_response(value: Any, status: int = 200) -> Response:
    """A value as strict JSON, in which NaN and infinities are strings."""
    text = json.dumps(to_jsonable(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "surrogatepass"), status, media_type="application/json")


def http_status(error: SeedbedError) -> int:
    """404 for missing data, 503 for a busy or unusable store, 507 for lack of resources, else 400."""
    return next((status for kind, status in _ERROR_STATUS.items() if isinstance(error, kind)), 400)


def error_response(request: Request, message: str, status: int) -> Response:
    """An error message, as JSON for requests from scripts and as a page with navigation otherwise."""
    if request.url.path.startswith(("/api/", "/download/", "/static/")):
        return json_response({"error": message}, status)
    return render_page(request, "error.html", status, message=message)
