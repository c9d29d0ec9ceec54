"""Charts in a notebook: what a loaded run's attention shows itself as."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seedbed.charts.attention import draw_attention, gather_attention
from seedbed.charts.render import to_svg
from seedbed.charts.specs import spec_of
from seedbed.charts.theme import LIGHT

if TYPE_CHECKING:
    from seedbed.generate.load import Given, Loaded


def attention_html(loaded: Loaded, given: Given) -> str:
    """The chart of all layers and heads, on paper of its own so that both themes can show it."""
    from seedbed.inside.attention import attention_of

    svg = to_svg(spec_of(draw_attention(gather_attention([attention_of(loaded, given)])), LIGHT))
    return f'<div style="background: #fff; display: inline-block; padding: 8px; overflow-x: auto">{svg}</div>'
