"""Verbs that look into one trained model: sample, read, attend, taps, heads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seedbed.cli.common import (
    DEFAULT_HOME,
    HomeOption,
    JsonOption,
    OverridesArgument,
    app,
    handle_errors,
    print_json,
    print_tables,
    split_commas,
)
from seedbed.errors import UsageError

if TYPE_CHECKING:
    from seedbed.sampling.loaded_run import LoadedRun

RunArgument = Annotated[str, typer.Argument(help="a run's id, or the start of it")]
StepOption = Annotated[str, typer.Option(help="whose weights: last, best, or a step that was kept")]


@app.command(epilog='Example: seedbed sample 3f2a --prompt "my lord" --temperature 0.8')
@handle_errors
def sample(
    runs: Annotated[list[str], typer.Argument(help="runs by id or the start of it, or the name of a stored study")],
    home: HomeOption = DEFAULT_HOME, step: StepOption = "last",
    prompt: Annotated[str, typer.Option(help="what the text begins with; empty: a new line, or BOS")] = "",
    tokens: Annotated[int, typer.Option(help="tokens to write")] = 500,
    temperature: Annotated[float, typer.Option(help="0: always the likeliest token; 1: as the model has it")] = 1.0,
    top_k: Annotated[int, typer.Option(help="only the k likeliest tokens; 0: all")] = 0,
    top_p: Annotated[float, typer.Option(help="only the likeliest tokens that together have this share")] = 1.0,
    seed: Annotated[int, typer.Option(help="of the draws; the same seed writes the same text")] = 0,
    n: Annotated[int, typer.Option("-n", help="number of texts of each run")] = 1,
    hop: Annotated[int | None, typer.Option(help="tokens the window moves by past the context; 0: reads on")] = None,
    copied: Annotated[bool, typer.Option(help="mark what stands verbatim in the training text")] = True,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Let runs write on from a prompt; of arithmetic, answer an equation such as "12 + 8 =" with probabilities."""
    from seedbed import load_all
    from seedbed.sampling.printer import SamplePrinter

    dials = (tokens, temperature, top_k, top_p, seed)
    told = SamplePrinter(
        load_all(runs, home, _parse_step(step)), _check_utf8(prompt), *dials, hop=hop, n_samples=n, copied=copied
    )
    for notice in told.notices:
        typer.echo(f"seedbed: {notice}", err=True)
    if as_json:
        print_json(told.as_json())
        return
    for part in told.text_segments():
        typer.echo(typer.style(part.text, fg="yellow", underline=True) if part.is_copied else part.text, nl=False)
    if told.legend:
        typer.echo(f"seedbed: {'underlined: ' if sys.stdout.isatty() else ''}{told.legend}", err=True)


