"""Charts as Vega-Lite documents: rows as blocks of CSV text, so that no library walks through them one by one."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, Final, Literal, TypeAlias

import altair as alt
import numpy as np

from seedbed.charts.labels import isolate_direction
from seedbed.charts.theme import Theme, vega_config
from seedbed.settings import Value

ColumnType: TypeAlias = Literal["number", "string"]
HOVER_STYLE: Final = "hover"  # the style of marks that only a pointer can use


def to_vega_lite(chart: Any, theme: Theme | None = None) -> dict[str, Any]:
    """The chart as a Vega-Lite document, with this look or with none."""
    spec: dict[str, Any] = chart.to_dict(validate=False)  # validated by kind in the tests, not a hundred times a report
    spec.pop("$schema", None)  # an address, and of no use offline
    spec.pop("config", None)
    return spec if theme is None else spec | {"config": vega_config(theme)}


def without_interaction(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec for paper: without marks and zoom that only a pointer can use, and without the clipping zoom needs.

    Gathered numbers keep within their axes, and clipping every line alone takes a renderer of SVG seconds.
    """
    kept = {name: value for name, value in spec.items() if name != "params"}
    if "mark" in kept:
        kept["mark"] = {name: value for name, value in kept["mark"].items() if name != "clip"}
    for name in ("concat", "layer"):
        if name in kept:
            kept[name] = [
                without_interaction(inner) for inner in kept[name] if inner.get("mark", {}).get("style") != HOVER_STYLE
            ]
    return kept


def csv_dataset(
    columns: Mapping[str, ColumnType], rows: Iterable[Sequence[Value]], name: str = "rows"
) -> tuple[alt.NamedData, dict[str, str]]:
    """Rows as a named block of CSV: the data that marks refer to, and the block itself by its name."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_csv_value(value) for value in row] for row in rows)
    form = alt.DataFormat(type="csv", parse=dict(columns))
    return alt.NamedData(name=name, format=form), {name: text.getvalue()}


def _csv_value(value: Value) -> Value:
    """A number with the digits that can be seen; what is not finite is left out."""
    if isinstance(value, float | np.floating):
        return f"{value:.6g}" if isfinite(value) else ""
    return "" if value is None else value


def wrapped_title(text: str, max_chars: int = 78) -> alt.TitleParams:
    """A title in lines of at most so many signs."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > max_chars:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return alt.TitleParams(text=[isolate_direction(line) for line in lines])
