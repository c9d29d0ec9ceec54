"""Curves that grow while a study trains: of a figure only its points are made again, and once for all viewers.

Drawing a figure anew costs a tenth of a second, its points a hundredth; the browser has the rest of the figure, moves
its axes where points pass them, and asks for all of it now and then.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from seedbed.charts.chart_kinds import CHART_KINDS
from seedbed.charts.line_chart import line_datasets
from seedbed.charts.line_data import LineChart
from seedbed.errors import SeedbedError
from seedbed.web.store_cache import StoreCache
from seedbed.web.view_params import ViewParams, get_figure_specs, get_runs

FULL_RATE_EVENT_BYTES: Final = 200_000  # bytes of an event; one of n times as many is sent every n-th time
MAX_LIVE_FIGURES: Final = 4  # that a viewer follows at a time
MAX_CACHED_EVENTS: Final = 200

EventKey: TypeAlias = tuple[str, ViewParams, int]


def parse_figure_numbers(text: str) -> tuple[int, ...]:
    """Numbers of figures, as in `1,2`; what is none is left out."""
    return tuple(int(part) for part in text.split(",") if part.isdecimal() and len(part) < 4)[:MAX_LIVE_FIGURES]


@dataclass
class LiveFigures:
    """Events with the points of figures, made once for each version of a study."""

    lab: StoreCache
    _tasks: dict[EventKey, tuple[int, asyncio.Task[str]]] = field(default_factory=dict)

    async def events(self, study: str, chosen: ViewParams, numbers: Sequence[int], version: int) -> list[str]:
        """What there is to send to a viewer who looks at these figures."""
        found = [await self._get_event((study, chosen, number), version) for number in numbers]
        return [text for text in found if text and version % (1 + len(text) // FULL_RATE_EVENT_BYTES) == 0]

    async def _get_event(self, key: EventKey, version: int) -> str:
        known = self._tasks.get(key)
        if known is None or known[0] != version:
            if len(self._tasks) >= MAX_CACHED_EVENTS:
                self._tasks.clear()
            known = version, asyncio.create_task(asyncio.to_thread(_format_rows_event, self.lab, *key))
            self._tasks[key] = known
        return await asyncio.shield(known[1])


def _format_rows_event(lab: StoreCache, study: str, chosen: ViewParams, number: int) -> str:
    """The points of one figure as an event; nothing where it has none, or the study is gone."""
    try:
        known = get_figure_specs(lab, study, chosen)
        figure = known[number - 1] if 1 <= number <= len(known) else None
        gathered = figure and CHART_KINDS[figure.kind].gather(figure, get_runs(lab, study, chosen))
    except SeedbedError:
        return ""
    if not isinstance(gathered, LineChart) or gathered.is_empty:
        return ""
    return f"event: rows\ndata: {json.dumps({'number': number, **line_datasets(gathered)})}\n\n"
