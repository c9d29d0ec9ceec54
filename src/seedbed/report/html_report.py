"""A report on disk: one self-contained HTML file, and beside it every figure, table and study as files.

    write_report(home, ["quickstart"], [], out=None)      # HOME/reports/quickstart/index.html

The page needs no server, network or JavaScript (figures are inlined as SVG); with JavaScript its charts are interactive
and follow the reader's theme. Equal stores give equal bytes, except for the date.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
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
from seedbed.charts.render import namespace_svg_ids, to_pdf, to_png, to_svg, vega_javascript
from seedbed.charts.theme import DARK_THEME, LIGHT_THEME, vega_config
from seedbed.charts.vega_lite import fit_width
from seedbed.errors import MissingData, OutOfResources, UsageError
from seedbed.format import capitalise
from seedbed.report.figures import RenderedFigure
from seedbed.report.sections import ReportSection, build_joint_section, build_study_section, study_file_name
from seedbed.report.tables import split_to_width, to_csv, to_latex, to_markdown
from seedbed.stats.answers import all_definitions, format_question
from seedbed.store import open_store

GENERATOR_TAG: Final = '<meta name="generator" content="seedbed'  # marks a folder as one of our reports
PAPER_CHARACTERS: Final = 110  # of a table's row on A4; wider tables are printed in parts
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
STILL_PIXELS: Final = 760  # of a figure of many columns in the page, so that its text is readable on A4
PDF_TIMEOUT_SECONDS: Final = 180
SUBFOLDERS: Final = ("figures", "tables", "studies")


@dataclass(frozen=True)
class _NumberedItem:
    """A figure or table with its number in the report and its file name without suffix."""

    number: int
    file_name: str
    item: Any
    svg: str = ""


def write_report(home: Path, studies: Sequence[str], only: Sequence[str], out: Path | None = None) -> Path:
    """Writes the report and returns the path of its page; an older report is replaced only by a complete one."""
    with open_store(home, read_only=True) as store:
        names = list(dict.fromkeys(studies))
        sections = [build_study_section(store, name, only) for name in names]
        if len(names) > 1:
            sections.insert(0, build_joint_section(store, names, only))
    folder = out or home / "reports" / _folder_name(names)
    _check_overwritable(folder)
    with _staging_folder(folder) as staging:
        _write_files(staging, sections)
    return folder / "index.html"


def find_browser() -> str:
    """The browser that prints: $SEEDBED_BROWSER, or a Chromium on the PATH; MissingData if there is none."""
    candidates = (os.environ.get("SEEDBED_BROWSER", ""), *BROWSERS)
    if found := next(filter(None, map(shutil.which, filter(None, candidates))), None):
        return found
    raise MissingData(
        "a PDF is printed by Chromium, and none was found; install it (Debian: apt install chromium), set "
        "SEEDBED_BROWSER to the path of a Chromium or Chrome, or print index.html from any browser"
    )


def write_pdf(page: Path, browser: str) -> Path:
    """Prints a report's page beside it, with its appendix unfolded, and returns the path of the PDF."""
    text = re.sub(
        r"<script.*?</script>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL
    )  # paper has still figures
    text = text.replace('<details class="appendix">', '<details class="appendix" open>')
    pdf = page.with_suffix(".pdf")
    with tempfile.TemporaryDirectory(prefix="seedbed-") as folder:
        source = Path(folder, "report.html")
        source.write_text(text, encoding="utf-8")
        options = ["--headless", "--disable-gpu", "--no-pdf-header-footer"]
        options += ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []  # root has no sandbox
        options += [f"--user-data-dir={folder}/profile", f"--print-to-pdf={folder}/report.pdf", source.as_uri()]
        try:
            subprocess.run([browser, *options], capture_output=True, timeout=PDF_TIMEOUT_SECONDS, check=True)
            shutil.move(Path(folder, "report.pdf"), pdf)
        except (OSError, subprocess.SubprocessError) as error:
            raise OutOfResources(
                f"{browser} could not print {page}: {error}; print it from a browser instead"
            ) from None
    return pdf


def _folder_name(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else "+".join(name.replace("/", "-") for name in names)


def _check_overwritable(folder: Path) -> None:
    """Raises UsageError rather than overwrite what is not a report."""
    page = folder / "index.html"
    is_report = page.is_file() and GENERATOR_TAG in page.read_text(encoding="utf-8", errors="replace")[:2000]
    existing = [name for name in ("index.html", *SUBFOLDERS) if (folder / name).exists()]
    if existing and not is_report:
        raise UsageError(f"{folder} holds {', '.join(existing)} that no report wrote; name another folder with --out")


@contextmanager
def _staging_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder whose contents replace the report once all are written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".staging-", dir=folder))
    except OSError as error:
        raise UsageError(f"{folder} cannot be written ({error.strerror}); name another folder with --out") from None
    try:
        yield staging
        for name in SUBFOLDERS:
            _replace_folder(staging / name, folder / name)
        (staging / "index.html").replace(folder / "index.html")
    except OSError as error:
        raise OutOfResources(f"{folder}: {error.strerror}; the previous report is kept") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _replace_folder(new: Path, old: Path) -> None:
    """Moves the new folder into the old one's place; the old one moves to the staging folder and is deleted with it."""
    if old.exists():
        old.rename(new.with_name(f"{new.name}-before"))
    new.rename(old)


