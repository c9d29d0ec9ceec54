"""Charts as Vega-Lite specs: data as CSV text, axes with round ticks, and panels that follow the width of a page.

CSV is much faster to build and to validate than JSON rows.

    spec = to_vega_lite(chart, LIGHT_THEME)
    spec = fit_width(spec, 312)         # a column of a paper; `fit_width.js` does the same in a browser
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor, isfinite, log
from typing import Any, Final, Literal, TypeAlias

import altair as alt
import numpy as np

from seedbed.charts.axis_labels import isolate_direction
from seedbed.charts.theme import PAPER_THEME, Theme, vega_config
from seedbed.settings import Value

ColumnType: TypeAlias = Literal["number", "string"]
HOVER_STYLE: Final = "hover"  # marks that exist only for tooltips
CHARACTER_PIXELS: Final = 6.2  # mean width of a letter at the size of labels
MIN_PANEL_PIXELS: Final = 150
MAX_PANEL_GROWTH: Final = 1.7
NARROW_PIXELS: Final = 560  # below which legends stand at the bottom
TITLED_ROW_PIXELS: Final = 72  # between rows of panels, where each has its title and its axis' title
PAPER_POINTS: Final = (234, 504)  # 3.25 and 7 inches: the widths of a column and of a page with two
PAPER_ASPECT: Final = 0.75  # height of a panel by its width, at most
MIN_PAPER_PANEL: Final = 110


def to_vega_lite(chart: Any, theme: Theme | None = None) -> dict[str, Any]:
    """The chart, which is one of Altair's or already a spec, as a Vega-Lite spec with this theme or none."""
    spec = dict(chart) if isinstance(chart, Mapping) else chart.to_dict(validate=False)  # validated in the tests
    spec.pop("$schema", None)  # a URL, useless offline
    spec.pop("config", None)
    return spec if theme is None else spec | {"config": vega_config(theme)}


def as_altair(chart: Any) -> Any:
    """What a chart kind has drawn as a chart of Altair's, which notebooks show and which saves itself."""
    return alt.Chart.from_dict(dict(chart)) if isinstance(chart, Mapping) else chart


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
    return named_csv(columns, name), {name: text.getvalue()}


def named_csv(columns: Mapping[str, ColumnType], name: str) -> alt.NamedData:
    """The reference to a dataset of this name, which is CSV."""
    return alt.NamedData(name=name, format=alt.DataFormat(type="csv", parse=dict(columns)))


def _csv_value(value: Value) -> Value:
    """Numbers with six digits; empty if not finite."""
    if isinstance(value, float | np.floating):
        return f"{value:.6g}" if isfinite(value) else ""
    return "" if value is None else value


