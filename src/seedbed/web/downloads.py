"""Any chart of the page as SVG, PDF or PNG and any table as CSV, LaTeX or Markdown, as they are seen.

    /download/study/arithmetic/sanity/figure/1.pdf?colour=train.lr&look=dark
    /download/study/arithmetic/sanity/table/2.csv?only=model.kind%3Dgpt
    /download/compare/pairs.tex?a=…&b=…

The query is that of the view, so what is downloaded is what is on the screen; pictures and tables are those of
`seedbed plot` and `seedbed show`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Literal
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import Response

from seedbed.charts.render import render
from seedbed.charts.theme import THEMES, vega_config
from seedbed.errors import MissingData
from seedbed.report.figures import RenderedFigure
from seedbed.report.tables import Table, to_csv, to_latex, to_markdown
from seedbed.web.compare_query import CompareQuery, compute_comparison
from seedbed.web.process_pool import ProcessPool, ProcessPoolDep
from seedbed.web.store_cache import StoreCacheDep
from seedbed.web.view_params import get_figure, get_tables, parse_view_params

ImageFormat = Literal["svg", "pdf", "png"]
TableFormat = Literal["csv", "tex", "md"]
ThemeName = Literal["light", "dark"]
ComparisonPart = Literal["differences", "curves", "parallel", "means", "pairs"]
MEDIA_TYPES: Final = {
    "svg": "image/svg+xml", "pdf": "application/pdf", "png": "image/png", "csv": "text/csv; charset=utf-8",
    "tex": "text/x-tex; charset=utf-8", "md": "text/markdown; charset=utf-8",
}  # fmt: skip
TABLE_WRITERS: Final[dict[str, Callable[[Table], str]]] = {"csv": to_csv, "tex": to_latex, "md": to_markdown}
MAX_FILENAME_CHARACTERS: Final = 120

router = APIRouter(prefix="/download")


@router.get("/study/{name:path}/figure/{number}.{form}")
def download_figure(
    request: Request,
    lab: StoreCacheDep,
    aside: ProcessPoolDep,
    name: str,
    number: int,
    form: ImageFormat,
    look: ThemeName = "light",
) -> Response:
    """A figure of a study, as the query has it."""
    shown = get_figure(lab, name, parse_view_params(request.query_params), number)
    return _image_response(aside, shown, form, look, f"{name} figure {number}")


@router.get("/study/{name:path}/table/{number}.{form}")
def download_table(request: Request, lab: StoreCacheDep, name: str, number: int, form: TableFormat) -> Response:
    """A table of a study, as the query has it."""
    known = get_tables(lab, name, parse_view_params(request.query_params))
    if not 1 <= number <= len(known):
        raise MissingData(f"study {name} has tables 1 to {len(known)}, and no table {number}")
    return _table_response(known[number - 1], form, f"{name} table {number}")


@router.get("/compare/{what}.{form}")
def download_comparison(
    request: Request, lab: StoreCacheDep, aside: ProcessPoolDep, what: ComparisonPart, form: ImageFormat | TableFormat, look: ThemeName = "light"
) -> Response:  # fmt: skip
    """A chart or a table of a comparison."""
    found = compute_comparison(lab, CompareQuery.from_query(request.query_params))
    name = f"{' against '.join(found.groups)} {what}"
    if form in TABLE_WRITERS and what in ("means", "pairs"):
        named = dict(zip(("means", "pairs"), found.tables(), strict=False))
        if what not in named:
            raise MissingData(found.result.sentence)
        return _table_response(named[what], form, name)
    if form in TABLE_WRITERS or what in ("means", "pairs"):
        raise MissingData(f"{what} cannot be had as {form}; charts are svg, pdf or png, tables csv, tex or md")
    return _image_response(aside, found.figures()[what], form, look, name)


def _image_response(aside: ProcessPool, shown: RenderedFigure, form: str, look: str, name: str) -> Response:
    if shown.spec is None:
        raise MissingData(" ".join(shown.notes))
    spec: dict[str, Any] = shown.static_spec | {"config": vega_config(THEMES[look])}
    return _file_response(aside.run(render, spec, form), form, name)


def _table_response(table: Table, form: str, name: str) -> Response:
    return _file_response(TABLE_WRITERS[form](table).encode(), form, name)


def _file_response(content: bytes, form: str, name: str) -> Response:
    """The content as a file to be kept, never to be opened in the page's place."""
    return Response(
        content, media_type=MEDIA_TYPES[form], headers={"content-disposition": content_disposition(name, form)}
    )


def content_disposition(name: str, form: str) -> str:
    r"""A name that is safe as a file's, in letters that every browser takes and in its own (RFC 6266).

    >>> disposition('a/../b "c"', "csv")
    'attachment; filename="a-b-c.csv"; filename*=UTF-8\'\'a-b-c.csv'
    """
    own = re.sub(r"[^\w.+=-]+", "-", name)
    own = re.sub(r"-*\.*-+|\.{2,}", "-", own).strip("-._")[:MAX_FILENAME_CHARACTERS] or "seedbed"
    plain = re.sub(r"[^A-Za-z0-9.+=_-]+", "-", own).strip("-._") or "seedbed"
    return f"attachment; filename=\"{plain}.{form}\"; filename*=UTF-8''{quote(own)}.{form}"