def _write_files(folder: Path, sections: Sequence[ReportSection]) -> None:
    for name in SUBFOLDERS:
        (folder / name).mkdir()
    figures = list(_number_items("figure", [figure for section in sections for figure in section.figures]))
    tables = list(_number_items("table", [table for section in sections for table in section.tables]))
    rendered = [_write_figure(folder / "figures", figure) for figure in figures]
    for table in tables:
        _write_table(folder / "tables", table)
    for section in sections:
        if section.study_text:
            (folder / study_file_name(section.name)).write_text(section.study_text, encoding="utf-8")
    text = _render_page(sections, rendered, tables)
    (folder / "index.html").write_text(text, encoding="utf-8")


def _number_items(kind: str, items: Sequence[Any]) -> Iterator[_NumberedItem]:
    for number, item in enumerate(items, 1):
        yield _NumberedItem(number, f"{kind}-{number:02d}", item)


def _write_figure(folder: Path, figure: _NumberedItem) -> _NumberedItem:
    """Writes one figure in all formats; Vega renders it once, PNG and PDF are made from its SVG."""
    rendered: RenderedFigure = figure.item
    if rendered.spec is None:
        return figure
    spec = rendered.static_spec | {"config": vega_config(LIGHT_THEME)}
    svg = to_svg(spec)
    (folder / f"{figure.file_name}.svg").write_text(svg, encoding="utf-8")
    (folder / f"{figure.file_name}.pdf").write_bytes(to_pdf(svg))
    (folder / f"{figure.file_name}.png").write_bytes(to_png(svg))
    (folder / f"{figure.file_name}.json").write_text(json.dumps(spec, ensure_ascii=False), encoding="utf-8")
    is_wide = spec.get("usermeta", {}).get("fit", {}).get("columns", 1) > 2  # its text would be too small on A4
    still = to_svg(fit_width(spec, STILL_PIXELS)) if is_wide else svg
    return _NumberedItem(figure.number, figure.file_name, rendered, namespace_svg_ids(still, figure.file_name))


def _write_table(folder: Path, table: _NumberedItem) -> None:
    for suffix, format_table in (("csv", to_csv), ("md", to_markdown), ("tex", to_latex)):
        (folder / f"{table.file_name}.{suffix}").write_text(
            format_table(table.item).rstrip("\n") + "\n", encoding="utf-8"
        )


# ---- the page ----


def _render_page(
    sections: Sequence[ReportSection], figures: Sequence[_NumberedItem], tables: Sequence[_NumberedItem]
) -> str:
    environment = Environment(
        loader=PackageLoader("seedbed.report"), autoescape=select_autoescape(default=True),
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["question"] = format_question
    environment.filters["capitalise"] = capitalise
    environment.filters["print_parts"] = lambda table: list(split_to_width(table, PAPER_CHARACTERS))
    remaining_figures, remaining_tables = iter(figures), iter(tables)
    parts = [
        {
            "section": section,
            "definitions": all_definitions(section.answers),
            "study": study_file_name(section.name) if section.study_text else None,
            "figures": [_figure_context(next(remaining_figures)) for _ in section.figures],
            "tables": [next(remaining_tables) for _ in section.tables],
        }
        for section in sections
    ]
    return environment.get_template("report.html").render(
        title=" · ".join(section.name for section in sections[-1:] if len(sections) == 1) or sections[0].name,
        parts=parts,
        date=_report_date(),
        version=__version__,
        themes=_script_json({theme.name: vega_config(theme) for theme in (LIGHT_THEME, DARK_THEME)}),
        bundle=Markup(vega_javascript().replace("</script", "<\\/script")),  # our own file, never user input
    )


def _figure_context(figure: _NumberedItem) -> Mapping[str, Any]:
    rendered: RenderedFigure = figure.item
    return {
        "number": figure.number, "file_name": figure.file_name, "item": rendered, "svg": Markup(figure.svg),
        "spec": _script_json(rendered.spec) if rendered.spec else None,
    }  # fmt: skip


def _script_json(value: Any) -> Markup:
    """JSON escaped so that no string in it can close the surrounding script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _report_date() -> str:
    """The current time, or SOURCE_DATE_EPOCH, which makes reports reproducible to the byte."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdigit() else datetime.now(UTC)
    return moment.strftime("%Y-%m-%d %H:%M UTC")
