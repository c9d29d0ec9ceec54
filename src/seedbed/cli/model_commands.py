"""Commands on trained models: sample, read, attend, hooks, heads, classify."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seedbed.cli.common import (
    DEFAULT_HOME,
    FormatOption,
    HomeOption,
    JsonOption,
    OnlyOption,
    StudyOrRunArgument,
    ThemeOption,
    app,
    echo,
    print_json,
    print_tables,
    reject_settings,
    split_commas,
    stored_study_names,
    warnings_on_stderr,
)
from seedbed.cli.data_commands import ColumnOption, parse_columns
from seedbed.errors import UsageError
from seedbed.format import escape_controls

if TYPE_CHECKING:
    from seedbed.sampling.loaded_run import LoadedRun

RunArgument = Annotated[str, typer.Argument(help="a run's id, or a prefix of it")]
StepOption = Annotated[str, typer.Option(help="checkpoint to load: last, best, or a saved step")]


@app.command(epilog='Example: seedbed sample 3f2a --prompt "my lord" --temperature 0.8')
def sample(
    runs: Annotated[list[str], typer.Argument(help="run ids or prefixes of them, or a stored study")],
    only: OnlyOption = [], home: HomeOption = DEFAULT_HOME, step: StepOption = "last",  # noqa: B006
    prompt: Annotated[str, typer.Option(help="start of the text; empty: a newline, or BOS")] = "",
    tokens: Annotated[int, typer.Option(help="number of tokens to generate")] = 500,
    temperature: Annotated[float, typer.Option(help="0: greedy; 1: the model's distribution")] = 1.0,
    top_k: Annotated[int, typer.Option(help="sample from the k most likely tokens; 0: all")] = 0,
    top_p: Annotated[float, typer.Option(help="sample from the most likely tokens with this total probability")] = 1.0,
    seed: Annotated[int, typer.Option(help="random seed; the same seed gives the same text")] = 0,
    n: Annotated[int, typer.Option("-n", help="number of samples per run")] = 1,
    hop: Annotated[int | None, typer.Option(help="step of the sliding window beyond the context; 0: no window")] = None,
    copied: Annotated[bool, typer.Option(help="mark text copied verbatim from the training text")] = True,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Generate text from a prompt; for arithmetic, answer an equation such as "12 + 8 =" with probabilities."""
    from seedbed import load_all
    from seedbed.report.trained_models import parse_step
    from seedbed.sampling.printer import SamplePrinter

    reject_settings("sample", runs)
    with warnings_on_stderr():
        loaded = load_all(stored_study_names(runs), home, parse_step(step), only)
    options = (tokens, temperature, top_k, top_p, seed)
    printer = SamplePrinter(loaded, _check_utf8(prompt), *options, hop=hop, n_samples=n, copied=copied)
    for notice in printer.notices:
        echo(f"seedbed: {notice}", err=True)
    if as_json:
        print_json(printer.as_json())
        return
    for segment in printer.text_segments():
        if segment.is_copied and sys.stdout.isatty():
            typer.echo(typer.style(escape_controls(segment.text), fg="yellow", underline=True), nl=False)
        else:
            echo(segment.text, nl=False)
    if printer.legend:
        echo(f"seedbed: {'underlined: ' if sys.stdout.isatty() else ''}{printer.legend}", err=True)


