"""Attention maps as a figure of a study, from what was seen inside its runs; how maps look is left to `attention`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import shorten
from typing import Final

from seedbed.charts.attention_maps import AttentionMaps, build_attention_maps, isolate_mixed_direction
from seedbed.charts.panel_layout import config_label
from seedbed.charts.run_selection import group_by_config, select_runs
from seedbed.interp.text_attention import TextAttention
from seedbed.specs import FigureSpec
from seedbed.stats.summary import RunCurves

MAX_CONFIGS: Final = 4  # of a study, with maps in one figure


def gather_attention_figure(figure: FigureSpec, runs: Sequence[RunCurves]) -> AttentionMaps:
    """The maps of a figure of kind `attention`, of one run a point: heads of different seeds have no common order."""
    drawn = select_runs(runs, figure)
    points = [[run for run in members if _maps_of_run(figure, run)] for members in group_by_config(drawn)]
    shown = [members[0] for members in points if members][:MAX_CONFIGS]
    maps = [found for run in shown if (found := _maps_of_run(figure, run))]
    names = [_config_title(run, one, len(shown) > 1) for run, one in zip(shown, maps, strict=True)]
    notes = (*_missing_notes(figure, drawn), *_selection_notes(shown, sum(map(bool, points))))
    title = figure.title or f"Attention of {isolate_mixed_direction(figure.text)}"
    return build_attention_maps(title, maps, names, notes)


def _maps_of_run(figure: FigureSpec, run: RunCurves) -> TextAttention | None:
    """What the run's last look has of the figure's text."""
    maps = run.analyses[-1].find_attention(figure.text, figure.by) if run.analyses else None
    return maps and maps.select_available(figure.layers, figure.heads)


def _config_title(run: RunCurves, maps: TextAttention, several: bool) -> str:
    point = f"{config_label(run)}, " if several else ""
    return f"{point}{isolate_mixed_direction(shorten(maps.text, 100, placeholder=' …'))}, step {maps.step:,}, seed {run.run.seed}"


def _selection_notes(runs: Sequence[RunCurves], n_configs: int) -> Iterator[str]:
    if runs:
        yield "One seed a point: heads of different seeds have no common order."
    if n_configs > len(runs):
        yield f"The first {len(runs)} of {n_configs} points are drawn."


def _missing_notes(figure: FigureSpec, runs: Sequence[RunCurves]) -> Iterator[str]:
    """Why runs have no maps of this text."""
    reasons = {
        look.attention_errors[figure.text]
        for run in runs
        for look in run.analyses[-1:]
        if figure.text in look.attention_errors
    }
    yield from (f"Not drawn: {reason}." for reason in sorted(reasons))
    if not any(run.analyses for run in runs):
        yield "No run was looked into yet; `seedbed report` does it."
