"""How charts look on paper and in the dark: colours that the colour-blind tell apart, dashes and shapes for grey.

A look is a Vega-Lite `config` and nothing else, so one spec serves both and a page can change its mind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

# Okabe & Ito, "Color Universal Design" (2008), ordered so that neighbours differ in lightness; black is left to text.
CATEGORIES: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8A8A8A", "#B8AB00")
DASHES: Final = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3), (4, 2), (1, 3), (10, 4), (6, 2, 2, 2, 2, 2))
SHAPES: Final = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "stroke")

# Viridis without the end that the background swallows (yellow on white, violet on black).
_VIRIDIS_ON_WHITE: Final = (
    "#440154", "#482878", "#3e4a89", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6dcd59", "#b0d22f"
)  # fmt: skip
_VIRIDIS_ON_BLACK: Final = (
    "#4f5fa8", "#3f7fa3", "#2f939b", "#27a68a", "#3dba76", "#6dcd59", "#b0d92f", "#e2e418", "#fdf08a"
)  # fmt: skip
# One weight only: of two fonts in one PDF the renderer writes either first, and equal charts would be unequal files.
FONT: Final = "Liberation Sans, Arial, Helvetica, sans-serif"  # the first is what the renderer carries


@dataclass(frozen=True)
class Look:
    """One theme: the colour of text, of what is less than text, of grid lines, of the background, and of numbers."""

    name: str
    ink: str
    faint: str
    grid: str
    background: str
    ramp: tuple[str, ...]


LIGHT: Final = Look("light", "#1c1e21", "#5c6066", "#e6e7e9", "#ffffff", _VIRIDIS_ON_WHITE)
DARK: Final = Look("dark", "#e8e9eb", "#a3a8af", "#33373d", "#16181c", _VIRIDIS_ON_BLACK)
LOOKS: Final = {look.name: look for look in (LIGHT, DARK)}


def config_of(look: Look) -> dict[str, Any]:
    """The look as Vega-Lite reads it."""
    text = {"labelColor": look.faint, "titleColor": look.ink, "labelFontSize": 11, "titleFontSize": 12}
    text |= {"titleFontWeight": "normal"}
    quiet = {"gridColor": look.grid, "domainColor": look.faint, "tickColor": look.faint}
    return {
        "font": FONT,
        "background": look.background,
        "padding": 12,
        "view": {"stroke": None},
        "axis": text | quiet | {"titlePadding": 8, "labelOverlap": "greedy", "labelLimit": 160},
        "legend": text | {"titleLimit": 260, "labelLimit": 320, "gradientLength": 140, "symbolSize": 120},
        "title": {"color": look.ink, "fontSize": 15, "fontWeight": "normal", "anchor": "start", "offset": 12},
        "text": {"color": look.ink},
        "rule": {"color": look.faint},
        "point": {"color": look.ink},
        "style": {"halo": {"stroke": look.background, "strokeWidth": 4, "strokeJoin": "round"}},
        "range": {"category": list(CATEGORIES), "ramp": list(look.ramp), "heatmap": list(look.ramp)},
    }
