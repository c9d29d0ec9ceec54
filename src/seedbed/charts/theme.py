"""Chart themes, light and dark: colour-blind safe colours, with dashes and shapes for print in grey.

A theme is only a Vega-Lite `config`, so that one spec serves both themes and a page can switch between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

# Okabe & Ito, "Color Universal Design" (2008), ordered so that neighbours differ in lightness; black is left to text.
CATEGORY_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8A8A8A", "#B8AB00")
DASH_PATTERNS: Final = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3), (4, 2), (1, 3), (10, 4), (6, 2, 2, 2, 2, 2))
MARKER_SHAPES: Final = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "cross",
    "triangle-down",
    "triangle-right",
    "stroke",
)

# Viridis without the end that has no contrast to the background (yellow on white, violet on black).
_VIRIDIS_ON_WHITE: Final = (
    "#440154", "#482878", "#3e4a89", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6dcd59", "#b0d22f"
)  # fmt: skip
_VIRIDIS_ON_BLACK: Final = (
    "#4f5fa8", "#3f7fa3", "#2f939b", "#27a68a", "#3dba76", "#6dcd59", "#b0d92f", "#e2e418", "#fdf08a"
)  # fmt: skip
# A few numbers, in order: steps of viridis would look too much alike in thin lines.
_STEPS_ON_WHITE: Final = ("#45318f", "#1f78b4", "#0f9d8a", "#7fa51f", "#d99a00", "#d4531c", "#97194f")
_STEPS_ON_BLACK: Final = ("#9a90ff", "#56b4e9", "#2fc4ad", "#a5d14b", "#f2c14e", "#f2854e", "#e5649e")
# One weight only: the renderer writes two fonts to a PDF in random order, and equal charts would give unequal files.
FONT: Final = "Liberation Sans, Arial, Helvetica, sans-serif"  # the first is bundled with the renderer


@dataclass(frozen=True)
class Theme:
    """One theme: the colours of text, tick labels and axes, grid, background, and colours of many or few numbers."""

    name: str
    text_colour: str
    secondary_colour: str
    grid_colour: str
    background_colour: str
    colour_ramp: tuple[str, ...]
    step_colours: tuple[str, ...]
    font_pixels: int = 11  # of labels


LIGHT_THEME: Final = Theme("light", "#1c1e21", "#5c6066", "#e6e7e9", "#ffffff", _VIRIDIS_ON_WHITE, _STEPS_ON_WHITE)
DARK_THEME: Final = Theme("dark", "#e8e9eb", "#a3a8af", "#33373d", "#16181c", _VIRIDIS_ON_BLACK, _STEPS_ON_BLACK)
PAPER_THEME: Final = Theme("paper", "#000000", "#222222", "#e2e2e2", "#ffffff", _VIRIDIS_ON_WHITE, _STEPS_ON_WHITE, 7)
THEMES: Final = {theme.name: theme for theme in (LIGHT_THEME, DARK_THEME)}


def vega_config(theme: Theme) -> dict[str, Any]:
    """The theme as a Vega-Lite config."""
    text = {
        "labelColor": theme.secondary_colour,
        "titleColor": theme.text_colour,
        "labelFontSize": theme.font_pixels,
        "titleFontSize": theme.font_pixels + 1,
    }
    text |= {"titleFontWeight": "normal"}
    lines = {"gridColor": theme.grid_colour, "domainColor": theme.secondary_colour, "tickColor": theme.secondary_colour}
    return {
        "font": FONT,
        "background": theme.background_colour,
        "padding": 12 if theme.font_pixels > 10 else 2,
        "view": {"stroke": None},
        "axis": text | lines | {"titlePadding": 8, "labelOverlap": "greedy", "labelLimit": 160},
        "legend": text | {"titleLimit": 260, "labelLimit": 320, "gradientLength": 140, "symbolSize": 120},
        "title": {"color": theme.text_colour, "fontSize": 15, "fontWeight": "normal", "anchor": "start", "offset": 12},
        "text": {"color": theme.text_colour},
        "rule": {"color": theme.secondary_colour},
        "point": {"color": theme.text_colour},
        "style": {"halo": {"stroke": theme.background_colour, "strokeWidth": 4, "strokeJoin": "round"}},
        "range": {
            "category": list(CATEGORY_COLOURS),
            "ramp": list(theme.colour_ramp),
            "ordinal": {"scheme": list(theme.step_colours)},
            "heatmap": list(theme.colour_ramp),
        },
    }
