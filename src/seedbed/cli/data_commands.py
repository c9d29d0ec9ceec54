"""The verbs of `seedbed data`, ls, get, show and baseline: named corpora, where they are and what they contain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seedbed.cli.common import JsonOption, console, echo, print_json
from seedbed.format import escape_controls

if TYPE_CHECKING:
    from seedbed.data.catalogue import CorpusEntry, ProgressCallback, StoredFile
    from seedbed.data.table_files import Columns

data_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, download and inspect corpora.")
ColumnOption = Annotated[str | None, typer.Option(help="column of a table: its name, or its number without a header")]
CorpusArgument = Annotated[str, typer.Argument(help="a named corpus, or a file or folder of your own")]


@data_app.command(epilog="Example: seedbed data ls --json")
def ls(as_json: JsonOption = False) -> None:
    """List the named corpora: size, licence, and whether they are on this machine."""
    from seedbed.data.catalogue import CATALOGUE

    if as_json:
        print_json([_corpus_as_json(corpus) for corpus in CATALOGUE.values()])
        return
    rows = []
    for one in CATALOGUE.values():
        size = f"{one.n_bytes / 1e6:.2f} MB" if one.n_bytes else "–"
        rows.append((one.name, size, _describe_location(one), one.description, one.licence))
    _print_table(("corpus", "size", "where", "description", "licence"), tuple(rows))


@data_app.command(epilog="Example: seedbed data get shakespeare speeches")
def get(names: Annotated[list[str], typer.Argument(help="named corpora")], as_json: JsonOption = False) -> None:
    """Download and verify named corpora; those already on this machine are only verified."""
    from seedbed.data.catalogue import ensure_local_file, get_corpus_entry

    corpora = [get_corpus_entry(name) for name in names]
    paths: dict[str, list[str]] = {}
    with _progress_bar() as progress:
        for corpus in corpora:
            paths[corpus.name] = [str(ensure_local_file(corpus, file, progress)) for file in _corpus_files(corpus)]
    if as_json:
        print_json(paths)
        return
    for name, files in paths.items():
        echo(f"{name}: {', '.join(files) or 'comes with Python'}")


@data_app.command(epilog="Example: seedbed data baseline shakespeare --orders 1,2,5")
def baseline(
    name: CorpusArgument,
    tokenizer: Annotated[str, typer.Option(help="characters, words, bytes or bpe")] = "characters",
    val_fraction: Annotated[float, typer.Option(help="fraction held out, unless the corpus has its own split")] = 0.1,
    orders: Annotated[str, typer.Option(help="n-gram orders; 1 is the unigram")] = "1,2,3,5",
    as_json: JsonOption = False,
) -> None:
    """Evaluate n-gram models on the held-out splits: the baselines that a model must beat."""
    import numpy as np

    from seedbed.data.ngram import evaluate_ngram
    from seedbed.errors import UsageError
    from seedbed.settings import Settings, check_value

    settings = {
        "task.kind": "text", "task.corpus": name, "task.tokenizer": tokenizer, "task.val_fraction": val_fraction,
    }  # fmt: skip
    problems = [
        f"{setting} = {value}: expected {expected}"
        for setting, value in settings.items()
        if (expected := check_value(setting, value))
    ]
    if problems or not all(order.isdigit() for order in orders.split(",")):
        raise UsageError("; ".join(problems) or f"--orders {orders}: expected whole numbers such as 1,2,5")
    dataset = Settings.from_flat(settings).task.text_dataset()
    ids = {split: np.concatenate(spans.span_ids()) for split, spans in dataset.splits.items()}
    train = ids.pop("train")
    rows = [
        (split, evaluate_ngram(train, held_out, dataset.tokenizer, int(order)))
        for split, held_out in ids.items()
        for order in orders.split(",")
    ]
    if as_json:
        print_json([{"part": split} | vars(result) for split, result in rows])
        return
    cells = tuple(
        (split, str(one.order), f"{one.perplexity:.2f}", f"{one.bits_per_character:.3f}", f"{one.bits_per_byte:.3f}")
        for split, one in rows
    )
    _print_table(("part", "order", "perplexity", "bits per character", "bits per byte"), cells)


@data_app.command(epilog="Example: seedbed data show reviews.csv")
def show(
    name: CorpusArgument, part: Annotated[str | None, typer.Option(help="one part of the corpus; default: all")] = None,
    text_column: ColumnOption = None, label_column: ColumnOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Show a corpus: sizes, classes, tokens, duplicates, leaks between its parts, first lines; downloads nothing."""
    from seedbed.data.catalogue import CATALOGUE
    from seedbed.report.corpus_overview import describe_named_corpus, describe_own_corpus

    if name in CATALOGUE:
        document = _corpus_as_json(CATALOGUE[name]) | describe_named_corpus(name, part)
    else:
        document = {"name": name} | describe_own_corpus(name, part, parse_columns(text_column, label_column))
    if as_json:
        print_json(document)
    else:
        _print_corpus(document)


def parse_columns(text: str | None, label: str | None) -> Columns:
    """The columns that two options name; a number is the number of a column."""
    from seedbed.data.table_files import Columns

    return Columns(*(int(name) if name and name.isdecimal() else name for name in (text, label)))


def _corpus_as_json(corpus: CorpusEntry) -> dict[str, Any]:
    return {
        "name": corpus.name, "about": corpus.description, "licence": corpus.licence, "bytes": corpus.n_bytes,
        "repository": corpus.repository, "commit": corpus.commit, "where": _describe_location(corpus),
        "files": [{"path": file.path, "origin": file.origin_path, "sha256": file.sha256, "bytes": file.n_bytes}
                  for file in _corpus_files(corpus)],
    }  # fmt: skip


def _corpus_files(corpus: CorpusEntry) -> list[StoredFile]:
    return [file for part in corpus.parts for file in part.files]


def _describe_location(corpus: CorpusEntry) -> str:
    from seedbed.data.catalogue import find_local_file

    files = _corpus_files(corpus)
    n_here = sum(find_local_file(file.path) is not None for file in files)
    if n_here == len(files):
        return "here"
    return f"{n_here} of {len(files)} files here" if n_here else "not here"


def _print_corpus(document: dict[str, Any]) -> None:
    from seedbed.report.corpus_overview import LABEL_WIDTH, format_leak, format_statistic

    for key in ("name", "about", "licence", "repository", "commit", "where"):
        if document.get(key):
            echo(f"{key:<{LABEL_WIDTH + 2}} {document[key]}")
    for part, values in document["parts"].items():
        echo(f"\n{part}")
        for key, value in values.items():
            for line in format_statistic(key, value):
                echo(f"  {escape_controls(line)}")
    if document["leaks"]:
        echo("\nleaks")
    for leak in document["leaks"]:
        echo(f"  {format_leak(leak)}")


def _print_table(columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> None:
    from seedbed.report.tables import Table, to_rich

    console(width=160).print(to_rich(Table("", columns, rows)))


@contextmanager
def _progress_bar() -> Iterator[ProgressCallback]:
    """A progress bar on stderr with one line per downloaded file."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what)
            bar.update(tasks[what], completed=done, total=total or None)

        yield progress