@app.command(epilog="Example: seedbed read 3f2a letter.txt")
def read(
    run: RunArgument, file: Annotated[Path, typer.Argument(help="a text file; - reads standard input")],
    home: HomeOption = DEFAULT_HOME, step: StepOption = "last",
    top: Annotated[int, typer.Option(min=0, help="number of most surprising words to show")] = 10,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Measure how surprising a text is to a run: bits per character and byte, and the most surprising words."""
    from seedbed.sampling.surprisal import format_surprisal_lines, surprisal_as_json

    loaded = _load_run(run, home, step)
    read = loaded.surprisal(_read_text(file))
    if as_json:
        print_json(surprisal_as_json(loaded, read, top))
    else:
        echo("\n".join(format_surprisal_lines(loaded, read, top)))


@app.command(epilog='Example: seedbed attend 3f2a "12 + 8 = 20" --out attention.svg')
def attend(
    run: RunArgument, texts: Annotated[list[str], typer.Argument(help="one or more texts, each with its own maps")],
    home: HomeOption = DEFAULT_HOME,
    step: Annotated[str, typer.Option(help="last, best, comma-separated steps, or all")] = "last",
    layer: Annotated[str | None, typer.Option(help="comma-separated layers, counted from 1; default: all")] = None,
    head: Annotated[str | None, typer.Option(help="comma-separated heads, counted from 1; default: all")] = None,
    by: Annotated[str, typer.Option(help="token, or word: tokens grouped into words")] = "token",
    theme: ThemeOption = "light",
    out: Annotated[Path | None, typer.Option(help="file: .svg, .png, .pdf or .json; default: print as text")] = None,
) -> None:  # fmt: skip
    """Show the attention of each token of a text, in every layer and head; for an LSTM, its input gradients."""
    from seedbed.report.attention_export import load_attention_maps, preview_attention_maps, write_attention_maps

    layers, heads = _parse_indices("--layer", layer), _parse_indices("--head", head)
    maps = load_attention_maps(home, run, [_check_utf8(text) for text in texts], step, layers, heads, by)
    if out is None:
        echo(preview_attention_maps(maps))
    else:
        write_attention_maps(maps, out, theme)
        echo(out)


@app.command(epilog="Example: seedbed hooks 3f2a")
def hooks(
    run: RunArgument, home: HomeOption = DEFAULT_HOME, step: StepOption = "last", as_json: JsonOption = False
) -> None:
    """List the hooks of a run's model: activations that can be read and replaced (docs/hooks.md)."""
    from seedbed.models.hooks import list_hook_names

    names = list_hook_names(_load_run(run, home, step).model)
    if as_json:
        print_json(names)
    else:
        echo("\n".join(names))


@app.command(epilog="Example: seedbed heads arithmetic/sanity --only model.kind=gpt --ablation")
def heads(
    study: StudyOrRunArgument, only: OnlyOption = [],  # noqa: B006
    home: HomeOption = DEFAULT_HOME, step: StepOption = "last", as_json: JsonOption = False,
    inputs: Annotated[int, typer.Option(min=1, help="number of held-out inputs")] = 64,
    ablation: Annotated[bool, typer.Option("--ablation", help="also the change of the loss by ablation")] = False,
    table_format: FormatOption = "text",
) -> None:  # fmt: skip
    """Report head statistics on held-out inputs, over seeds; for an LSTM its gates; for arithmetic also circles."""
    from seedbed.report.analysis_tables import analyses_as_json, analysis_tables
    from seedbed.report.run_analysis import analyze_configs

    with warnings_on_stderr():
        configs = analyze_configs(home, study, only, inputs, ablation, step)
    if as_json:
        print_json([analyses_as_json(config) for config in configs])
    else:
        for config in configs:
            print_tables(analysis_tables(config), table_format)


@app.command(epilog='Example: seedbed classify 3f2a "We will not tire."')
def classify(
    runs: StudyOrRunArgument,
    texts: Annotated[
        list[str],
        typer.Argument(help="sentences, or a file: one sentence per line, or a table such as CSV; - reads stdin"),
    ],
    home: HomeOption = DEFAULT_HOME, step: StepOption = "last", only: OnlyOption = [],  # noqa: B006
    text_column: ColumnOption = None, label_column: ColumnOption = None,
    out: Annotated[Path | None, typer.Option(help="write all texts and probabilities to this CSV file")] = None,
    table_format: FormatOption = "text",
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Tell the class of sentences, with probabilities; several runs (3f2a,77b0 or a study) give their mean."""
    from seedbed.report.predictions import (
        class_table,
        load_classifiers,
        predict,
        prediction_notes,
        prediction_table,
        predictions_as_json,
    )
    from seedbed.report.tables import to_csv
    from seedbed.report.trained_models import parse_step

    sentences, labels = _read_texts(texts, text_column, label_column)
    predictions = predict(load_classifiers(home, runs.split(","), only, parse_step(step)), sentences, labels)
    if out is not None:
        try:
            out.write_text(to_csv(prediction_table(predictions, whole=True)), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--out {out} cannot be written ({error.strerror})") from None
        echo(out)
        echo(f"seedbed: {'; '.join(prediction_notes(predictions))}", err=True)
    elif as_json:
        print_json(predictions_as_json(predictions))
    elif table_format == "csv":
        echo(to_csv(prediction_table(predictions, whole=True)), nl=False)
    elif len(sentences) == 1:
        print_tables([class_table(predictions)], table_format)
    else:
        print_tables([prediction_table(predictions)], table_format)


def _load_run(run: str, home: Path, step: str) -> LoadedRun:
    from seedbed import load
    from seedbed.report.trained_models import parse_step

    return load(run, home, parse_step(step))


def _check_utf8(prompt: str) -> str:
    """The prompt, if it is valid UTF-8; other bytes arrive from the shell as lone surrogates."""
    for index, character in enumerate(prompt):
        if 0xD800 <= ord(character) < 0xE000:
            raise UsageError(f"--prompt: byte 0x{ord(character) & 0xFF:02X} (character {index + 1}) is not UTF-8")
    return prompt


def _read_text(file: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read ({error.strerror}); give a text file, or - for standard input"
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 (byte 0x{data[error.start]:02X} at {error.start})") from None


def _parse_indices(option: str, text: str | None) -> tuple[int, ...] | None:
    """Comma-separated numbers counted from 1, as indices from 0."""
    numbers = split_commas(text)
    if numbers is None:
        return None
    if not all(number.isdecimal() and int(number) for number in numbers):
        raise UsageError(f"{option} {text}: expected comma-separated whole numbers from 1, such as 1,4")
    return tuple(int(number) - 1 for number in numbers)


def _read_texts(
    arguments: list[str], text_column: str | None, label_column: str | None
) -> tuple[list[str], list[str] | None]:
    """The texts, and their labels if they come from a table that has them."""
    from seedbed.data.corpora import read_texts
    from seedbed.data.table_files import TABLE_SUFFIXES

    if arguments == ["-"]:
        try:
            texts = sys.stdin.buffer.read().decode("utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise UsageError(f"standard input is not UTF-8 (byte {error.start:,})") from None
        labels = None
        texts = [text for text in texts if text.strip()]
    elif len(arguments) == 1 and _is_path(arguments[0], TABLE_SUFFIXES):
        texts, labels = read_texts(Path(arguments[0]), parse_columns(text_column, label_column))
    else:
        texts, labels = arguments, None
    if not texts:
        raise UsageError(f"{arguments[0]} holds no text; expected a sentence per line, or a table with a text column")
    return texts, labels


def _is_path(argument: str, suffixes: tuple[str, ...]) -> bool:
    """Whether an argument names a file rather than being a sentence."""
    looks_like_file = " " not in argument and argument.lower().endswith((*suffixes, ".txt"))
    return looks_like_file or (0 < len(argument) < 256 and Path(argument).exists())
