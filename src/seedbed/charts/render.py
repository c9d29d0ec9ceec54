"""Specs as pictures and as a script for pages, by vl-convert: no browser, no network, the same bytes every time."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import vl_convert

PNG_SCALE: Final = 2.0  # two dots a pixel: sharp on screens and in print
_PDF_RESOURCE_TABLE = re.compile(rb"(/(?:Font|XObject|ExtGState|ColorSpace|Pattern) <<\n)((?: +/\w+ [^\n]*\n)+)")


_SVG_ID = re.compile(r'(\bid="|url\(#|href="#)([^")]+)("|\))')


def to_svg(spec: Mapping[str, Any]) -> str:
    """The chart as SVG text; its ids are counted from 0, where the renderer counts on through a process."""
    svg = str(vl_convert.vegalite_to_svg(dict(spec), allowed_base_urls=[]))
    found = dict.fromkeys(re.findall(r'\bid="([^"]+)"', svg))
    names = {name: f"{name.rstrip('0123456789')}{number}" for number, name in enumerate(found)}
    return _rename_svg_ids(svg, names.__getitem__)


def render(spec: Mapping[str, Any], file_format: str) -> bytes:
    """The chart as a file of this form: svg, png or pdf."""
    writers: dict[str, Callable[[str], bytes]] = {"svg": str.encode, "png": to_png, "pdf": to_pdf}
    return writers[file_format](to_svg(spec))


def to_png(svg: str) -> bytes:
    return bytes(vl_convert.svg_to_png(svg, scale=PNG_SCALE))


def to_pdf(svg: str) -> bytes:
    """The picture as PDF; its resource tables come in any order, and are sorted for equal charts to be equal files."""
    return _PDF_RESOURCE_TABLE.sub(
        lambda found: found[1] + b"".join(sorted(found[2].splitlines(True))), vl_convert.svg_to_pdf(svg)
    )


def namespace_svg_ids(svg: str, prefix: str) -> str:
    """SVG that can stand beside others in one page: its ids are its own."""
    return _rename_svg_ids(svg, lambda name: f"{prefix}-{name}")


def _rename_svg_ids(svg: str, rename: Callable[[str], str]) -> str:
    """The picture with other ids, where they are given and where they are used."""
    return _SVG_ID.sub(lambda found: f"{found[1]}{rename(found[2])}{found[3]}", svg)


def vega_javascript() -> str:
    """The program that draws charts in a page (Vega, Vega-Lite, Vega-Embed), built once for a user and kept."""
    kept = _cache_folder() / f"vega-{version('vl-convert-python')}.js"
    try:
        return kept.read_text(encoding="utf-8")
    except OSError:
        text = str(vl_convert.javascript_bundle())  # type: ignore[call-arg]  # its stub misses a default
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        fresh = kept.with_name(f"{kept.name}.{os.getpid()}")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(kept)
    except OSError:  # a home that cannot be written to: built again next time
        pass
    return text


def _cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "seedbed"
