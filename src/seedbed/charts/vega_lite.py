"""Charts as Vega-Lite specs; data as CSV text, which is much faster to build and to validate than JSON rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, Final, Literal, TypeAlias

import altair as alt
import numpy as np

from seedbed.charts.axis_labels import isolate_direction
from seedbed.charts.theme import Theme, vega_config
from seedbed.settings import Value

ColumnType: TypeAlias = Literal["number", "string"]
HOVER_STYLE: Final = "hover"  # marks that exist only for tooltips


def to_vega_lite(chart: Any, theme: Theme | None = None) -> dict[str, Any]:
    """The chart as a Vega-Lite spec, with this theme or none."""
    spec: dict[str, Any] = chart.to_dict(validate=False)  # every kind is validated in the tests
    spec.pop("$schema", None)  # a URL, useless offline
    spec.pop("config", None)
    return spec if theme is None else spec | {"config": vega_config(theme)}


def without_interaction(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec for static output: without tooltip marks and zoom, and without the clipping that zoom needs.

    The data already lies within the axes, and clipping each line takes the SVG renderer seconds.
    """
    static = {name: value for name, value in spec.items() if name != "params"}
    if "mark" in static:
        static["mark"] = {name: value for name, value in static["mark"].items() if name != "clip"}
    for name in ("concat", "layer"):
        if name in static:
            static[name] = [
                without_interaction(inner)
                for inner in static[name]
                if inner.get("mark", {}).get("style") != HOVER_STYLE
            ]
    return static


def csv_dataset(
    columns: Mapping[str, ColumnType], rows: Iterable[Sequence[Value]], name: str = "rows"
) -> tuple[alt.NamedData, dict[str, str]]:
    """Rows as CSV: the named data that marks refer to, and the `datasets` entry that holds it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_csv_value(value) for value in row] for row in rows)
    data_format = alt.DataFormat(type="csv", parse=dict(columns))
    return alt.NamedData(name=name, format=data_format), {name: text.getvalue()}


def _csv_value(value: Value) -> Value:
    """Numbers with six digits; empty if not finite."""
    if isinstance(value, float | np.floating):
        return f"{value:.6g}" if isfinite(value) else ""
    return "" if value is None else value


def wrapped_title(text: str, max_chars: int = 78) -> alt.TitleParams:
    """A title wrapped to lines of about `max_chars` characters."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > max_chars:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return alt.TitleParams(text=[isolate_direction(line) for line in lines])
