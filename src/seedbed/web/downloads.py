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

from seedbed.charts.render import picture
from seedbed.charts.theme import LOOKS, config_of
from seedbed.errors import MissingData
from seedbed.report.figures import Shown
from seedbed.report.tables import Table, to_csv, to_latex, to_markdown
from seedbed.web.aside import Aside, TheAside
from seedbed.web.chosen import chosen_in, figure, tables
from seedbed.web.comparing import Comparing, compare_asked
from seedbed.web.lab import TheLab

Picture = Literal["svg", "pdf", "png"]
Sheet = Literal["csv", "tex", "md"]
Look = Literal["light", "dark"]
Part = Literal["differences", "curves", "parallel", "means", "pairs"]
KINDS: Final = {
    "svg": "image/svg+xml", "pdf": "application/pdf", "png": "image/png", "csv": "text/csv; charset=utf-8",
    "tex": "text/x-tex; charset=utf-8", "md": "text/markdown; charset=utf-8",
}  # fmt: skip
SHEETS: Final[dict[str, Callable[[Table], str]]] = {"csv": to_csv, "tex": to_latex, "md": to_markdown}
MOST_NAME: Final = 120

router = APIRouter(prefix="/download")


@router.get("/study/{name:path}/figure/{number}.{form}")
def study_figure(
    request: Request, lab: TheLab, aside: TheAside, name: str, number: int, form: Picture, look: Look = "light"
) -> Response:
    """A figure of a study, as the query has it."""
    shown = figure(lab, name, chosen_in(request.query_params), number)
    return _picture(aside, shown, form, look, f"{name} figure {number}")


@router.get("/study/{name:path}/table/{number}.{form}")
def study_table(request: Request, lab: TheLab, name: str, number: int, form: Sheet) -> Response:
    """A table of a study, as the query has it."""
    known = tables(lab, name, chosen_in(request.query_params))
    if not 1 <= number <= len(known):
        raise MissingData(f"study {name} has tables 1 to {len(known)}, and no table {number}")
    return _sheet(known[number - 1], form, f"{name} table {number}")


@router.get("/compare/{what}.{form}")
def compared(
    request: Request, lab: TheLab, aside: TheAside, what: Part, form: Picture | Sheet, look: Look = "light"
) -> Response:  # fmt: skip
    """A chart or a table of a comparison."""
    found = compare_asked(lab, Comparing.of(request.query_params))
    name = f"{' against '.join(found.groups)} {what}"
    if form in SHEETS and what in ("means", "pairs"):
        named = dict(zip(("means", "pairs"), found.tables(), strict=False))
        if what not in named:
            raise MissingData(found.found.sentence)
        return _sheet(named[what], form, name)
    if form in SHEETS or what in ("means", "pairs"):
        raise MissingData(f"{what} cannot be had as {form}; charts are svg, pdf or png, tables csv, tex or md")
    return _picture(aside, found.figures()[what], form, look, name)


def _picture(aside: Aside, shown: Shown, form: str, look: str, name: str) -> Response:
    if shown.spec is None:
        raise MissingData(" ".join(shown.notes))
    spec: dict[str, Any] = shown.paper | {"config": config_of(LOOKS[look])}
    return _file(aside.ask(picture, spec, form), form, name)


def _sheet(table: Table, form: str, name: str) -> Response:
    return _file(SHEETS[form](table).encode(), form, name)


def _file(content: bytes, form: str, name: str) -> Response:
    """The content as a file to be kept, never to be opened in the page's place."""
    return Response(content, media_type=KINDS[form], headers={"content-disposition": disposition(name, form)})


def disposition(name: str, form: str) -> str:
    r"""A name that is safe as a file's, in letters that every browser takes and in its own (RFC 6266).

    >>> disposition('a/../b "c"', "csv")
    'attachment; filename="a-b-c.csv"; filename*=UTF-8\'\'a-b-c.csv'
    """
    own = re.sub(r"[^\w.+=-]+", "-", name)
    own = re.sub(r"-*\.*-+|\.{2,}", "-", own).strip("-._")[:MOST_NAME] or "seedbed"
    plain = re.sub(r"[^A-Za-z0-9.+=_-]+", "-", own).strip("-._") or "seedbed"
    return f"attachment; filename=\"{plain}.{form}\"; filename*=UTF-8''{quote(own)}.{form}"
