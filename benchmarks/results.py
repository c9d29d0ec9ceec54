"""The pages of docs/results: the numbers of a report beside ours, computed from the archives that lie there.

    python benchmarks/results.py                  writes every page and its figures anew
    python benchmarks/results.py speeches         one of them
    python benchmarks/results.py --check          exit code 1 if a page is not what its archive gives
    python benchmarks/results.py arithmetic --train HOME [--studies arithmetic/sanity …]
                                                  trains what a page shows, or a part of it, analyses and archives it

Training goes on where it was stopped, and an archive is written after each call: NAME.zip.xz, or NAME-STUDY.zip.xz for
one study alone, so that a report can be trained in parts and on several machines.

`NAME.toml` says what the report states, and where ours is found: tables (`result_tables`) and claims
(`result_claims`), figures and samples. `NAME.zip.xz` has the runs, as `seedbed export` wrote them, with their analyses
and without their weights. What is not in the archive is listed as not trained yet, with its command.
"""

from __future__ import annotations

import argparse
import html
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from result_claims import ClaimTable
from result_tables import StoredStudy, Table, studies_of

import seedbed as sb
from seedbed.api.archives import export_archive
from seedbed.format import join_words
from seedbed.report.cost_tables import cost_as_json
from seedbed.report.figures import load_figure, write_figure
from seedbed.report.memorization_curves import marked_samples
from seedbed.store import open_store, store_exists

FOLDER = Path(__file__).parents[1] / "docs" / "results"
MARKS = {"copied": "u", "new": "b", "": ""}


def make_page(folder: Path, name: str, figures: Path | None = None) -> str:
    """The text of docs/results/NAME.md; its figures are written if there is a folder for them."""
    page = tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as home:
        import_page_archive(folder, name, home)
        studies = {study: StoredStudy(home, study) for study in trained_studies(home)}
        tables = [Table(studies, table) for table in page.get("tables", []) if {*studies_of(table)} & {*studies}]
        claims = ClaimTable(studies, [claim for claim in page.get("claims", []) if claim["study"] in studies])
        made = describe_training(home, page, [*studies]) if studies else ""
        shown = [one for one in page.get("figures", []) if one["study"] in studies]
        for figure in shown if figures else ():
            draw_figure(home, name, figure, figures)
        samples = [text for one in page.get("samples", []) if one["study"] in studies for text in quote(home, one)]
    counts = Counter(verdict for table in tables for verdict in table.verdicts)
    pictures = [f"![{one['title']}](figures/{figure_file(name, one)})\n\n{one['title']}." for one in shown]
    parts = [
        f"# {page['title']}",
        page["summary"].strip(),
        describe_verdicts(counts, Counter(claims.verdicts)),
        *([page["differences"].strip()] if "differences" in page else []),
        *([f"## How it was made\n\n{made}"] if studies else []),
        *map(str, tables),
        *([str(claims)] if claims.rows else []),
        *(["## Figures", *pictures] if pictures else []),
        *(["## Samples", page["samples_note"].strip(), *samples] if samples else []),
        *describe_missing(page, studies),
        *([page["notes"].strip()] if "notes" in page else []),
    ]
    return "\n\n".join(parts) + "\n"


def describe_verdicts(numbers: Counter[str], claims: Counter[str]) -> str:
    """How many numbers and claims have which verdict, the most frequent first."""
    texts = [
        f"**{counts.total()} {what}**: {', '.join(f'{n} {verdict}' for verdict, n in counts.most_common())}."
        for what, counts in (("numbers", numbers), ("tests of claims", claims))
        if counts
    ]
    return " ".join(texts) or "**Not trained yet.**"


def import_page_archive(folder: Path, name: str, home: str) -> None:
    """Import the archives of a page: NAME.zip.xz, and NAME-WHAT.zip.xz where studies were trained apart."""
    for archive in sorted([*folder.glob(f"{name}.zip*"), *folder.glob(f"{name}-*.zip*")]):
        sb.import_archive(archive, home=home)


def trained_studies(home: str) -> list[str]:
    """The studies that the archives have; none if there is no archive."""
    if not store_exists(home):
        return []
    with open_store(home, read_only=True) as store:
        return [study.name for study in store.studies()]


def named_studies(page: Mapping[str, Any]) -> list[str]:
    """The studies of a page's tables, claims, figures and samples, in this order."""
    named = [study for table in page.get("tables", []) for study in studies_of(table)]
    named += [one["study"] for kind in ("claims", "figures", "samples") for one in page.get(kind, [])]
    return list(dict.fromkeys(named))


def describe_missing(page: Mapping[str, Any], studies: Mapping[str, StoredStudy]) -> Iterator[str]:
    """The studies that the page names and the archive lacks, with their commands and what else is not trained."""
    missing = [f"`seedbed run {study}`" for study in named_studies(page) if study not in studies]
    lines = [f"- {join_words(missing)}"] if missing else []
    lines += [f"- {one['what']}: `{one['command']}`" for one in page.get("missing", [])]
    if lines:
        yield "## Not trained yet\n\n" + "\n".join(lines)


