"""What was seen inside a study's runs as tables of its report: the numbers beside its attention maps, over seeds.

Cells read `mean ± std over seeds (std over inputs)`; the last row is what a head would have that looks at all alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from seedbed.charts.panel_layout import config_label
from seedbed.charts.run_selection import group_by_config
from seedbed.interp.analysis import ATTENTION_METRIC_PREFIX, Analysis
from seedbed.interp.text_attention import TextAttention
from seedbed.report.analysis_curves import declared_analysis_metrics
from seedbed.report.tables import Table
from seedbed.specs import FigureSpec
from seedbed.stats.attention_stats import HEAD_STATISTICS
from seedbed.stats.groups import filter_runs
from seedbed.stats.summary import RunCurves
from seedbed.study.declarations import Declarations

ATTENTION_ON_PREFIX = "attention_on_"


def attention_tables(declared: Declarations, runs: Sequence[RunCurves]) -> list[Table]:
    """Head numbers and shares of each point, and what each token of a figure's text gets; none where none is asked."""
    figures = [figure for figure in declared.figures if figure.kind == "attention"]
    if not figures and not any(
        name.startswith(ATTENTION_METRIC_PREFIX) for name in declared_analysis_metrics(declared)
    ):
        return []
    points = [[run for run in members if run.analyses] for members in group_by_config(runs)]
    found = [table for members in points if members for table in _config_tables(members, len(points) > 1)]
    return [*found, *(table for figure in figures for table in _received_tables(figure, runs))]


def _config_tables(seed_runs: Sequence[RunCurves], show_config: bool) -> Iterator[Table]:
    looks = [run.analyses[-1] for run in seed_runs]
    layers = _layer_numbers(looks)
    if not layers:
        return
    named = f": {config_label(seed_runs[0])}" if show_config else ""
    names = [name for name in HEAD_STATISTICS if f"attention_{name}[layer=1]" in looks[0].metrics]
    said = "; ".join(f"{name}: {HEAD_STATISTICS[name].description} ({HEAD_STATISTICS[name].unit})" for name in names)
    rows = _rows([f"attention_{name}" for name in names], "", layers, looks)
    yield Table(f"Heads by layer{named}", ("layer", *names), rows, (f"{said}.", _sample_note(looks)))
    for query in ("", "from==, "):
        sources = _source_kinds(looks[0], query)
        if sources:
            who = "=" if query else "all tokens"
            rows = _rows([f"{ATTENTION_ON_PREFIX}{name}" for name in sources], query, layers, looks)
            words = tuple(name.replace("_", " ") for name in sources)
            yield Table(f"Share of attention from {who}, by what is looked at{named}", ("layer", *words), rows)


def _layer_numbers(analyses: Sequence[Analysis]) -> list[int]:
    n_layers = 0
    while f"attention_entropy[layer={n_layers + 1}]" in analyses[0].metrics:
        n_layers += 1
    return list(range(1, n_layers + 1))


def _source_kinds(analysis: Analysis, query: str) -> list[str]:
    """The kinds of tokens that queries of one kind look at."""
    ending = f"[{query}layer=1]"
    names = (name for name in analysis.metrics if name.startswith(ATTENTION_ON_PREFIX) and name.endswith(ending))
    return [name.removeprefix(ATTENTION_ON_PREFIX).removesuffix(ending) for name in names]


def _rows(
    names: Sequence[str], query: str, layers: Sequence[int], analyses: Sequence[Analysis]
) -> tuple[tuple[str, ...], ...]:
    groups = {str(layer): f"[{query}layer={layer}]" for layer in layers} | {"all alike": f"[{query}even]"}
    return tuple((head, *(_cell(f"{name}{group}", analyses) for name in names)) for head, group in groups.items())


def _cell(name: str, analyses: Sequence[Analysis]) -> str:
    seen = [look.metrics[name] for look in analyses if name in look.metrics]
    if not seen:
        return "–"
    means, within = [one.mean for one in seen], [one.std for one in seen if one.std is not None]
    return _format_mean_std(means) + (f" ({np.mean(within):.2f})" if within else "")


def _sample_note(analyses: Sequence[Analysis]) -> str:
    n, one = len(analyses), analyses[0]
    seeds = f"Mean ± population std over {n} seeds" if n > 1 else "One seed"
    return f"{seeds}, in brackets the std over {one.n_inputs} inputs of {one.split}; step {one.step:,}."


def _received_tables(figure: FigureSpec, runs: Sequence[RunCurves]) -> Iterator[Table]:
    """A row a piece of the figure's text, a column a layer and point."""
    points = [
        (members[0], maps)
        for members in group_by_config(filter_runs(runs, figure.only))
        if (maps := _maps_by_seed(figure, members))
    ]
    if not points:
        return
    columns = [(run, maps, layer) for run, maps in points for layer in range(len(maps[0].layers))]
    heads = [f"{config_label(run)} layer {maps[0].layers[layer] + 1}".strip() for run, maps, layer in columns]
    rows = []
    for place, name in enumerate(points[0][1][0].unique_labels):
        cells = [
            _format_mean_std([float(one.mean_received[layer, :, place].mean()) for one in maps])
            for _, maps, layer in columns
        ]
        rows.append((name, *cells))
    note = f"What a {figure.by} gets on average from each other that may look at it: mean over heads, ± std over seeds."
    yield Table(f"Attention received in “{figure.text}”", (figure.by, *heads), tuple(rows), (note,))


def _maps_by_seed(figure: FigureSpec, seed_runs: Sequence[RunCurves]) -> list[TextAttention]:
    """The maps of each seed that has some; padding comes after all that has a name."""
    found = [run.analyses[-1].find_attention(figure.text, figure.by) for run in seed_runs if run.analyses]
    return [maps.select_available(figure.layers, figure.heads) for maps in found if maps]


def _format_mean_std(means: Sequence[float]) -> str:
    return f"{np.mean(means):.2f}" + (f" ± {np.std(means):.2f}" if len(means) > 1 else "")
