"""Static files: our own scripts and styles by name, and the Vega bundle that draws charts.

Nothing is loaded from another host. Names are looked up in a directory listing, so no path can leave the folder. Files
are revalidated by ETag; the Vega bundle is cached for good, with its version in the URL.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import Response

from seedbed.charts.render import vega_javascript
from seedbed.charts.theme import THEMES, vega_config

_STATIC_DIR: Final = Path(__file__).parent / "static"
_MEDIA_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
VEGA_URL: Final = f"/static/vega.js?v={version('vl-convert-python')}"

router = APIRouter(prefix="/static")


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