def describe_training(home: str, page: Mapping[str, Any], studies: Sequence[str]) -> str:
    """What was trained, on what, and the time that the store has for it; a run of two studies counts in both."""
    rows = [
        "| command | runs | hardware | precision | updates | evaluations |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    with open_store(home, read_only=True) as store:
        for name in studies:
            runs = StoredStudy(home, name).runs
            packs = cost_as_json(store, name, runs)["packs"]
            placements = {(pack["placement"]["device"], pack["placement"]["mode"]) for pack in packs}
            modes = " and ".join(sorted(f"{device}, {mode}" for device, mode in placements))
            precision = " and ".join(sorted({run.run.settings.train.precision for run in runs}))
            seconds = [sum(pack["seconds"].get(kind, 0) for pack in packs) for kind in ("compute", "evaluate")]
            times = " | ".join(f"{value / 60:.1f} min" for value in seconds)
            command = " ".join(["seedbed run", name, *page.get("overrides", {}).get(name, [])])
            hardware = page.get("hardware_of", {}).get(name, page["hardware"])
            rows.append(f"| `{command}` | {len(runs)} | {hardware} ({modes}) | {precision} | {times} |")
    return "\n".join(rows)


def figure_file(page: str, figure: Mapping[str, Any]) -> str:
    return f"{page}-{figure['file']}.svg"


def draw_figure(home: str, page: str, figure: Mapping[str, Any], folder: Path) -> None:
    """A figure of the page: one of the study's by number, or one with options of its own."""
    options = {key: value for key, value in figure.items() if key not in ("study", "file", "title", "number", "only")}
    spec, runs = load_figure(Path(home), figure["study"], figure.get("only", []), options, figure.get("number"))
    folder.mkdir(exist_ok=True)
    write_figure(spec, runs, folder / figure_file(page, figure))


def quote(home: str, sample: Mapping[str, Any]) -> Iterator[str]:
    """The last samples of a study's first seed, copied text underlined and new words bold."""
    with open_store(home, read_only=True) as store:
        marked, notes = marked_samples(store, StoredStudy(home, sample["study"]).select(sample.get("only", [])))
    direction = ' dir="rtl"' if sample.get("right_to_left") else ""
    for one in marked:
        pieces = (_tag(html.escape(text), MARKS[mark]) for text, mark in one.pieces)
        text = html.escape(one.prompt) + "".join(pieces)
        lines = "<br>\n".join(line for line in text.splitlines() if line.strip())
        yield f"**{one.heading}**\n\n<blockquote{direction}>\n{lines}\n</blockquote>"
    yield from () if marked else notes


def _tag(text: str, tag: str) -> str:
    """The text between tags, which end and begin again at the end of a line."""
    return "\n".join(f"<{tag}>{line}</{tag}>" if line.strip() else line for line in text.split("\n")) if tag else text


def train_page(name: str, home: Path, studies: Sequence[str], folder: Path = FOLDER) -> Path:
    """Train and analyse studies of a page (all by default), and write them to an archive of that page."""
    page = tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
    named = named_studies(page)
    if unknown := [study for study in studies if study not in named]:
        raise SystemExit(f"{join_words(unknown)}: not on the page {name}, which has {join_words(named)}")
    chosen = list(studies) or named
    overrides = page.get("overrides", {})
    together = [study for study in chosen if study not in overrides]  # packs of several studies train side by side
    for words in [together, *([study, *overrides[study]] for study in chosen if study in overrides)]:
        if words:
            subprocess.run([sys.executable, "-m", "seedbed", "run", *words, "--home", home, "--quiet"], check=True)
    for study in chosen:
        subprocess.run([sys.executable, "-m", "seedbed", "analyze", study, "--home", home], check=True)
    part = f"-{chosen[0].rpartition('/')[2]}" if len(chosen) == 1 < len(named) else ""
    archive = folder / f"{name}{part}.zip.xz"
    export_archive(chosen, archive, home=home)
    return archive


def main(names: Sequence[str], check: bool) -> int:
    stale = 0
    for name in names or sorted(path.stem for path in FOLDER.glob("*.toml")):
        text, path = make_page(FOLDER, name, None if check else FOLDER / "figures"), FOLDER / f"{name}.md"
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale += 1
            print(f"{path} is not what its archive gives; `python benchmarks/results.py {name}` writes it")
    return int(stale > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--train", type=Path, metavar="HOME", help="train the page's studies in this home first")
    parser.add_argument("--studies", nargs="+", default=[], metavar="STUDY", help="with --train: only these")
    options = parser.parse_args()
    if options.train is not None:
        if len(options.names) != 1:
            parser.error("--train expects the name of one page")
        print(train_page(options.names[0], options.train, options.studies))
    sys.exit(main(options.names, options.check))
