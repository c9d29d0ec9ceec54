"""Every chart kind of a study file with the two functions that make it; a new kind is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from seedbed.charts.against import draw_against, gather_against
from seedbed.charts.attention import draw_attention
from seedbed.charts.bars import draw_bars, gather_bars
from seedbed.charts.circle import draw_circle, gather_circle
from seedbed.charts.curves import draw_curves, gather_curves
from seedbed.charts.level import draw_level, gather_level
from seedbed.charts.maps import gather_maps
from seedbed.charts.parallel import draw_parallel, gather_parallel
from seedbed.measures.summary import RunCurves
from seedbed.shown import Figure


@dataclass(frozen=True)
class Kind:
    """Gathers plain numbers from runs, and draws them."""

    gather: Callable[[Figure, Sequence[RunCurves]], Any]
    draw: Callable[[Any], Any]


CATALOGUE: Final[dict[str, Kind]] = {
    "curves": Kind(gather_curves, draw_curves),
    "against": Kind(gather_against, draw_against),
    "bars": Kind(gather_bars, draw_bars),
    "level": Kind(gather_level, draw_level),
    "parallel": Kind(gather_parallel, draw_parallel),
    "attention": Kind(gather_maps, draw_attention),
    "circle": Kind(gather_circle, draw_circle),
}