def csv_cells(values: Iterable[Value]) -> list[str]:
    """Values as they stand between the commas of a row."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\0").writerows([_csv_value(value)] for value in values)
    return ["" if cell == '""' else cell for cell in text.getvalue().split("\0")[:-1]]


def csv_numbers(values: np.ndarray) -> list[str]:
    """Many numbers as cells, faster than `csv_cells`."""
    texts = ("%.6g " * len(values) % tuple(values.tolist())).split()
    return texts if np.isfinite(values).all() else ["" if text[-1] in "nf" else text for text in texts]


def inline_chart(rows: Sequence[Mapping[str, Value]]) -> alt.Chart:
    """A chart of a few rows of its own, such as a line at zero."""
    return alt.Chart(alt.Data(values=list(rows)))


def number_tooltip(field: str, title: str | None = None) -> alt.Tooltip:
    """A number with four significant digits, never as a power of ten: 2,500 instead of 2.5e+03."""
    return alt.Tooltip(f"{field}:Q", format=",.4~r", title=title or field)


def wrapped_title(text: str, max_chars: int = 78) -> alt.TitleParams:
    """A title wrapped to lines of about `max_chars` characters."""
    return alt.TitleParams(text=[isolate_direction(line) for line in wrap_words(text, max_chars)])


def wrap_words(text: str, max_chars: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) >= max_chars:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


# ---- widths ----


def panel_grid(
    panels: Sequence[Any],
    columns: int,
    title: str,
    datasets: Mapping[str, str],
    side_pixels: float = 0,
    axis_pixels: float = 60,
    titles: Sequence[tuple[str, Any, Any]] = (),
    keep_height: bool = False,
    **options: Any,
) -> alt.ConcatChart:
    """Panels in a grid, with what `fit_width` needs: see `room_beside_panels`."""
    chart = alt.concat(*panels, columns=columns, title=wrapped_title(title), datasets=dict(datasets), **options)
    chart.usermeta = room_beside_panels(columns, side_pixels, axis_pixels, titles, keep_height)
    return chart


def room_beside_panels(
    columns: int,
    side_pixels: float,
    axis_pixels: float,
    titles: Sequence[tuple[str, Any, Any]] = (),
    keep_height: bool = False,
    keep_side: bool = False,
) -> dict[str, Any]:
    """What `fit_width` needs, as `usermeta` of a spec: room for the legend and for each y axis.

    `titles` are each panel's title and axis titles, for a page so narrow that panels no longer share them.
    `keep_side`: what stands at the side are names of lines, which do not move below the panels as a legend does.
    """
    fit = {"columns": columns, "side": round(side_pixels), "axis": round(axis_pixels), "keep_side": keep_side}
    return {"fit": fit | {"titles": [list(one) for one in titles], "keep_height": keep_height}}


def legend_pixels(title: str | None, labels: Iterable[str]) -> float:
    """About how wide a legend of these labels at the side is."""
    return 40 + CHARACTER_PIXELS * max([len(title or ""), *(len(label) + 4 for label in labels)])


def fit_width(spec: Mapping[str, Any], width: float, min_panel: float = MIN_PANEL_PIXELS) -> dict[str, Any]:
    """The spec with panels so wide, and so many in a row, that it fits; legends at the bottom where narrow."""
    if not (fit := spec.get("usermeta", {}).get("fit")):
        return dict(spec)
    columns, config = fit["columns"], spec.get("config", {})
    while columns > 1 and width / columns - fit["axis"] < min_panel:
        columns -= 1 + (columns == 4)  # four become two rows of two
    side = fit["side"] if fit["keep_side"] or (width >= NARROW_PIXELS and columns == fit["columns"]) else 0
    if not fit["keep_side"] and (width - side) / columns - fit["axis"] < min_panel:
        side = 0
    titles = fit["titles"] if columns < fit["columns"] else ()
    room = max(min_panel, (width - side) / columns - fit["axis"])
    panels = [_resize_panel(panel, room, titles and titles[index]) for index, panel in enumerate(spec["concat"])]
    if not side:
        legend_columns = int(min(max(width // max(fit["side"], 1), 1), 3))
        below = {"orient": "bottom", "gradientLength": 120, "columns": legend_columns}
        config = config | {"legend": config.get("legend", {}) | below}
        panels = _with_legends_below(
            panels, min(fit["columns"], len(panels)) - 1, (len(panels) - 1) // columns * columns
        )
    kept = {name: value for name, value in spec.items() if name != "title" or width >= NARROW_PIXELS}
    if titles and spec.get("bounds") == "flush":  # else axes and titles have their own room
        kept["spacing"] = spec["spacing"] | {"row": max(spec["spacing"]["row"], TITLED_ROW_PIXELS)}
    return {**kept, "config": config, "columns": columns, "concat": panels}


def _resize_panel(panel: Mapping[str, Any], room: float, titles: Sequence[Any]) -> dict[str, Any]:
    resized = {**panel, "width": round(min(room, MAX_PANEL_GROWTH * panel["width"]))}
    for axis, title in zip("xy", titles[1:], strict=False):
        layers = [_with_axis_title(layer, axis, title) for layer in resized.get("layer", ())]
        resized |= {"layer": layers} if layers else {}
    return resized | ({"title": {**dict(panel.get("title") or {}), "text": titles[0]}} if titles else {})


def _with_legends_below(panels: Sequence[Mapping[str, Any]], source: int, target: int) -> list[dict[str, Any]]:
    """The panels with the legends of one moved to another, the first of the last row."""
    moved = {
        (layer["mark"]["type"], channel): encoding["legend"]
        for layer in panels[source].get("layer", ()) for channel, encoding in layer.get("encoding", {}).items()
        if isinstance(encoding, dict) and encoding.get("legend")
    }  # fmt: skip

    def relabel(layer: Mapping[str, Any], index: int) -> dict[str, Any]:
        legends = {name: (layer["mark"]["type"], name) for name in layer.get("encoding", {})}
        changed = {
            name: {**layer["encoding"][name], "legend": moved[key] if index == target else None}
            for name, key in legends.items() if key in moved and "legend" in layer["encoding"][name]
        }  # fmt: skip
        return {**layer, "encoding": {**layer.get("encoding", {}), **changed}}

    shown = (source, target) if source != target else ()
    return [
        {**panel, "layer": [relabel(layer, index) for layer in panel["layer"]]} if index in shown else dict(panel)
        for index, panel in enumerate(panels)
    ]


def paper_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec for print: as wide as a column, or as both columns for several panels, and with no title."""
    n_columns = spec.get("usermeta", {}).get("fit", {}).get("columns", 1)
    spec = {**spec, "config": vega_config(PAPER_THEME)}
    fitted = fit_width(spec, PAPER_POINTS[n_columns > 1], MIN_PAPER_PANEL)
    if "usermeta" in spec:
        keep_height = fitted["usermeta"]["fit"]["keep_height"]
        fitted["concat"] = [_paper_panel(panel, keep_height) for panel in fitted["concat"]]
    return {name: value for name, value in fitted.items() if name != "title"}


