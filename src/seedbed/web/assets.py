"""Files that pages are made of: our own scripts and styles by name, and the program that draws charts.

Nothing is asked from another address. A name is looked up among the files that are there, so that no path can leave
the folder. Files are checked again by their digest; the chart program changes only with its version, which is in its
address.
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
    """Vega, Vega-Lite and Vega-Embed as vl-convert carries them; kept by the browser for good."""
    return Response(
        _load_vega(), media_type="text/javascript", headers={"cache-control": "private, max-age=31536000, immutable"}
    )


@cache
def _load_vega() -> bytes:
    return vega_javascript().encode()


@router.get("/looks.js")
def serve_themes(request: Request) -> Response:
    """Both themes of charts, and where their program lies, as a module."""
    themes = {look.name: vega_config(look) for look in THEMES.values()}
    text = f"export const looks = {json.dumps(themes)};\nexport const vega = {json.dumps(VEGA_URL)};\n"
    return _etag_response(request, text.encode(), "text/javascript")


@router.get("/{name}")
def serve_static(request: Request, name: str) -> Response:
    """A file of ours."""
    found = {path.name: path for path in _STATIC_DIR.iterdir() if path.suffix in _MEDIA_TYPES}.get(name)
    if found is None:
        raise HTTPException(404, f"there is no file {name!r}")
    return _etag_response(request, found.read_bytes(), _MEDIA_TYPES[found.suffix])


def _etag_response(request: Request, content: bytes, kind: str) -> Response:
    """The content, or word that the browser's copy is still good."""
    tag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
    headers = {"etag": tag, "cache-control": "private, no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)
