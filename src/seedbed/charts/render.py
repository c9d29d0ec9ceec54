"""Vega-Lite specs as SVG, PNG and PDF, by vl-convert: no browser, no network, and the same bytes every time."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from importlib.metadata import version
from importlib.resources import files
from typing import Any, Final

import vl_convert

from seedbed.data.catalogue import cache_folder

PNG_SCALE: Final = 2.0  # for high-resolution screens and print
_PDF_RESOURCE_TABLE = re.compile(rb"(/(?:Font|XObject|ExtGState|ColorSpace|Pattern) <<\n)((?: +/\w+ [^\n]*\n)+)")


_SVG_ID = re.compile(r'(\bid="|url\(#|href="#)([^")]+)("|\))')


def to_svg(spec: Mapping[str, Any]) -> str:
    """The chart as SVG text, its ids renumbered from 0: the renderer counts them up through a process."""
    svg = str(vl_convert.vegalite_to_svg(dict(spec), allowed_base_urls=[]))
    ids = dict.fromkeys(re.findall(r'\bid="([^"]+)"', svg))
    renumbered = {name: f"{name.rstrip('0123456789')}{number}" for number, name in enumerate(ids)}
    return _rename_svg_ids(svg, renumbered.__getitem__)


def render(spec: Mapping[str, Any], file_format: str, in_points: bool = False) -> bytes:
    """The chart as the bytes of an svg, png or pdf file; `in_points`: 72 of its units are an inch, as in a PDF."""
    writers: dict[str, Callable[[str], bytes]] = {"svg": str.encode, "png": to_png, "pdf": to_pdf}
    if in_points and file_format == "svg":
        return re.sub(r'(<svg [^>]*?width="[\d.]+)(" height="[\d.]+)"', r'\1pt\2pt"', to_svg(spec), count=1).encode()
    return writers[file_format](to_svg(spec))


def to_png(svg: str) -> bytes:
    return bytes(vl_convert.svg_to_png(svg, scale=PNG_SCALE))


def to_pdf(svg: str) -> bytes:
    """The picture as PDF; its resource tables come in random order, so they are sorted: equal charts, equal files."""
    return _PDF_RESOURCE_TABLE.sub(
        lambda match: match[1] + b"".join(sorted(match[2].splitlines(True))), vl_convert.svg_to_pdf(svg)
    )


def namespace_svg_ids(svg: str, prefix: str) -> str:
    """The SVG with prefixed ids, so that several can be inlined in one page."""
    return _rename_svg_ids(svg, lambda name: f"{prefix}-{name}")


def _rename_svg_ids(svg: str, rename: Callable[[str], str]) -> str:
    """The SVG with other ids, in definitions and references."""
    return _SVG_ID.sub(lambda match: f"{match[1]}{rename(match[2])}{match[3]}", svg)


def vega_javascript() -> str:
    """The JavaScript that draws charts in a page: Vega, Vega-Lite, Vega-Embed, and `fitWidth`."""
    return f"{_vega_bundle()}\n{files('seedbed.charts').joinpath('fit_width.js').read_text(encoding='utf-8')}"


def _vega_bundle() -> str:
    """The libraries, built once per user and cached."""
    cached = cache_folder() / f"vega-{version('vl-convert-python')}.js"
    try:
        return cached.read_text(encoding="utf-8")
    except OSError:
        text = str(vl_convert.javascript_bundle())  # type: ignore[call-arg]  # its stub misses a default
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        temporary = cached.with_name(f"{cached.name}.{os.getpid()}")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(cached)
    except OSError:  # the cache is not writable: built again next time
        pass
    return text