def _paper_panel(panel: Mapping[str, Any], keep_height: bool) -> dict[str, Any]:
    """The panel with the small text of print, and not taller than wide."""
    size = PAPER_THEME.font_pixels
    layers = [
        {**layer, "mark": {**layer["mark"], "fontSize": size}} if layer["mark"]["type"] == "text" else layer
        for layer in panel["layer"]
    ]
    height = panel["height"] if keep_height else min(panel["height"], round(PAPER_ASPECT * panel["width"]))
    title = panel.get("title") or {}
    title = {**(title if isinstance(title, dict) else {"text": title}), "fontSize": size + 1}
    return {**panel, "layer": layers, "height": height, "title": title}


def _with_axis_title(layer: Mapping[str, Any], axis: str, title: str) -> dict[str, Any]:
    encoding = layer.get("encoding", {})
    if "axis" not in encoding.get(axis, {}):
        return dict(layer)
    return {**layer, "encoding": {**encoding, axis: {**encoding[axis], "title": title}}}


# ---- axes and scales ----


def build_axis(
    domain: tuple[float, float], scale: str | None, values: Sequence[float] | None = None, grid: bool = True
) -> alt.Axis:
    """An axis with ticks at these values, or at round numbers."""
    if values is None and scale in ("log", "log2"):
        values = log_ticks(*domain, 2 if scale == "log2" else 10)
    is_wide = domain[0] < 1e-2 or (domain[0] < 1 and domain[1] >= 10_000)  # 10m is no word for 0.01
    number_format = "~e" if scale == "log" and is_wide else tick_format(domain)
    return alt.Axis(format=number_format, values=values or alt.Undefined, tickCount=5, grid=grid)


def readable_ticks(
    values: Sequence[float], domain: tuple[float, float], scale: str | None, pixels: float
) -> list[float] | None:
    """The values themselves as ticks if they are few, short and apart; else None: round numbers are better ticks."""
    distinct = sorted(set(values))
    if not 1 <= len(distinct) <= 10 or not all(is_short(value) for value in distinct):
        return None
    low, high = (log(end) if scale in ("log", "log2") else end for end in domain)
    at = [(log(value) if scale in ("log", "log2") else value) - low for value in distinct]
    scaled = [pixels * one / ((high - low) or 1) for one in at]
    needed = [CHARACTER_PIXELS * (len(f"{value:g}") + 1) for value in distinct]
    is_apart = all(b - a >= (m + n) / 2 for a, b, m, n in zip(scaled, scaled[1:], needed, needed[1:], strict=False))
    return distinct if is_apart else None


def is_short(value: float) -> bool:
    """8, 0.35, 1024 or 20,000, but not 1232 or 17,168."""
    is_power_of_two = value == int(value) and int(value) & (int(value) - 1) == 0
    return float(f"{value:.2g}") == value or (abs(value) < 1000 and float(f"{value:.3g}") == value) or is_power_of_two


def log_ticks(low: float, high: float, base: int) -> list[float]:
    """Powers of the base; 2 and 5 as well over less than three decades; linear ticks if fewer than three remain.

    >>> log_ticks(0.0005, 3.0, 10), log_ticks(8, 512, 2), log_ticks(1.2, 2.9, 10)
    ([0.001, 0.01, 0.1, 1.0], [8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0], [1.5, 2.0, 2.5])
    """
    powers = range(floor(log(low, base)), ceil(log(high, base)) + 1)
    factors = (1, 2, 5) if base == 10 and high < 1000 * low else (1,)
    ticks = [factor * float(base) ** power for power in powers[:: max(1, len(powers) // 8)] for factor in factors]
    visible = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
    return visible if len(visible) >= 3 else linear_ticks(low, high)


def linear_ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 4
    size = 10.0 ** floor(log(rough, 10))
    step = size * next((factor for factor in (1, 2, 5) if factor * size >= rough), 10)
    return [round(step * index, 12) for index in range(ceil(low / step), floor(high / step) + 1)]


def tick_format(domain: tuple[float, float]) -> str:
    return "~s" if domain[1] >= 10_000 else ".12~g"


def compute_domain(numbers: Sequence[float], scale: str | None) -> tuple[float, float]:
    """From the smallest to the largest; a single value gets a margin on both sides."""
    if not numbers:
        return (1.0, 10.0) if scale in ("log", "log2") else (0.0, 1.0)
    low, high = min(numbers), max(numbers)
    if low < high:
        return low, high
    if scale in ("log", "log2"):
        return low / 2, high * 2
    margin = 0.1 * (abs(low) or 1)
    return low - margin, high + margin


def build_scale(kind: str | None, domain: tuple[float, float], nice: bool, padding: int = 8) -> alt.Scale:
    if kind in ("log", "log2"):
        return alt.Scale(type="log", base=2 if kind == "log2" else 10, domain=list(domain), nice=False, padding=padding)
    return alt.Scale(domain=list(domain), nice=nice, zero=False, padding=0 if nice else padding)


def category_scale(categories: Sequence[str], symbols: Sequence[Any], shift: bool = False) -> alt.Scale:
    """One symbol per category; with `shift` each further cycle starts one later, so colour and symbol pair anew."""
    n = len(symbols)
    return alt.Scale(
        domain=list(categories), range=[symbols[(i + (i // n if shift else 0)) % n] for i in range(len(categories))]
    )
