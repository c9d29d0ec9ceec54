"""`seedbed data ls|get|show|baseline`: the corpora by name, where they are and what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from seedbed.cli.common import Json, print_json, verb

if TYPE_CHECKING:
    from seedbed.data.catalogue import Named, Stored
    from seedbed.data.corpora import Progress

data_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Corpora: list, fetch and look at them.")
Name = Annotated[str, typer.Argument(help="a named corpus, or a file or folder of your own")]


@data_app.command(epilog="Example: seedbed data ls --json")
@verb
def ls(as_json: Json = False) -> None:
    """List the named corpora: size, licence, and whether they are here."""
    from seedbed.data.catalogue import CATALOGUE

    if as_json:
        print_json([_described(named) for named in CATALOGUE.values()])
        return
    rows = tuple((one.name, _size(one.bytes), _where(one), one.about, one.licence) for one in CATALOGUE.values())
    _print_table(("corpus", "size", "where", "what", "licence"), rows)


@data_app.command(epilog="Example: seedbed data get shakespeare speeches")
@verb
def get(names: Annotated[list[str], typer.Argument(help="named corpora")], as_json: Json = False) -> None:
    """Fetch named corpora into the cache, verified; what is here already is only verified."""
    from seedbed.data.corpora import find_named, place

    wanted = [find_named(name) for name in names]
    places: dict[str, list[str]] = {}
    with _bar() as progress:
        for named in wanted:
            places[named.name] = [str(place(named, file, progress)) for file in _files(named)]
    if as_json:
        print_json(places)
        return
    for name, paths in places.items():
        typer.echo(f"{name}: {', '.join(paths) or 'comes with Python'}")


@data_app.command(epilog="Example: seedbed data baseline shakespeare --orders 1,2,5")
@verb
def baseline(
    name: Name,
    tokens: Annotated[str, typer.Option(help="characters, words, bytes or bpe")] = "characters",
    val_fraction: Annotated[float, typer.Option(help="share held out, unless the corpus has its own")] = 0.1,
    orders: Annotated[str, typer.Option(help="orders of the n-grams; 1 is the unigram")] = "1,2,3,5",
    as_json: Json = False,
) -> None:
    """Tell how well n-grams do on the held-out parts: what a model must beat to have learned anything."""
    import numpy as np

    from seedbed.data.baselines import baseline as told
    from seedbed.data.prepared import prepare_text
    from seedbed.errors import UsageError
    from seedbed.settings import Settings, Text, check_value

    dials = {"task.kind": "text", "task.corpus": name, "task.tokens": tokens, "task.val_fraction": val_fraction}
    wrong = [
        f"{dial} = {value}: expected {said}" for dial, value in dials.items() if (said := check_value(dial, value))
    ]
    if wrong or not all(order.isdigit() for order in orders.split(",")):
        raise UsageError("; ".join(wrong) or f"--orders {orders}: expected whole numbers such as 1,2,5")
    prepared = prepare_text(cast(Text, Settings.of(dials).task))
    ids = {part: np.concatenate(held.pieces()) for part, held in prepared.parts.items()}
    train = ids.pop("train")
    rows = [
        (part, told(train, held, prepared.tokens, int(order)))
        for part, held in ids.items()
        for order in orders.split(",")
    ]
    if as_json:
        print_json([{"part": part} | vars(one) for part, one in rows])
        return
    cells = tuple(
        (part, str(one.order), f"{one.perplexity:.2f}", f"{one.bits_per_character:.3f}", f"{one.bits_per_byte:.3f}")
        for part, one in rows
    )
    _print_table(("part", "order", "perplexity", "bits per character", "bits per byte"), cells)


@data_app.command(epilog="Example: seedbed data show python-docs")
@verb
def show(
    name: Name, part: Annotated[str | None, typer.Option(help="one part; default: all of them")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Show a corpus: licence, origin, sizes, first lines and characters; fetches nothing."""
    from seedbed.data.catalogue import CATALOGUE
    from seedbed.data.corpora import find_part

    named = CATALOGUE.get(name)
    parts = [part or "train"] if named is None else [one.name for one in named.parts if part in (None, one.name)]
    if named is not None and part is not None:
        find_part(name, part)  # names the parts when there is none of this name
    document = (_described(named) if named else {"name": name}) | {"parts": {one: _seen(name, one) for one in parts}}
    if as_json:
        print_json(document)
    else:
        _print_shown(document)


def _described(named: Named) -> dict[str, Any]:
    return {
        "name": named.name, "about": named.about, "licence": named.licence, "bytes": named.bytes,
        "repository": named.repository, "commit": named.commit, "where": _where(named),
        "files": [{"path": file.path, "origin": file.origin, "sha256": file.sha256, "bytes": file.bytes}
                  for file in _files(named)],
    }  # fmt: skip


def _files(named: Named) -> list[Stored]:
    return [file for part in named.parts for file in part.files]


def _where(named: Named) -> str:
    from seedbed.data.corpora import at_hand

    files = _files(named)
    n_here = sum(at_hand(file) is not None for file in files)
    if n_here == len(files):
        return "here"
    return f"{n_here} of {len(files)} files here" if n_here else "not here"


def _seen(name: str, part: str) -> dict[str, Any]:
    """What one part holds, as plain values; only a note when it is not here."""
    from dataclasses import asdict

    from seedbed.data.catalogue import CATALOGUE
    from seedbed.data.corpora import at_hand, find_part, open_corpus, open_gpt1, open_ids
    from seedbed.data.survey import survey

    found = find_part(name, part) if name in CATALOGUE else None
    if found and not all(at_hand(file) for file in found.files):
        return {"notes": [f"not here; fetch it with: seedbed data get {name}"]}
    if found and found.kind == "ids":
        encoded = open_ids(name, part)
        return {"tokens": len(encoded.ids), "lines": len(encoded.lengths), "distinct": len(set(encoded.ids.tolist()))}
    if found and found.kind == "vocabulary":
        return {"tokens": open_gpt1().size - 1}
    return asdict(survey(open_corpus(name, part)))


def _print_shown(document: dict[str, Any]) -> None:
    parts = document["parts"]
    for key in ("name", "about", "licence", "repository", "commit", "where"):
        if document.get(key):
            typer.echo(f"{key:<11} {document[key]}")
    for part, seen in parts.items():
        typer.echo(f"\n{part}")
        for key, value in seen.items():
            for line in _lines_of(key, value):
                typer.echo(f"  {_printable(line)}")


def _lines_of(key: str, value: Any) -> list[str]:
    if key == "commonest":
        return [f"{'commonest':<11} " + "  ".join(f"{sign!r} {n:,}" for sign, n in value)]
    if isinstance(value, list | tuple):
        return [f"{key.replace('_', ' '):<11} {line}" for line in value]
    return [f"{key:<11} {value:,}" if isinstance(value, int) else f"{key:<11} {value}"]


def _printable(line: str) -> str:
    """Control signs of a corpus must not reach the terminal."""
    return "".join(sign if sign.isprintable() else "\N{MIDDLE DOT}" for sign in line)


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.2f} MB" if n_bytes else "–"


def _print_table(columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> None:
    from rich.console import Console

    from seedbed.report.tables import Table, to_text

    console = Console(highlight=False)
    (console if console.is_terminal else Console(highlight=False, width=160)).print(to_text(Table("", columns, rows)))


@contextmanager
def _bar() -> Iterator[Progress]:
    """A progress bar on stderr, a line for each file that is fetched."""
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
