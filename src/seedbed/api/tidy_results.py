"""The evaluations of a study as tidy data: one row per run, metric and step, numbers as numbers.

>>> results = Results({"seed": Column((0, 1), np.array([0, 0, 1])), "value": np.array([0.5, 0.7, 0.6])})
>>> len(results), results.columns, list(results)[2]
(3, ('seed', 'value'), {'seed': 1, 'value': 0.6})
>>> results["value"].max()
np.float64(0.7)

`to_pandas`, `to_polars` and `to_arrow` need those libraries; rows, CSV and JSON Lines need none.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seedbed.errors import MissingData, UsageError
from seedbed.format import join_words
from seedbed.records import Curve
from seedbed.report.study_runs import matching_runs, run_configs
from seedbed.sampling.notebook_html import legend_html, table_html
from seedbed.settings import Value
from seedbed.stats.metric_registry import metric_sort_key
from seedbed.store import Store
from seedbed.study.conditions import format_filter_value
from seedbed.study.toml_text import did_you_mean

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

N_SHOWN_ROWS: Final = 10  # in a notebook or terminal
FILE_FORMATS: Final = ("csv", "jsonl", "parquet")


@dataclass(frozen=True)
class Column:
    """A column with few distinct values: row i has `values[codes[i]]`."""

    values: tuple[Value, ...]
    codes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.codes)

    def to_array(self) -> NDArray[Any]:
        return _array_of(self.values)[self.codes]


AnyColumn: TypeAlias = Column | NDArray[Any]


class Results:
    """Columns of equal length; iterating gives rows as dicts, indexing a column as a NumPy array."""

    def __init__(self, columns: Mapping[str, AnyColumn]) -> None:
        self._columns = dict(columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._columns:
            raise KeyError(f"{name}; the columns are {', '.join(self.columns)}")
        column = self._columns[name]
        return column.to_array() if isinstance(column, Column) else column

    def __iter__(self) -> Iterator[dict[str, Value]]:
        for row in self._rows():
            yield dict(zip(self._columns, row, strict=True))

    def _rows(self, stop: int | None = None) -> Iterator[tuple[Value, ...]]:
        return zip(*(self[name][:stop].tolist() for name in self._columns), strict=True)

    def to_pandas(self) -> pandas.DataFrame:
        """A pandas DataFrame."""
        library = _import("pandas")
        columns = self._expand(lambda column: library.Series(_array_of(column.values)).take(column.codes).array)
        frame: pandas.DataFrame = library.DataFrame(columns)
        return frame

    def to_polars(self) -> polars.DataFrame:
        """A polars DataFrame."""
        library = _import("polars")
        columns = self._expand(lambda column: library.Series(list(column.values), strict=False).gather(column.codes))
        frame: polars.DataFrame = library.DataFrame(columns)
        return frame

    def to_arrow(self) -> pyarrow.Table:
        """A pyarrow Table."""
        library = _import("pyarrow")
        columns = self._expand(lambda column: library.array(list(column.values)).take(library.array(column.codes)))
        table: pyarrow.Table = library.table(columns)
        return table

    def _expand(self, expand: Callable[[Column], Any]) -> dict[str, Any]:
        """The columns by name, those with few distinct values expanded by a library in its own way."""
        return {name: expand(one) if isinstance(one, Column) else one for name, one in self._columns.items()}

    def write(self, path: str | os.PathLike[str], file_format: str | None = None) -> None:
        """Writes a file in the format of its suffix, or in this one: csv, jsonl or parquet."""
        path = Path(path)
        file_format = choose_file_format(path, file_format)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            if file_format == "parquet":
                table = self.to_arrow()
                import_module("pyarrow.parquet").write_table(table, unfinished)
            else:
                with unfinished.open("w", encoding="utf-8", newline="") as file:
                    self.write_text(file, file_format)
            unfinished.replace(path)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise UsageError(f"{path} cannot be written ({error.strerror}); name another file") from None

    def write_text(self, file: IO[str], file_format: str) -> None:
        """Writes csv or jsonl to an open file, such as stdout."""
        if file_format == "csv":
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(self.columns)
            writer.writerows(self._rows())
            return
        for row in self:
            file.write(json.dumps({name: _finite_or_none(value) for name, value in row.items()}, ensure_ascii=False))
            file.write("\n")

    def __repr__(self) -> str:
        rows = [self.columns, *(tuple(map(_format_cell, row)) for row in self._rows(N_SHOWN_ROWS))]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([*lines, *self._note()])

    def _repr_html_(self) -> str:
        rows = ([escape(_format_cell(value)) for value in row] for row in self._rows(N_SHOWN_ROWS))
        return table_html(self.columns, rows) + "".join(map(legend_html, self._note()))

    def _note(self) -> list[str]:
        n_more = len(self) - N_SHOWN_ROWS
        return [f"… and {n_more:,} more rows; to_pandas() or to_polars() gives a DataFrame"] if n_more > 0 else []


def load_results(store: Store, study: str, only: Sequence[str] = (), metrics: Collection[str] = ()) -> Results:
    """The stored curves of the matching runs: run, the settings that vary, seed, metric, step and value."""
    runs = matching_runs(store, study, only)
    configs = run_configs(store, study, runs)
    curves = store.curves([run.id for run in runs], metrics or None)
    _check_metrics(store, [run.id for run in runs], metrics, curves)
    names = sorted({name for of_run in curves.values() for name in of_run}, key=metric_sort_key)
    codes = {name: code for code, name in enumerate(names)}
    parts = [
        (index, codes[name], curves[run.id][name])
        for index, run in enumerate(runs)
        for name in sorted(curves.get(run.id, {}), key=codes.__getitem__)
    ]
    lengths = [len(curve.steps) for _, _, curve in parts]
    run_codes = np.repeat(np.array([index for index, _, _ in parts], dtype=np.int64), lengths)
    metric_codes = np.repeat(np.array([code for _, code, _ in parts], dtype=np.int64), lengths)
    settings = dict.fromkeys(name for config in configs for name in config)
    return Results(
        {"run": Column(tuple(run.id for run in runs), run_codes)}
        | {name: Column(_to_cells([one.get(name) for one in configs]), run_codes) for name in settings}
        | {"seed": Column(tuple(run.seed for run in runs), run_codes), "metric": Column(tuple(names), metric_codes)}
        | {"step": _concatenate([curve.steps for _, _, curve in parts], np.int64)}
        | {"value": _concatenate([curve.values for _, _, curve in parts], np.float64)}
    )


def _check_metrics(
    store: Store, run_ids: Sequence[str], metrics: Collection[str], curves: Mapping[str, Mapping[str, Curve]]
) -> None:
    unknown = set(metrics) - {name for of_run in curves.values() for name in of_run}
    if not unknown:
        return
    recorded = sorted({name for of_run in store.curves(run_ids).values() for name in of_run}, key=metric_sort_key)
    if not recorded:
        raise MissingData("no run has an evaluation yet")
    name = min(unknown)
    raise UsageError(f"no run has the metric {name}{did_you_mean(name, recorded)}; recorded: {', '.join(recorded)}")


def choose_file_format(path: Path | None, file_format: str | None) -> str:
    """The format that is given, or else that of the file's suffix, or else csv."""
    if file_format is None and path is not None:
        if path.suffix.removeprefix(".") in FILE_FORMATS:
            return path.suffix.removeprefix(".")
        raise UsageError(f"{path}: expected a file that ends in .csv, .jsonl or .parquet, or a format")
    if (file_format or "csv") not in FILE_FORMATS:
        raise UsageError(f"format {file_format}: expected {join_words(FILE_FORMATS, 'or')}")
    return file_format or "csv"


def _import(library: str) -> Any:
    try:
        return import_module(library)
    except ImportError:
        raise MissingData(f"{library} is not installed; install it with: pip install {library}") from None


def _concatenate(arrays: Sequence[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.array([], dtype=dtype)


def _array_of(values: Sequence[Value]) -> NDArray[Any]:
    """The values as an array of their common type, or of objects where they have none."""
    kinds = {type(value) for value in values}
    if kinds <= {int, float} or kinds == {bool}:
        return np.array(values)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _to_cells(values: Sequence[Value]) -> tuple[Value, ...]:
    """The values of a setting as numbers, truth values or texts; as texts where kinds mix and for lists."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} or kinds in ({bool}, {str}):
        return tuple(values)
    return tuple(None if value is None else format_filter_value(value) for value in values)


def _finite_or_none(value: Value) -> Value:
    """JSON has no NaN."""
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _format_cell(value: Value) -> str:
    formatters: dict[type, Callable[[Any], str]] = {float: "{:.6g}".format, type(None): lambda _: ""}
    return formatters.get(type(value), str)(value)
