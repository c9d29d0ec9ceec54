"""Attention maps as a grid of layers × heads: who looks (rows) at whom (columns), on one scale from 0 to 1.

    drawing = gather_attention([attention_of(model, "12 + 8 = 20")])
    spec = spec_of(draw_attention(drawing), LIGHT)

Several maps (samples, checkpoints, runs) stand under each other. A right-to-left text reads so: its first token is at
the right, and so are the names of the rows. Cells are placed by number and named by a look-up, so that letters that
come twice keep cells of their own. `preview_attention` is the same in a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from seedbed.charts.labels import isolate_direction
from seedbed.errors import UsageError
from seedbed.interp.text_attention import Floats, TextAttention, is_right_to_left

if TYPE_CHECKING:
    import altair as alt

MAX_CELLS: Final = 200_000  # rectangles that a picture may hold
MIN_MAX_MAP_PIXELS: Final = (130, 340)  # pixels of a map, at least and at most
CELL_PIXELS: Final = 17  # pixels, where there is room
COLOUR_RANGE: Final = ("rgba(21,101,176,0.05)", "rgba(21,101,176,1)")  # into the background, be it light or dark
MIN_VISIBLE_WEIGHT: Final = 5e-7  # less than this is not drawn: what a mask hides is exactly 0
TEXT_SHADES: Final = " ·░▒▓█"
MAX_NUMERIC_TOKENS: Final = 16  # tokens; maps of more are shaded in a terminal
LEFT_TO_RIGHT_MARK: Final = "\u200e"
COLUMNS: Final[dict[str, Any]] = {"map": "number", "query": "number", "source": "number", "weight": "number"}


@dataclass(frozen=True)
class MapPanel:
    """One map: of which grid, layer and head."""

    title: str
    grid_index: int
    weights: Floats  # (T, S)


@dataclass(frozen=True)
class MapGrid:
    """The maps of one text by one run at one step."""

    title: str
    labels: tuple[str, ...]
    right_to_left: bool
    n_columns: int


@dataclass(frozen=True)
class AttentionMaps:
    """A chart of attention maps, gathered."""

    title: str
    scale_title: str
    grids: tuple[MapGrid, ...]
    panels: tuple[MapPanel, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.panels


def gather_attention(all_maps: Sequence[TextAttention]) -> AttentionMaps:
    """The grids of these maps in their order, each named by what tells it from the others."""
    title = ("Attention" if all_maps[0].kind == "attention" else "Input gradients") + f" of run {all_maps[0].run}"
    return build_attention_maps(title, all_maps, [_grid_title(maps, all_maps) for maps in all_maps])


def build_attention_maps(
    title: str, all_maps: Sequence[TextAttention], grid_titles: Sequence[str], notes: tuple[str, ...] = ()
) -> AttentionMaps:
    """These maps, each under a name of its own."""
    kinds = list(dict.fromkeys(maps.kind for maps in all_maps))
    pairs = zip(all_maps, grid_titles, strict=True)
    return AttentionMaps(
        title=title,
        scale_title=" or ".join("attention weight" if kind == "attention" else f"share of {kind}" for kind in kinds),
        grids=tuple(MapGrid(name, maps.labels, maps.right_to_left, len(maps.heads)) for maps, name in pairs),
        panels=tuple(panel for place, maps in enumerate(all_maps) for panel in _map_panels(place, maps)),
        notes=notes,
    )


def _grid_title(maps: TextAttention, all_maps: Sequence[TextAttention]) -> str:
    """The text with its own direction, the step, and the run where there are several."""
    text = isolate_mixed_direction(shorten(maps.text, 100, placeholder=" …"))
    run = f", run {maps.run}" if len({one.run for one in all_maps}) > 1 else ""
    return f"{text}, step {maps.step:,}{run}"


def isolate_mixed_direction(text: str) -> str:
    """The text as a label: isolated where it mixes directions; one direction needs no mark, and marks lack in fonts."""
    turned = [is_right_to_left(sign) for sign in text if not sign.isspace()]
    return isolate_direction(text) if any(turned) and not all(turned) else text


def _map_panels(grid_index: int, maps: TextAttention) -> Iterator[MapPanel]:
    for row, layer in enumerate(maps.layers):
        for column, head in enumerate(maps.heads):
            title = f"layer {layer + 1}, head {head + 1}" if maps.kind == "attention" else "of the likeliest next token"
            yield MapPanel(title, grid_index, maps.weights[row, column])


# ---- as a picture ----


def draw_attention(maps: AttentionMaps) -> alt.VConcatChart:
    """The gathered maps, one grid under the other, with one colour scale."""
    import altair as alt

    from seedbed.charts.vega_lite import csv_dataset

    cells = sum(panel.weights.size for panel in maps.panels)
    if cells > MAX_CELLS:
        raise UsageError(
            f"these maps have {cells:,} cells and a picture holds {MAX_CELLS:,}; choose with --layer and --head, "
            "gather with --by word, or write .json"
        )
    data, block = csv_dataset(COLUMNS, _rows(maps))
    grids = [_draw_grid(alt.Chart(data), maps, place) for place in range(len(maps.grids))]
    chart = alt.vconcat(*grids, title=maps.title, datasets=block, spacing=30)
    return chart.resolve_scale(color="shared")


def _rows(maps: AttentionMaps) -> Iterator[tuple[int, int, int, float]]:
    """One row a cell that is looked at."""
    for place, panel in enumerate(maps.panels):
        for query, source in np.argwhere(panel.weights > MIN_VISIBLE_WEIGHT):
            yield place, int(query), int(source), float(panel.weights[query, source])


def _draw_grid(base: alt.Chart, maps: AttentionMaps, grid_index: int) -> alt.ConcatChart:
    import altair as alt

    grid = maps.grids[grid_index]
    panels = [
        _draw_panel(base, maps, grid, number, panel)
        for number, panel in enumerate(maps.panels)
        if panel.grid_index == grid_index
    ]
    title = alt.TitleParams(text=grid.title, fontSize=12)
    return alt.concat(*panels, columns=grid.n_columns, title=title, spacing=18)


def _draw_panel(base: alt.Chart, maps: AttentionMaps, grid: MapGrid, panel_index: int, panel: MapPanel) -> alt.Chart:
    import altair as alt

    places = list(range(len(grid.labels)))
    names = json.dumps([isolate_mixed_direction(label) for label in grid.labels], ensure_ascii=False)
    side = min(max(MIN_MAX_MAP_PIXELS[0], CELL_PIXELS * len(places)), MIN_MAX_MAP_PIXELS[1])
    told: dict[str, Any] = {
        "labelExpr": f"{names}[datum.value]", "labelFontSize": min(11, max(5, side // len(places) - 2)),
        "labelOverlap": False, "ticks": False, "domain": False, "grid": False, "labelPadding": 3,
    }  # fmt: skip
    upright = max(map(len, grid.labels)) * 7 > side / len(places)
    turn = grid.right_to_left
    x_axis = alt.Axis(orient="bottom", labelAngle=-90 if upright else 0, **told)
    y_axis = alt.Axis(orient="right" if turn else "left", **told)
    across = alt.Scale(domain=places[::-1] if turn else places, padding=0)
    x = alt.X("source:O", title="looked at", axis=x_axis, scale=across)
    y = alt.Y("query:O", title="looking", axis=y_axis, scale=alt.Scale(domain=places, padding=0))
    colour = alt.Color(
        "weight:Q", title=maps.scale_title, scale=alt.Scale(domain=[0, 1], range=list(COLOUR_RANGE)),
        legend=alt.Legend(orient="right", tickCount=5, format=".1f"),
    )  # fmt: skip
    tips = [alt.Tooltip("weight:Q", format=".3f"), alt.Tooltip("query:O"), alt.Tooltip("source:O")]
    inside = base.transform_filter(f"datum.map == {panel_index}").mark_rect()
    chart: alt.Chart = inside.encode(x=x, y=y, color=colour, tooltip=tips)
    return chart.properties(width=side, height=side, title=alt.TitleParams(text=panel.title, fontSize=11, offset=4))


# ---- in a terminal ----


def preview_attention(maps: AttentionMaps) -> str:
    """The maps as text: hundredths where tokens are few, shades from 0 to 1 where they are many."""
    blocks = [maps.title]
    for place, grid in enumerate(maps.grids):
        blocks.append(grid.title)
        blocks += [_panel_as_text(grid, panel) for panel in maps.panels if panel.grid_index == place]
    steps = ", ".join(f"{shade!r} from {i / len(TEXT_SHADES):.2f}" for i, shade in enumerate(TEXT_SHADES))
    shaded = any(len(grid.labels) > MAX_NUMERIC_TOKENS for grid in maps.grids)
    return "\n\n".join([*blocks, f"shades: {steps}" if shaded else f"{maps.scale_title} in hundredths"])


def _panel_as_text(grid: MapGrid, panel: MapPanel) -> str:
    few = len(grid.labels) <= MAX_NUMERIC_TOKENS
    widths = [max(3, len(label)) if few else 1 for label in grid.labels]
    lines = [_text_row("", [label if few else label[:1] for label in grid.labels], widths, grid)]
    for query, label in enumerate(grid.labels):
        cells = [_weight_in_percent(weight) if few else _shade_of_weight(weight) for weight in panel.weights[query]]
        lines.append(_text_row(label, cells, widths, grid))
    return "\n".join([panel.title, *lines])


def _text_row(label: str, cells: Sequence[str], widths: Sequence[int], grid: MapGrid) -> str:
    """One row with its name before it, or after it where the text reads from the right."""
    name = max(map(len, grid.labels))
    filled = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
    gap = "" if len(grid.labels) > MAX_NUMERIC_TOKENS else " "
    if grid.right_to_left:  # a mark after each cell, or a terminal that turns Hebrew would turn the whole row
        return gap.join(f"{cell}{LEFT_TO_RIGHT_MARK}" for cell in reversed(filled)) + f"  {label}"
    return f"{label:>{name}}  {gap.join(filled)}".rstrip()


def _weight_in_percent(weight: float) -> str:
    return "" if weight <= MIN_VISIBLE_WEIGHT else f"{100 * weight:.0f}"


def _shade_of_weight(weight: float) -> str:
    return TEXT_SHADES[min(int(weight * len(TEXT_SHADES)), len(TEXT_SHADES) - 1)]
