"""Downloads of any chart as SVG, PDF or PNG and any table as CSV, LaTeX or Markdown, as shown on the page.

    /download/study/arithmetic/sanity/figure/1.pdf?colour=train.lr&theme=dark
    /download/study/arithmetic/sanity/table/2.csv?only=model.kind%3Dgpt
    /download/compare/pairs.tex?a=…&b=…

The query is that of the page, so a download is what is on the screen; charts and tables are those of `seedbed plot`
and `seedbed show`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query
from fastapi.responses import Response

from seedbed.charts.render import render
from seedbed.charts.theme import THEMES, vega_config
from seedbed.errors import MissingData
from seedbed.report.figures import RenderedFigure
from seedbed.report.tables import Table, to_csv, to_latex, to_markdown
from seedbed.web.compare_page import CompareQueryDep, compute_comparison
from seedbed.web.processes import ProcessPool
from seedbed.web.responses import ProcessPoolDep, StoreCacheDep
from seedbed.web.run_page import run_figure
from seedbed.web.study_page import StudyViewDep

ImageFormat = Literal["svg", "pdf", "png"]
TableFormat = Literal["csv", "tex", "md"]
ThemeName = Literal["light", "dark"]
HiddenQuery = Annotated[list[str], Query(default_factory=list)]
ComparisonPart = Literal["differences", "curves", "parallel", "means", "pairs"]
MEDIA_TYPES: Final = {
    "svg": "image/svg+xml", "pdf": "application/pdf", "png": "image/png", "csv": "text/csv; charset=utf-8",
    "tex": "text/x-tex; charset=utf-8", "md": "text/markdown; charset=utf-8",
}  # fmt: skip
TABLE_WRITERS: Final[dict[str, Callable[[Table], str]]] = {"csv": to_csv, "tex": to_latex, "md": to_markdown}
MAX_FILENAME_CHARACTERS: Final = 120

router = APIRouter(prefix="/download")


@router.get("/study/{name:path}/figure/{number}.{file_format}")
def download_figure(
    view: StudyViewDep, pool: ProcessPoolDep, number: int, file_format: ImageFormat, hide: HiddenQuery,
    theme: ThemeName = "light", smooth: Annotated[float, Query(ge=0, lt=1)] = 0.0,
) -> Response:  # fmt: skip
    """A figure of a study with the view parameters of the query, without hidden series, and smoothed."""
    figure = view.figure(number)
    if figure.spec is not None:
        figure = replace(figure, spec=adjust_lines(figure.spec, hide, smooth))
    return _image_response(pool, figure, file_format, theme, f"{view.study} figure {number}")


@router.get("/run/{run}/figure/{number}.{file_format}")
def download_run_figure(
    cache: StoreCacheDep, pool: ProcessPoolDep, run: str, number: int, file_format: ImageFormat, hide: HiddenQuery,
    theme: ThemeName = "light", smooth: Annotated[float, Query(ge=0, lt=1)] = 0.0,
) -> Response:  # fmt: skip
    """The curves of a run, without hidden series, and smoothed."""
    figure = run_figure(cache, run)
    if number != 1:
        raise MissingData(f"run {run} has one figure, and no figure {number}")
    if figure.spec is not None:
        figure = replace(figure, spec=adjust_lines(figure.spec, hide, smooth))
    return _image_response(pool, figure, file_format, theme, f"run {run}")


@router.get("/study/{name:path}/table/{number}.{file_format}")
def download_table(view: StudyViewDep, number: int, file_format: TableFormat) -> Response:
    """A table of a study with the view parameters of the query."""
    tables = view.tables()
    if not 1 <= number <= len(tables):
        raise MissingData(f"study {view.study} has tables 1 to {len(tables)}, but no table {number}")
    return _table_response(tables[number - 1], file_format, f"{view.study} table {number}")


@router.get("/compare/{part}.{file_format}")
def download_comparison(
    cache: StoreCacheDep, pool: ProcessPoolDep, query: CompareQueryDep, part: ComparisonPart,
    file_format: ImageFormat | TableFormat, theme: ThemeName = "light",
) -> Response:  # fmt: skip
    """A chart or a table of a comparison."""
    comparison = compute_comparison(cache, query)
    name = f"{' against '.join(comparison.groups)} {part}"
    if (file_format in TABLE_WRITERS) != (part in ("means", "pairs")):
        raise MissingData(
            f"{part} is not available as {file_format}; charts are svg, pdf or png, tables csv, tex or md"
        )
    if file_format not in TABLE_WRITERS:
        return _image_response(pool, comparison.figures()[part], file_format, theme, name)
    tables = dict(zip(("means", "pairs"), comparison.tables(), strict=False))
    if part not in tables:
        raise MissingData(comparison.result.sentence)
    return _table_response(tables[part], file_format, name)


def adjust_lines(spec: dict[str, Any], hidden: Sequence[str], smooth: float) -> dict[str, Any]:
    """The spec of a line chart without the series of these labels, and smoothed, both as `figure.js` does it."""
    datasets = spec.get("datasets", {})
    if not (hidden or smooth) or not {"lines", "rows"} <= datasets.keys():
        return spec
    lines, rows = (list(csv.DictReader(io.StringIO(datasets[name]))) for name in ("lines", "rows"))
    has_dashes = len({line["dash"] for line in lines}) > 1
    labels = {
        line["line"]: " · ".join(filter(None, (line["colour"], line["dash"] if has_dashes else ""))) or "all"
        for line in lines
    }
    kept = [row for row in rows if labels.get(row["line"]) not in hidden]
    for _, members in groupby(kept, key=itemgetter("line")) if smooth else ():
        _smooth(list(members), smooth)
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0].keys() if rows else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(kept)
    return spec | {"datasets": datasets | {"rows": text.getvalue()}}


def _smooth(rows: Sequence[dict[str, str]], weight: float) -> None:
    """Replaces the values of a line by their exponential moving average, corrected for its start (Adam's bias)."""
    for column in ("y", "low", "high"):
        mean, n = 0.0, 0
        for row in rows:
            if row[column]:
                mean, n = weight * mean + (1 - weight) * float(row[column]), n + 1
                row[column] = f"{mean / (1 - weight**n):.6g}"


def _image_response(pool: ProcessPool, figure: RenderedFigure, file_format: str, theme: str, name: str) -> Response:
    if figure.spec is None:
        raise MissingData(" ".join(figure.notes))
    spec: dict[str, Any] = figure.static_spec | {"config": vega_config(THEMES[theme])}
    return _file_response(pool.run(render, spec, file_format), file_format, name)


def _table_response(table: Table, file_format: str, name: str) -> Response:
    return _file_response(TABLE_WRITERS[file_format](table).encode(), file_format, name)


def _file_response(content: bytes, file_format: str, name: str) -> Response:
    """The content as an attachment, which the browser saves instead of opening it in place of the page."""
    headers = {"content-disposition": content_disposition(name, file_format)}
    return Response(content, media_type=MEDIA_TYPES[file_format], headers=headers)


def content_disposition(name: str, file_format: str) -> str:
    r"""The header value with a safe file name, in ASCII and in UTF-8 (RFC 6266).

    >>> content_disposition('a/../b "c"', "csv")
    'attachment; filename="a-b-c.csv"; filename*=UTF-8\'\'a-b-c.csv'
    """
    safe_name = re.sub(r"[^\w.+=-]+", "-", name)
    safe_name = re.sub(r"-*\.*-+|\.{2,}", "-", safe_name).strip("-._")[:MAX_FILENAME_CHARACTERS] or "seedbed"
    ascii_name = re.sub(r"[^A-Za-z0-9.+=_-]+", "-", safe_name).strip("-._") or "seedbed"
    return f"attachment; filename=\"{ascii_name}.{file_format}\"; filename*=UTF-8''{quote(safe_name)}.{file_format}"
