"""Live figures: while a study trains, only a figure's data rows are sent again, computed once for all viewers.

Rendering a whole figure takes about 0.1 s, its rows 0.01 s. The browser keeps the rest of the figure, extends the axes
where new rows exceed them, and requests the whole figure now and then.
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

FULL_RATE_EVENT_BYTES: Final = 200_000  # an event n times as large is sent only every n-th time
MAX_LIVE_FIGURES: Final = 4  # per viewer
MAX_CACHED_EVENTS: Final = 200

EventKey: TypeAlias = tuple[str, ViewParams, int]


def parse_figure_numbers(text: str) -> tuple[int, ...]:
    """Figure numbers from text such as `1,2`; anything else in it is ignored."""
    return tuple(int(part) for part in text.split(",") if part.isdecimal() and len(part) < 4)[:MAX_LIVE_FIGURES]


@dataclass
class LiveFigures:
    """Server-sent events with the rows of figures, computed once per version of a study."""

    cache: StoreCache
    _tasks: dict[EventKey, tuple[int, asyncio.Task[str]]] = field(default_factory=dict)

    async def events(self, study: str, params: ViewParams, numbers: Sequence[int], version: int) -> list[str]:
        """The events for a viewer who has these figures on the screen."""
        events = [await self._get_event((study, params, number), version) for number in numbers]
        return [text for text in events if text and version % (1 + len(text) // FULL_RATE_EVENT_BYTES) == 0]

    async def _get_event(self, key: EventKey, version: int) -> str:
        entry = self._tasks.get(key)
        if entry is None or entry[0] != version:
            if len(self._tasks) >= MAX_CACHED_EVENTS:
                self._tasks.clear()
            entry = version, asyncio.create_task(asyncio.to_thread(_format_rows_event, self.cache, *key))
            self._tasks[key] = entry
        return await asyncio.shield(entry[1])  # one viewer leaving must not cancel it for the others


def _format_rows_event(cache: StoreCache, study: str, params: ViewParams, number: int) -> str:
    """The rows of one figure as an event; empty for a figure without lines or a study that was removed."""
    try:
        specs = get_figure_specs(cache, study, params)
        figure = specs[number - 1] if 1 <= number <= len(specs) else None
        gathered = figure and CHART_KINDS[figure.kind].gather(figure, get_runs(cache, study, params))
    except SeedbedError:
        return ""
    if not isinstance(gathered, LineChart) or gathered.is_empty:
        return ""
    return f"event: rows\ndata: {json.dumps({'number': number, **line_datasets(gathered)})}\n\n"