@app.command(epilog="Example: seedbed read 3f2a letter.txt")
@handle_errors
def read(
    run: RunArgument, file: Annotated[Path, typer.Argument(help="a text file; - reads what is piped in")],
    home: HomeOption = DEFAULT_HOME, step: StepOption = "last",
    top: Annotated[int, typer.Option(min=0, help="how many of the most surprising words to show")] = 10,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Tell how surprising a text is to a run: bits per character and byte, and its most surprising words."""
    from seedbed.sampling.surprisal_report import format_surprisal_lines, surprisal_as_json

    loaded = _load_run(run, home, step)
    read = loaded.surprisal(_read_text(file))
    if as_json:
        print_json(surprisal_as_json(loaded, read, top))
    else:
        typer.echo("\n".join(format_surprisal_lines(loaded, read, top)))


@app.command(epilog='Example: seedbed attend 3f2a "12 + 8 = 20" --out attention.svg')
@handle_errors
def attend(
    run: RunArgument, texts: Annotated[list[str], typer.Argument(help="a text or several, each with maps of its own")],
    home: HomeOption = DEFAULT_HOME,
    step: Annotated[str, typer.Option(help="last, best, kept steps with commas between them, or all")] = "last",
    layer: Annotated[str | None, typer.Option(help="layers from 1, with commas between them; unset: all")] = None,
    head: Annotated[str | None, typer.Option(help="heads from 1, with commas between them; unset: all")] = None,
    by: Annotated[str, typer.Option(help="token, or word: characters and pieces gathered")] = "token",
    look: Annotated[str, typer.Option(help="light or dark")] = "light",
    out: Annotated[Path | None, typer.Option(help="file: .svg, .png, .pdf or .json; without it: as text")] = None,
) -> None:  # fmt: skip
    """Show what each token of a text looks at, in every layer and head; of an LSTM, its input gradients."""
    from seedbed.report.attention_export import load_attention_maps, preview_attention_maps, write_attention_maps

    layers, heads = _parse_indices("--layer", layer), _parse_indices("--head", head)
    maps = load_attention_maps(home, run, [_check_utf8(text) for text in texts], step, layers, heads, by)
    if out is None:
        typer.echo(preview_attention_maps(maps))
    else:
        write_attention_maps(maps, out, look)
        typer.echo(out)


@app.command(epilog="Example: seedbed taps 3f2a")
@handle_errors
def hooks(
    run: RunArgument, home: HomeOption = DEFAULT_HOME, step: StepOption = "last", as_json: JsonOption = False
) -> None:
    """List the places inside a run's model that can be read and replaced (docs/hooks.md)."""
    from seedbed.models.hooks import list_hook_names

    names = list_hook_names(_load_run(run, home, step).model)
    if as_json:
        print_json(names)
    else:
        typer.echo("\n".join(names))


@app.command(epilog="Example: seedbed heads arithmetic/sanity model.kind=gpt --ablation")
@handle_errors
def heads(
    study: Annotated[str, typer.Argument(help="the name of a stored study, or a run's id")],
    filters: OverridesArgument = None, home: HomeOption = DEFAULT_HOME, step: StepOption = "last", as_json: JsonOption = False,
    inputs: Annotated[int, typer.Option(min=1, help="held-out inputs to look at")] = 64,
    ablation: Annotated[bool, typer.Option("--ablation", help="also the loss without each part")] = False,
    table_format: Annotated[str, typer.Option("--format", help="text, markdown, csv or latex")] = "text",
) -> None:  # fmt: skip
    """Tell what heads look at, over seeds and real inputs; of an LSTM its gates; of arithmetic also its circles."""
    from seedbed.report.analysis_json import analyses_as_json
    from seedbed.report.analysis_tables import analysis_tables
    from seedbed.report.run_analysis import analyze_configs

    points = analyze_configs(home, study, filters or (), inputs, ablation, step)
    if as_json:
        print_json([analyses_as_json(point) for point in points])
    else:
        for point in points:
            print_tables(analysis_tables(point), table_format)


def _load_run(run: str, home: Path, step: str) -> LoadedRun:
    from seedbed import load

    return load(run, home, _parse_step(step))


def _parse_step(word: str) -> int | Literal["last", "best"]:
    if word in ("last", "best"):
        return word  # type: ignore[return-value]
    if not word.isdecimal():
        raise UsageError(f"--step {word}: expected last, best, or a step such as 5000")
    return int(word)


def _check_utf8(prompt: str) -> str:
    """A prompt as it was typed; bytes that are no UTF-8 arrive as lone surrogates."""
    for at, sign in enumerate(prompt):
        if 0xD800 <= ord(sign) < 0xE000:
            raise UsageError(f"--prompt: byte 0x{ord(sign) & 0xFF:02X} (character {at + 1}) is not UTF-8")
    return prompt


def _read_text(file: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read ({error.strerror}); name a text file, or - for standard input"
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 (byte 0x{data[error.start]:02X} at {error.start})") from None


def _parse_indices(option: str, words: str | None) -> tuple[int, ...] | None:
    """Places from 1 with commas between them, as places from 0."""
    numbers = split_commas(words)
    if numbers is None:
        return None
    if not all(number.isdecimal() and int(number) for number in numbers):
        raise UsageError(f"{option} {words}: expected whole numbers from 1 with commas between them, such as 1,4")
    return tuple(int(number) - 1 for number in numbers)
