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

from seedbed.charts.catalogue import CATALOGUE
from seedbed.charts.draw import blocks_of
from seedbed.charts.lines import Lines
from seedbed.errors import SeedbedError
from seedbed.web.chosen import Chosen, figures, runs_of
from seedbed.web.lab import Lab

LIGHT: Final = 200_000  # bytes of an event; one of n times as many is sent every n-th time
MOST_FIGURES: Final = 4  # that a viewer follows at a time
MOST_KEPT: Final = 200

Key: TypeAlias = tuple[str, Chosen, int]


def numbers_in(text: str) -> tuple[int, ...]:
    """Numbers of figures, as in `1,2`; what is none is left out."""
    return tuple(int(part) for part in text.split(",") if part.isdecimal() and len(part) < 4)[:MOST_FIGURES]


@dataclass
class Growing:
    """Events with the points of figures, made once for each version of a study."""

    lab: Lab
    _made: dict[Key, tuple[int, asyncio.Task[str]]] = field(default_factory=dict)

    async def events(self, study: str, chosen: Chosen, numbers: Sequence[int], version: int) -> list[str]:
        """What there is to send to a viewer who looks at these figures."""
        found = [await self._event((study, chosen, number), version) for number in numbers]
        return [text for text in found if text and version % (1 + len(text) // LIGHT) == 0]

    async def _event(self, key: Key, version: int) -> str:
        known = self._made.get(key)
        if known is None or known[0] != version:
            if len(self._made) >= MOST_KEPT:
                self._made.clear()
            known = version, asyncio.create_task(asyncio.to_thread(_rows, self.lab, *key))
            self._made[key] = known
        return await asyncio.shield(known[1])


def _rows(lab: Lab, study: str, chosen: Chosen, number: int) -> str:
    """The points of one figure as an event; nothing where it has none, or the study is gone."""
    try:
        known = figures(lab, study, chosen)
        figure = known[number - 1] if 1 <= number <= len(known) else None
        gathered = figure and CATALOGUE[figure.kind].gather(figure, runs_of(lab, study, chosen))
    except SeedbedError:
        return ""
    if not isinstance(gathered, Lines) or gathered.empty:
        return ""
    return f"event: rows\ndata: {json.dumps({'number': number, **blocks_of(gathered)})}\n\n"
