"""Verbs that look into one trained model: sample, read, attend, taps, heads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seedbed.cli.common import DEFAULT_HOME, Home, Json, Words, app, listed, print_json, print_tables, verb
from seedbed.errors import UsageError

if TYPE_CHECKING:
    from seedbed.generate.load import Loaded

RunArgument = Annotated[str, typer.Argument(help="a run's id, or the start of it")]
Step = Annotated[str, typer.Option(help="whose weights: last, best, or a step that was kept")]


@app.command(epilog='Example: seedbed sample 3f2a --prompt "my lord" --temperature 0.8')
@verb
def sample(
    runs: Annotated[list[str], typer.Argument(help="runs by id or the start of it, or the name of a stored study")],
    home: Home = DEFAULT_HOME, step: Step = "last",
    prompt: Annotated[str, typer.Option(help="what the text begins with; empty: a new line, or BOS")] = "",
    tokens: Annotated[int, typer.Option(help="tokens to write")] = 500,
    temperature: Annotated[float, typer.Option(help="0: always the likeliest token; 1: as the model has it")] = 1.0,
    top_k: Annotated[int, typer.Option(help="only the k likeliest tokens; 0: all")] = 0,
    top_p: Annotated[float, typer.Option(help="only the likeliest tokens that together have this share")] = 1.0,
    seed: Annotated[int, typer.Option(help="of the draws; the same seed writes the same text")] = 0,
    n: Annotated[int, typer.Option("-n", help="number of texts of each run")] = 1,
    hop: Annotated[int | None, typer.Option(help="tokens the window moves by past the context; 0: reads on")] = None,
    copied: Annotated[bool, typer.Option(help="mark what stands verbatim in the training text")] = True,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Let runs write on from a prompt; of arithmetic, answer an equation such as "12 + 8 =" with probabilities."""
    from seedbed import load_all
    from seedbed.generate.told import Told

    dials = (tokens, temperature, top_k, top_p, seed)
    told = Told(load_all(runs, home, _step(step)), _typed(prompt), *dials, hop=hop, n=n, copied=copied)
    for notice in told.notices:
        typer.echo(f"seedbed: {notice}", err=True)
    if as_json:
        print_json(told.as_json())
        return
    for part in told.as_text():
        typer.echo(typer.style(part.text, fg="yellow", underline=True) if part.copied else part.text, nl=False)
    if told.legend:
        typer.echo(f"seedbed: {'underlined: ' if sys.stdout.isatty() else ''}{told.legend}", err=True)


@app.command(epilog="Example: seedbed read 3f2a letter.txt")
@verb
def read(
    run: RunArgument, file: Annotated[Path, typer.Argument(help="a text file; - reads what is piped in")],
    home: Home = DEFAULT_HOME, step: Step = "last",
    top: Annotated[int, typer.Option(min=0, help="how many of the most surprising words to show")] = 10,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Tell how surprising a text is to a run: bits per character and byte, and its most surprising words."""
    from seedbed.generate.read import surprisal_as_json, surprisal_lines

    loaded = _load(run, home, step)
    read = loaded.surprisal(_text_of(file))
    if as_json:
        print_json(surprisal_as_json(loaded, read, top))
    else:
        typer.echo("\n".join(surprisal_lines(loaded, read, top)))


@app.command(epilog='Example: seedbed attend 3f2a "12 + 8 = 20" --out attention.svg')
@verb
def attend(
    run: RunArgument, texts: Annotated[list[str], typer.Argument(help="a text or several, each with maps of its own")],
    home: Home = DEFAULT_HOME,
    step: Annotated[str, typer.Option(help="last, best, kept steps with commas between them, or all")] = "last",
    layer: Annotated[str | None, typer.Option(help="layers from 1, with commas between them; unset: all")] = None,
    head: Annotated[str | None, typer.Option(help="heads from 1, with commas between them; unset: all")] = None,
    by: Annotated[str, typer.Option(help="token, or word: characters and pieces gathered")] = "token",
    look: Annotated[str, typer.Option(help="light or dark")] = "light",
    out: Annotated[Path | None, typer.Option(help="file: .svg, .png, .pdf or .json; without it: as text")] = None,
) -> None:  # fmt: skip
    """Show what each token of a text looks at, in every layer and head; of an LSTM, its input gradients."""
    from seedbed.report.attended import attended, preview_maps, write_maps

    layers, heads = _counted("--layer", layer), _counted("--head", head)
    maps = attended(home, run, [_typed(text) for text in texts], step, layers, heads, by)
    if out is None:
        typer.echo(preview_maps(maps))
    else:
        write_maps(maps, out, look)
        typer.echo(out)


@app.command(epilog="Example: seedbed taps 3f2a")
@verb
def taps(run: RunArgument, home: Home = DEFAULT_HOME, step: Step = "last", as_json: Json = False) -> None:
    """List the places inside a run's model that can be read and replaced (docs/taps.md)."""
    from seedbed.models.taps import tap_names

    names = tap_names(_load(run, home, step).model)
    if as_json:
        print_json(names)
    else:
        typer.echo("\n".join(names))


@app.command(epilog="Example: seedbed heads arithmetic/sanity model.kind=gpt --ablation")
@verb
def heads(
    study: Annotated[str, typer.Argument(help="the name of a stored study, or a run's id")],
    words: Words = None, home: Home = DEFAULT_HOME, step: Step = "last", as_json: Json = False,
    inputs: Annotated[int, typer.Option(min=1, help="held-out inputs to look at")] = 64,
    ablation: Annotated[bool, typer.Option("--ablation", help="also the loss without each part")] = False,
    form: Annotated[str, typer.Option("--format", help="text, markdown, csv or latex")] = "text",
) -> None:  # fmt: skip
    """Tell what heads look at, over seeds and real inputs; of an LSTM its gates; of arithmetic also its circles."""
    from seedbed.report.inside import look_into_points
    from seedbed.report.inside_json import inside_as_json
    from seedbed.report.inside_tables import inside_tables

    points = look_into_points(home, study, words or (), inputs, ablation, step)
    if as_json:
        print_json([inside_as_json(point) for point in points])
    else:
        for point in points:
            print_tables(inside_tables(point), form)


def _load(run: str, home: Path, step: str) -> Loaded:
    from seedbed import load

    return load(run, home, _step(step))


def _step(word: str) -> int | Literal["last", "best"]:
    if word in ("last", "best"):
        return word  # type: ignore[return-value]
    if not word.isdecimal():
        raise UsageError(f"--step {word}: expected last, best, or a step such as 5000")
    return int(word)


def _typed(prompt: str) -> str:
    """A prompt as it was typed; bytes that are no UTF-8 arrive as lone surrogates."""
    for at, sign in enumerate(prompt):
        if 0xD800 <= ord(sign) < 0xE000:
            raise UsageError(f"--prompt: byte 0x{ord(sign) & 0xFF:02X} (character {at + 1}) is not UTF-8")
    return prompt


def _text_of(file: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read ({error.strerror}); name a text file, or - for standard input"
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 (byte 0x{data[error.start]:02X} at {error.start})") from None


def _counted(option: str, words: str | None) -> tuple[int, ...] | None:
    """Places from 1 with commas between them, as places from 0."""
    numbers = listed(words)
    if numbers is None:
        return None
    if not all(number.isdecimal() and int(number) for number in numbers):
        raise UsageError(f"{option} {words}: expected whole numbers from 1 with commas between them, such as 1,4")
    return tuple(int(number) - 1 for number in numbers)
