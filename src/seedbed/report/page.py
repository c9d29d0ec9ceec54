"""A report on disk: one HTML file that needs nothing else, and beside it every figure, table and study as files.

    write_report(home, ["quickstart"], [], out=None)      HOME/reports/quickstart/index.html

The page works from a file, without a network and without scripts (pictures are in it as SVG); with scripts its charts
answer to a pointer and follow the reader's theme. Equal stores give equal bytes, but for the date.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from seedbed import __version__
from seedbed.charts.render import inline, script, to_pdf, to_png, to_svg
from seedbed.charts.theme import DARK, LIGHT, config_of
from seedbed.errors import OutOfResources, UsageError
from seedbed.report.figures import Shown
from seedbed.report.sections import Section, joint_section, study_file, study_section
from seedbed.report.tables import to_csv, to_latex, to_markdown
from seedbed.store.store import Store

MARK: Final = '<meta name="generator" content="seedbed'  # how a report of ours is told from other folders
PARTS: Final = ("figures", "tables", "studies")


@dataclass(frozen=True)
class _Numbered:
    """A figure or table with its number in the report and the name of its files."""

    number: int
    stem: str
    item: Any
    svg: str = ""


def write_report(home: Path, studies: Sequence[str], words: Sequence[str], out: Path | None = None) -> Path:
    """The page of these studies; the report that was there before stays until the new one is whole."""
    with Store.read(home) as store:
        names = list(dict.fromkeys(studies))
        sections = [study_section(store, name, words) for name in names]
        if len(names) > 1:
            sections.insert(0, joint_section(store, names, words))
    folder = out or home / "reports" / _folder_name(names)
    _refuse_foreign(folder)
    with _fresh_folder(folder) as fresh:
        _write(fresh, sections)
    return folder / "index.html"


def _folder_name(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else "+".join(name.replace("/", "-") for name in names)


def _refuse_foreign(folder: Path) -> None:
    """A folder with something else in it is never written over."""
    page = folder / "index.html"
    ours = page.is_file() and MARK in page.read_text(encoding="utf-8", errors="replace")[:2000]
    taken = [name for name in ("index.html", *PARTS) if (folder / name).exists()]
    if taken and not ours:
        raise UsageError(f"{folder} holds {', '.join(taken)} that no report wrote; name another folder with --out")


@contextmanager
def _fresh_folder(folder: Path) -> Iterator[Path]:
    """A folder to write in, whose contents are put in place when all of it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=".fresh-", dir=folder))
    except OSError as error:
        raise UsageError(f"{folder} cannot be written ({error.strerror}); name another place with --out") from None
    try:
        yield fresh
        for part in PARTS:
            _swap(fresh / part, folder / part)
        (fresh / "index.html").replace(folder / "index.html")
    except OSError as error:
        raise OutOfResources(f"{folder}: {error.strerror}; the report that was there before is kept") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _swap(new: Path, old: Path) -> None:
    """The new folder in the old one's place; the old one goes with the folder that the new one came from."""
    if old.exists():
        old.rename(new.with_name(f"{new.name}-before"))
    new.rename(old)


def _write(folder: Path, sections: Sequence[Section]) -> None:
    for part in PARTS:
        (folder / part).mkdir()
    figures = list(_numbered("figure", [figure for section in sections for figure in section.figures]))
    tables = list(_numbered("table", [table for section in sections for table in section.tables]))
    drawn = [_write_figure(folder / "figures", figure) for figure in figures]
    for table in tables:
        _write_table(folder / "tables", table)
    for section in sections:
        if section.text:
            (folder / study_file(section.name)).write_text(section.text, encoding="utf-8")
    text = _page(sections, drawn, tables)
    (folder / "index.html").write_text(text, encoding="utf-8")


def _numbered(kind: str, items: Sequence[Any]) -> Iterator[_Numbered]:
    for number, item in enumerate(items, 1):
        yield _Numbered(number, f"{kind}-{number:02d}", item)


def _write_figure(folder: Path, figure: _Numbered) -> _Numbered:
    """The pictures of one figure; one pass through Vega, the other forms are made from its SVG."""
    shown: Shown = figure.item
    if shown.spec is None:
        return figure
    spec = shown.paper | {"config": config_of(LIGHT)}
    svg = to_svg(spec)
    (folder / f"{figure.stem}.svg").write_text(svg, encoding="utf-8")
    (folder / f"{figure.stem}.pdf").write_bytes(to_pdf(svg))
    (folder / f"{figure.stem}.png").write_bytes(to_png(svg))
    (folder / f"{figure.stem}.json").write_text(json.dumps(spec, ensure_ascii=False), encoding="utf-8")
    return _Numbered(figure.number, figure.stem, shown, inline(svg, figure.stem))


def _write_table(folder: Path, table: _Numbered) -> None:
    for ending, text in (("csv", to_csv), ("md", to_markdown), ("tex", to_latex)):
        (folder / f"{table.stem}.{ending}").write_text(text(table.item).rstrip("\n") + "\n", encoding="utf-8")


# ---- the page ----


def _page(sections: Sequence[Section], figures: Sequence[_Numbered], tables: Sequence[_Numbered]) -> str:
    environment = Environment(
        loader=PackageLoader("seedbed.report"), autoescape=select_autoescape(default=True),
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    remaining_figures, remaining_tables = iter(figures), iter(tables)
    parts = [
        {
            "section": section,
            "study": study_file(section.name) if section.text else None,
            "figures": [_for_page(next(remaining_figures)) for _ in section.figures],
            "tables": [next(remaining_tables) for _ in section.tables],
        }
        for section in sections
    ]
    return environment.get_template("report.html").render(
        title=" · ".join(section.name for section in sections[-1:] if len(sections) == 1) or sections[0].name,
        parts=parts,
        date=_date(),
        version=__version__,
        looks=_script_json({look.name: config_of(look) for look in (LIGHT, DARK)}),
        bundle=Markup(script().replace("</script", "<\\/script")),  # our own file, never a user's words
    )


def _for_page(figure: _Numbered) -> Mapping[str, Any]:
    shown: Shown = figure.item
    return {
        "number": figure.number, "stem": figure.stem, "shown": shown, "svg": Markup(figure.svg),
        "spec": _script_json(shown.spec) if shown.spec else None,
    }  # fmt: skip


def _script_json(value: Any) -> Markup:
    """JSON that cannot end the script element it stands in, whatever the names in it are."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _date() -> str:
    """Now, or what SOURCE_DATE_EPOCH says, so that a report can be made again to the byte."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = datetime.fromtimestamp(int(given), UTC) if given.isdigit() else datetime.now(UTC)
    return moment.strftime("%Y-%m-%d %H:%M UTC")
