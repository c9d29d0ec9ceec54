"""Charts in a notebook: the attention of a loaded run as HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seedbed.charts.attention_maps import draw_attention, gather_attention
from seedbed.charts.render import to_svg
from seedbed.charts.theme import LIGHT_THEME
from seedbed.charts.vega_lite import to_vega_lite

if TYPE_CHECKING:
    from seedbed.sampling.loaded_run import LoadedRun, TextOrIds


def attention_html(loaded: LoadedRun, given: TextOrIds) -> str:
    """The attention maps of all layers and heads, on a white background that suits light and dark notebooks."""
    from seedbed.interp.attention_extraction import compute_attention

    svg = to_svg(to_vega_lite(draw_attention(gather_attention([compute_attention(loaded, given)])), LIGHT_THEME))
    return f'<div style="background: #fff; display: inline-block; padding: 8px; overflow-x: auto">{svg}</div>'
