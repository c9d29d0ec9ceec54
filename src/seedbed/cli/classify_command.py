"""`seedbed classify`: the classes that trained classifiers give to sentences or to the texts of a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from seedbed.cli.common import (
    DEFAULT_HOME,
    HomeOption,
    JsonOption,
    OnlyOption,
    StudyOrRunArgument,
    app,
    handle_errors,
    print_json,
    print_tables,
)
from seedbed.cli.data_commands import ColumnOption, parse_columns
from seedbed.cli.model_commands import StepOption
from seedbed.errors import UsageError


@app.command(epilog='Example: seedbed classify 3f2a "We will not tire."')
@handle_errors
def classify(
    runs: StudyOrRunArgument,
    texts: Annotated[
        list[str],
        typer.Argument(help="sentences, or a file: one sentence per line, or a table such as CSV; - reads stdin"),
    ],
    home: HomeOption = DEFAULT_HOME, step: StepOption = "last", only: OnlyOption = [],  # noqa: B006
    text_column: ColumnOption = None, label_column: ColumnOption = None,
    out: Annotated[Path | None, typer.Option(help="write all texts and probabilities to this CSV file")] = None,
    table_format: Annotated[str, typer.Option("--format", help="text, markdown, csv or latex")] = "text",
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Tell the class of sentences, with probabilities; several runs (3f2a,77b0 or a study) give their mean."""
    from seedbed.report.attention_export import parse_step
    from seedbed.report.predictions import (
        class_table,
        load_classifiers,
        predict,
        prediction_notes,
        prediction_table,
        predictions_as_json,
    )
    from seedbed.report.tables import to_csv

    sentences, labels = _read_texts(texts, text_column, label_column)
    predictions = predict(load_classifiers(home, runs.split(","), only, parse_step(step)), sentences, labels)
    if out is not None:
        try:
            out.write_text(to_csv(prediction_table(predictions, whole=True)), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--out {out} cannot be written ({error.strerror})") from None
        typer.echo(out)
        typer.echo(f"seedbed: {'; '.join(prediction_notes(predictions))}", err=True)
    elif as_json:
        print_json(predictions_as_json(predictions))
    elif table_format == "csv":
        typer.echo(to_csv(prediction_table(predictions, whole=True)), nl=False)
    elif len(sentences) == 1:
        print_tables([class_table(predictions)], table_format)
    else:
        print_tables([prediction_table(predictions)], table_format)


def _read_texts(
    arguments: list[str], text_column: str | None, label_column: str | None
) -> tuple[list[str], list[str] | None]:
    """The texts, and their labels if they come from a table that has them."""
    from seedbed.data.own_corpora import read_texts
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
