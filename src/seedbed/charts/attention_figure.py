"""The attention figure of a study, from the stored analyses of its runs; drawing is left to `attention_maps`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from textwrap import shorten
from typing import Final

from seedbed.charts.attention_maps import AttentionMaps, build_attention_maps, isolate_mixed_direction
from seedbed.charts.panel_layout import config_label
from seedbed.charts.run_selection import group_by_config
from seedbed.interp.text_attention import TextAttention
from seedbed.specs import FigureSpec
from seedbed.stats.groups import filter_runs
from seedbed.stats.summary import RunCurves

MAX_CONFIGS: Final = 4  # with maps in one figure


def gather_attention_figure(figure: FigureSpec, runs: Sequence[RunCurves]) -> AttentionMaps:
    """The maps of an `attention` figure, for one run per config: heads of different seeds have no common order."""
    selected = filter_runs(runs, figure.only)
    configs = [[run for run in seed_runs if _maps_of_run(figure, run)] for seed_runs in group_by_config(selected)]
    shown = [seed_runs[0] for seed_runs in configs if seed_runs][:MAX_CONFIGS]
    all_maps = [maps for run in shown if (maps := _maps_of_run(figure, run))]
    titles = [_config_title(run, maps, len(shown) > 1) for run, maps in zip(shown, all_maps, strict=True)]
    notes = (*_missing_notes(figure, selected), *_selection_notes(shown, sum(map(bool, configs))))
    title = figure.title or f"Attention of {isolate_mixed_direction(figure.text)}"
    return build_attention_maps(title, all_maps, titles, notes)


def attend_command(figure: FigureSpec, runs: Sequence[RunCurves]) -> str:
    """The `seedbed attend` command that reproduces an attention figure, for its first run."""
    run = next((run.run.id for run in filter_runs(runs, figure.only) if run.analyses), "RUN")
    command = ["seedbed", "attend", run, figure.text]
    for name, value in (("--layer", figure.layers), ("--head", figure.heads)):
        command += [name, ",".join(map(str, value))] if value else []
    return shlex.join([*command, *(["--by", figure.by] if figure.by != "token" else []), "--out", "attention.svg"])


def _maps_of_run(figure: FigureSpec, run: RunCurves) -> TextAttention | None:
    """The attention to the figure's text in the run's last analysis, if it has it."""
    maps = run.analyses[-1].find_attention(figure.text, figure.by) if run.analyses else None
    return maps and maps.select_available(figure.layers, figure.heads)


def _config_title(run: RunCurves, maps: TextAttention, show_config: bool) -> str:
    config = f"{config_label(run)}, " if show_config else ""
    text = isolate_mixed_direction(shorten(maps.text, 100, placeholder=" …"))
    return f"{config}{text}, step {maps.step:,}, seed {run.run.seed}"


def _selection_notes(runs: Sequence[RunCurves], n_configs: int) -> Iterator[str]:
    if runs:
        yield "One seed per config: heads of different seeds have no common order."
    if n_configs > len(runs):
        yield f"The first {len(runs)} of {n_configs} configs are shown."


def _missing_notes(figure: FigureSpec, runs: Sequence[RunCurves]) -> Iterator[str]:
    """Why some runs have no maps of this text."""
    reasons = {
        analysis.attention_errors[figure.text]
        for run in runs
        for analysis in run.analyses[-1:]
        if figure.text in analysis.attention_errors
    }
    yield from (f"Not shown: {reason}." for reason in sorted(reasons))
    if not any(run.analyses or run.weights_error for run in runs):
        yield "No run has been analysed yet; `seedbed report` does that."
