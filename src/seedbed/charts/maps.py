"""Attention maps as a figure of a study, from what was seen inside its runs; how maps look is left to `attention`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import shorten
from typing import Final

from seedbed.charts.attention import AttentionMaps, directed, maps_under
from seedbed.charts.axes import by_point, chosen
from seedbed.charts.panels import point_in_words
from seedbed.inside.maps import Maps
from seedbed.measures.summary import RunCurves
from seedbed.shown import Figure

MOST_POINTS: Final = 4  # of a study, with maps in one figure


def gather_maps(figure: Figure, runs: Sequence[RunCurves]) -> AttentionMaps:
    """The maps of a figure of kind `attention`, of one run a point: heads of different seeds have no common order."""
    drawn = chosen(runs, figure)
    points = [[run for run in members if _map_of(figure, run)] for members in by_point(drawn)]
    shown = [members[0] for members in points if members][:MOST_POINTS]
    maps = [found for run in shown if (found := _map_of(figure, run))]
    names = [_point_title(run, one, len(shown) > 1) for run, one in zip(shown, maps, strict=True)]
    notes = (*_left_out_notes(figure, drawn), *_shown_notes(shown, sum(map(bool, points))))
    title = figure.title or f"Attention of {directed(figure.text)}"
    return maps_under(title, maps, names, notes)


def _map_of(figure: Figure, run: RunCurves) -> Maps | None:
    """What the run's last look has of the figure's text."""
    maps = run.looks[-1].maps_of(figure.text, figure.by) if run.looks else None
    return maps and maps.as_far(figure.layers, figure.heads)


def _point_title(run: RunCurves, maps: Maps, several: bool) -> str:
    point = f"{point_in_words(run)}, " if several else ""
    return f"{point}{directed(shorten(maps.text, 100, placeholder=' …'))}, step {maps.step:,}, seed {run.run.seed}"


def _shown_notes(shown: Sequence[RunCurves], n_points: int) -> Iterator[str]:
    if shown:
        yield "One seed a point: heads of different seeds have no common order."
    if n_points > len(shown):
        yield f"The first {len(shown)} of {n_points} points are drawn."


def _left_out_notes(figure: Figure, runs: Sequence[RunCurves]) -> Iterator[str]:
    """Why runs have no maps of this text."""
    reasons = {look.refused[figure.text] for run in runs for look in run.looks[-1:] if figure.text in look.refused}
    yield from (f"Not drawn: {reason}." for reason in sorted(reasons))
    if not any(run.looks for run in runs):
        yield "No run was looked into yet; `seedbed report` does it."
