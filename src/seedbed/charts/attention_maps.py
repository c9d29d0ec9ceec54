"""Attention maps as a grid of layers × heads: queries as rows, keys as columns, on one colour scale from 0 to 1.

    chart = gather_attention([extract_attention(model, "12 + 8 = 20")])
    spec = to_vega_lite(draw_attention(chart), LIGHT_THEME)

Several maps (samples, checkpoints, runs) are stacked vertically. Right-to-left text is drawn from the right: its first
token is the rightmost column, and row labels are on the right. Axes are positions, with tokens as their tick labels,
so that repeated tokens keep separate cells. `preview_attention` shows the same in a terminal.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from seedbed.charts.axis_labels import isolate_direction
from seedbed.charts.panel_layout import config_label
from seedbed.errors import UsageError
from seedbed.format import format_config, join_words
from seedbed.interp.text_attention import Floats, TextAttention, is_right_to_left
from seedbed.specs import FigureSpec
from seedbed.stats.groups import filter_runs, setting_value, varying_settings
from seedbed.stats.summary import RunCurves, group_by_config

if TYPE_CHECKING:
    import altair as alt

MAX_CONFIGS: Final = 4  # with maps in one figure of a study
MAX_CELLS: Final = 200_000  # rectangles in one picture
MIN_MAX_MAP_PIXELS: Final = (130, 340)  # side of a map
CELL_PIXELS: Final = 17  # before the limits above
COLOUR_RANGE: Final = (
    "rgba(21,101,176,0.05)",
    "rgba(21,101,176,1)",
)  # transparent, so that it fades into either background
MIN_VISIBLE_WEIGHT: Final = 5e-7  # smaller weights are not drawn; masked positions are exactly 0
TEXT_SHADES: Final = " ·░▒▓█"
MAX_NUMERIC_TOKENS: Final = 16  # longer texts are shaded in a terminal
LEFT_TO_RIGHT_MARK: Final = "\u200e"
DATASET_COLUMNS: Final[dict[str, Any]] = {"map": "number", "query": "number", "source": "number", "weight": "number"}


@dataclass(frozen=True)
class MapPanel:
    """One map: the attention weights of one head."""

    title: str
    grid_index: int
    weights: Floats  # (T, S)


@dataclass(frozen=True)
class MapGrid:
    """All maps of one text in one run at one step."""

    title: str
    labels: tuple[str, ...]
    right_to_left: bool
    n_columns: int


@dataclass(frozen=True)
class AttentionMaps:
    """The data of an attention chart."""

    title: str
    scale_title: str
    grids: tuple[MapGrid, ...]
    panels: tuple[MapPanel, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.panels


def gather_attention(all_maps: Sequence[TextAttention]) -> AttentionMaps:
    """The chart of these maps, one grid each in the given order, titled by text, step and run."""
    title = ("Attention" if all_maps[0].kind == "attention" else "Input gradients") + f" of run {all_maps[0].run}"
    return build_attention_maps(title, all_maps, [_grid_title(maps, all_maps) for maps in all_maps])


def build_attention_maps(
    title: str, all_maps: Sequence[TextAttention], grid_titles: Sequence[str], notes: tuple[str, ...] = ()
) -> AttentionMaps:
    """The chart of these maps, each grid under its own title."""
    kinds = list(dict.fromkeys(maps.kind for maps in all_maps))
    pairs = zip(all_maps, grid_titles, strict=True)
    return AttentionMaps(
        title=title,
        scale_title=" or ".join("attention weight" if kind == "attention" else f"share of {kind}" for kind in kinds),
        grids=tuple(
            MapGrid(grid_title, maps.labels, maps.right_to_left, len(maps.heads)) for maps, grid_title in pairs
        ),
        panels=tuple(panel for grid_index, maps in enumerate(all_maps) for panel in _map_panels(grid_index, maps)),
        notes=notes,
    )


def _grid_title(maps: TextAttention, all_maps: Sequence[TextAttention]) -> str:
    """The text, the step, and the run if there are several."""
    run = f", run {maps.run}" if len({one.run for one in all_maps}) > 1 else ""
    return f"{_text_and_step(maps)}{run}"


def _text_and_step(maps: TextAttention) -> str:
    """The text, isolated if its directions mix, and the step."""
    return f"{isolate_mixed_direction(shorten(maps.text, 100, placeholder=' …'))}, step {maps.step:,}"


def isolate_mixed_direction(text: str) -> str:
    """The text with directional isolates if it mixes directions; others need none, and some fonts lack the glyphs."""
    right_to_left = [is_right_to_left(char) for char in text if not char.isspace()]
    return isolate_direction(text) if any(right_to_left) and not all(right_to_left) else text


def _map_panels(grid_index: int, maps: TextAttention) -> Iterator[MapPanel]:
    for row, layer in enumerate(maps.layers):
        for column, head in enumerate(maps.heads):
            head_title = f"layer {layer + 1}, head {head + 1}"
            title = head_title if maps.kind == "attention" else "gradient of the most likely next token"
            yield MapPanel(title, grid_index, maps.weights[row, column])


# ---- as a figure of a study, from the stored analyses of its runs ----


def gather_attention_figure(figure: FigureSpec, runs: Sequence[RunCurves]) -> AttentionMaps:
    """The maps of an `attention` figure, for one run per config: heads of different seeds have no common order."""
    selected = filter_runs(runs, figure.only)
    configs = [[run for run in seed_runs if _maps_of_run(figure, run)] for seed_runs in group_by_config(selected)]
    shown = [seed_runs[0] for seed_runs in configs if seed_runs][:MAX_CONFIGS]
    all_maps = [maps for run in shown if (maps := _maps_of_run(figure, run))]
    names = varying_settings([shown])
    titles = [_config_title(run, maps, names) for run, maps in zip(shown, all_maps, strict=True)]
    notes = (*_missing_notes(figure, selected), *_selection_notes(shown, sum(map(bool, configs))))
    title = figure.title or f"Attention of {isolate_mixed_direction(figure.text)}"
    return build_attention_maps(title, all_maps, titles, notes)


def attend_command(figure: FigureSpec, runs: Sequence[RunCurves]) -> str:
    """The `seedbed attend` command that reproduces an attention figure, for its first run."""
    run = next((run.run.id for run in filter_runs(runs, figure.only) if run.analyses), "RUN")
    command = ["seedbed", "attend", run, figure.text]
    for name, value in (("--layer", figure.layers), ("--head", figure.heads)):
        command += [name, ",".join(map(str, value))] if value else []
    return shlex.join([*command, *(["--by", figure.by] if figure.by != "token" else []), "--out", "attention.svg"])


def _maps_of_run(figure: FigureSpec, run: RunCurves) -> TextAttention | None:
    """The attention to the figure's text in the run's last analysis, if it has it."""
    maps = run.analyses[-1].find_attention(figure.text, figure.by) if run.analyses else None
    return maps and maps.select_available(figure.layers, figure.heads)


def _config_title(run: RunCurves, maps: TextAttention, names: Sequence[str]) -> str:
    config = format_config({name: setting_value(run, name) for name in names})
    return ", ".join(filter(None, (config, _text_and_step(maps), f"seed {run.run.seed}")))


def _selection_notes(runs: Sequence[RunCurves], n_configs: int) -> Iterator[str]:
    if runs:
        yield "One seed per config: heads of different seeds have no common order."
    if n_configs > len(runs):
        yield f"The first {len(runs)} of {n_configs} configs are shown."


def _missing_notes(figure: FigureSpec, runs: Sequence[RunCurves]) -> Iterator[str]:
    """Which configs have no maps of this text, and why."""
    by_reason: dict[str, list[str]] = {}
    for run in runs:
        reason = run.analyses[-1].attention_errors.get(figure.text) if run.analyses else None
        if reason and config_label(run) not in by_reason.setdefault(reason, []):
            by_reason[reason].append(config_label(run))
    n_configs = len(group_by_config(runs))
    for reason, configs in sorted(by_reason.items()):
        yield f"Not shown{f' for {join_words(configs)}' if len(configs) < n_configs else ''}: {reason}."
    if not any(run.analyses or run.weights_error for run in runs):
        yield "No run has been analysed yet; `seedbed analyze` does that."


# ---- as a picture ----


def draw_attention(maps: AttentionMaps) -> alt.VConcatChart:
    """The grids stacked vertically, with one shared colour scale."""
    import altair as alt

    from seedbed.charts.vega_lite import csv_dataset

    cells = sum(panel.weights.size for panel in maps.panels)
    if cells > MAX_CELLS:
        raise UsageError(
            f"these maps have {cells:,} cells and a picture holds {MAX_CELLS:,}; choose with --layer and --head, "
            "group with --by word, or write .json"
        )
    data, block = csv_dataset(DATASET_COLUMNS, _dataset_rows(maps))
    grids = [_draw_grid(alt.Chart(data), maps, grid_index) for grid_index in range(len(maps.grids))]
    chart = alt.vconcat(*grids, title=maps.title, datasets=block, spacing=30)
    return chart.resolve_scale(color="shared")


def _dataset_rows(maps: AttentionMaps) -> Iterator[tuple[int, int, int, float]]:
    """One row per visible cell."""
    for panel_index, panel in enumerate(maps.panels):
        for query, source in np.argwhere(panel.weights > MIN_VISIBLE_WEIGHT):
            yield panel_index, int(query), int(source), float(panel.weights[query, source])


def _draw_grid(base: alt.Chart, maps: AttentionMaps, grid_index: int) -> alt.ConcatChart:
    import altair as alt

    grid = maps.grids[grid_index]
    panels = [
        _draw_panel(base, maps, grid, panel_index, panel)
        for panel_index, panel in enumerate(maps.panels)
        if panel.grid_index == grid_index
    ]
    title = alt.TitleParams(text=grid.title, fontSize=12)
    return alt.concat(*panels, columns=grid.n_columns, title=title, spacing=18)


def _draw_panel(base: alt.Chart, maps: AttentionMaps, grid: MapGrid, panel_index: int, panel: MapPanel) -> alt.Chart:
    import altair as alt

    positions = list(range(len(grid.labels)))
    tick_labels = json.dumps([isolate_mixed_direction(label) for label in grid.labels], ensure_ascii=False)
    side = min(max(MIN_MAX_MAP_PIXELS[0], CELL_PIXELS * len(positions)), MIN_MAX_MAP_PIXELS[1])
    axis_options: dict[str, Any] = {
        "labelExpr": f"{tick_labels}[datum.value]", "labelFontSize": min(11, max(5, side // len(positions) - 2)),
        "labelOverlap": False, "ticks": False, "domain": False, "grid": False, "labelPadding": 3,
    }  # fmt: skip
    rotate = max(map(len, grid.labels)) * 7 > side / len(positions)
    x_axis = alt.Axis(orient="bottom", labelAngle=-90 if rotate else 0, **axis_options)
    y_axis = alt.Axis(orient="right" if grid.right_to_left else "left", **axis_options)
    x_scale = alt.Scale(domain=positions[::-1] if grid.right_to_left else positions, padding=0)
    x = alt.X("source:O", title="key", axis=x_axis, scale=x_scale)
    y = alt.Y("query:O", title="query", axis=y_axis, scale=alt.Scale(domain=positions, padding=0))
    colour = alt.Color(
        "weight:Q", title=maps.scale_title, scale=alt.Scale(domain=[0, 1], range=list(COLOUR_RANGE)),
        legend=alt.Legend(orient="right", tickCount=5, format=".1f"),
    )  # fmt: skip
    tooltip = [alt.Tooltip("weight:Q", format=".3f"), alt.Tooltip("query:O"), alt.Tooltip("source:O")]
    cells = base.transform_filter(f"datum.map == {panel_index}").mark_rect()
    chart: alt.Chart = cells.encode(x=x, y=y, color=colour, tooltip=tooltip)
    return chart.properties(width=side, height=side, title=alt.TitleParams(text=panel.title, fontSize=11, offset=4))


# ---- in a terminal ----


def preview_attention(maps: AttentionMaps) -> str:
    """The maps as text: weights in percent for short texts, shades for long ones."""
    blocks = []
    for grid_index, grid in enumerate(maps.grids):
        blocks.append(grid.title)
        blocks += [_panel_as_text(grid, panel) for panel in maps.panels if panel.grid_index == grid_index]
    levels = ", ".join(f"{shade!r} from {i / len(TEXT_SHADES):.2f}" for i, shade in enumerate(TEXT_SHADES))
    shaded = any(len(grid.labels) > MAX_NUMERIC_TOKENS for grid in maps.grids)
    return "\n\n".join([*blocks, f"shades: {levels}" if shaded else f"{maps.scale_title} in %"])


def _panel_as_text(grid: MapGrid, panel: MapPanel) -> str:
    numeric = len(grid.labels) <= MAX_NUMERIC_TOKENS
    widths = [max(3, len(label)) if numeric else 1 for label in grid.labels]
    lines = [_text_row("", [label if numeric else label[:1] for label in grid.labels], widths, grid)]
    for query, label in enumerate(grid.labels):
        cells = [_weight_in_percent(weight) if numeric else _shade_of_weight(weight) for weight in panel.weights[query]]
        lines.append(_text_row(label, cells, widths, grid))
    return "\n".join([panel.title, *lines])


def _text_row(label: str, cells: Sequence[str], widths: Sequence[int], grid: MapGrid) -> str:
    """One row, labelled at its start: at the right if the text reads from the right."""
    label_width = max(map(len, grid.labels))
    padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
    gap = "" if len(grid.labels) > MAX_NUMERIC_TOKENS else " "
    if grid.right_to_left:  # a mark after each cell keeps a bidi terminal from reversing the whole row
        return gap.join(f"{cell}{LEFT_TO_RIGHT_MARK}" for cell in reversed(padded)) + f"  {label}"
    return f"{label:>{label_width}}  {gap.join(padded)}".rstrip()


def _weight_in_percent(weight: float) -> str:
    return "" if weight <= MIN_VISIBLE_WEIGHT else f"{100 * weight:.0f}"


def _shade_of_weight(weight: float) -> str:
    return TEXT_SHADES[min(int(weight * len(TEXT_SHADES)), len(TEXT_SHADES) - 1)]
