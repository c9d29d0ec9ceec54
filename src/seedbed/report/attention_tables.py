"""The attention statistics of a study's runs as tables of its report, over seeds.

Cells read `mean ± std over seeds (std over inputs)`; the last row is what uniform attention would have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from seedbed.charts.chart_kinds import CHART_KINDS
from seedbed.charts.panel_layout import config_label
from seedbed.interp.analysis import ATTENTION_METRIC_PREFIX, Analysis
from seedbed.interp.text_attention import TextAttention
from seedbed.report.study_runs import declared_analysis_metrics
from seedbed.report.tables import Table, format_hundredths
from seedbed.specs import FigureSpec
from seedbed.stats.attention_stats import HEAD_STATISTICS, describe_head_statistics
from seedbed.stats.groups import filter_runs
from seedbed.stats.summary import RunCurves, group_by_config
from seedbed.study.declarations import Declarations

ATTENTION_ON_PREFIX = "attention_on_"


def attention_tables(declared: Declarations, runs: Sequence[RunCurves]) -> list[Table]:
    """Head statistics of each config, and the attention that each token of a figure's text receives, if declared."""
    figures = [figure for figure in declared.figures if CHART_KINDS[figure.kind].needs_analysis == "attention"]
    if not figures and not any(
        name.startswith(ATTENTION_METRIC_PREFIX) for name in declared_analysis_metrics(declared)
    ):
        return []
    configs = [
        [run for run in seed_runs if run.analyses and run.analyses[-1].metrics] for seed_runs in group_by_config(runs)
    ]
    tables = [table for seed_runs in configs if seed_runs for table in _config_tables(seed_runs, len(configs) > 1)]
    return [*tables, *(table for figure in figures for table in _received_tables(figure, runs))]


def _config_tables(seed_runs: Sequence[RunCurves], show_config: bool) -> Iterator[Table]:
    analyses = [run.analyses[-1] for run in seed_runs]
    layers = _layer_numbers(analyses)
    if not layers:
        return
    suffix = f": {config_label(seed_runs[0])}" if show_config else ""
    names = [name for name in HEAD_STATISTICS if f"attention_{name}[layer=1]" in analyses[0].metrics]
    rows = _rows([f"attention_{name}" for name in names], "", layers, analyses)
    yield Table(
        f"Heads by layer{suffix}", ("layer", *names), rows, (describe_head_statistics(names), _sample_note(analyses))
    )
    for query in ("", "from==, "):
        sources = _source_kinds(analyses[0], query)
        if sources:
            queries = "=" if query else "all tokens"
            rows = _rows([f"{ATTENTION_ON_PREFIX}{name}" for name in sources], query, layers, analyses)
            headings = tuple(name.replace("_", " ") for name in sources)
            yield Table(f"Share of attention from {queries}, by kind of key{suffix}", ("layer", *headings), rows)


def _layer_numbers(analyses: Sequence[Analysis]) -> list[int]:
    n_layers = 0
    while f"attention_entropy[layer={n_layers + 1}]" in analyses[0].metrics:
        n_layers += 1
    return list(range(1, n_layers + 1))


def _source_kinds(analysis: Analysis, query: str) -> list[str]:
    """The kinds of key tokens that this kind of query attends to."""
    ending = f"[{query}layer=1]"
    names = (name for name in analysis.metrics if name.startswith(ATTENTION_ON_PREFIX) and name.endswith(ending))
    return [name.removeprefix(ATTENTION_ON_PREFIX).removesuffix(ending) for name in names]


def _rows(
    names: Sequence[str], query: str, layers: Sequence[int], analyses: Sequence[Analysis]
) -> tuple[tuple[str, ...], ...]:
    groups = {str(layer): f"[{query}layer={layer}]" for layer in layers} | {"uniform": f"[{query}even]"}
    return tuple((head, *(_cell(f"{name}{group}", analyses) for name in names)) for head, group in groups.items())


def _cell(name: str, analyses: Sequence[Analysis]) -> str:
    values = [analysis.metrics[name] for analysis in analyses if name in analysis.metrics]
    if not values:
        return "–"
    means, within = [one.mean for one in values], [one.std for one in values if one.std is not None]
    return format_hundredths(means) + (f" ({np.mean(within):.2f})" if within else "")


def _sample_note(analyses: Sequence[Analysis]) -> str:
    n, one = len(analyses), analyses[0]
    seeds = f"Mean ± population std over {n} seeds" if n > 1 else "One seed"
    return f"{seeds}, in brackets the std over {one.n_inputs} inputs of {one.split}; step {one.step:,}."


def _received_tables(figure: FigureSpec, runs: Sequence[RunCurves]) -> Iterator[Table]:
    """One row per token or word of the figure's text, one column per config and layer."""
    configs = [
        (seed_runs[0], maps)
        for seed_runs in group_by_config(filter_runs(runs, figure.only))
        if (maps := _maps_by_seed(figure, seed_runs))
    ]
    if not configs:
        return
    columns = [(run, maps, layer) for run, maps in configs for layer in range(len(maps[0].layers))]
    headings = [f"{config_label(run)} layer {maps[0].layers[layer] + 1}".strip() for run, maps, layer in columns]
    rows = []
    for position, name in enumerate(configs[0][1][0].unique_labels):
        cells = [
            format_hundredths([float(one.mean_received[layer, :, position].mean()) for one in maps])
            for _, maps, layer in columns
        ]
        rows.append((name, *cells))
    note = f"Mean attention that a {figure.by} receives from those that can attend to it, over heads; ± std over seeds."
    yield Table(f"Attention received in “{figure.text}”", (figure.by, *headings), tuple(rows), (note,))


def _maps_by_seed(figure: FigureSpec, seed_runs: Sequence[RunCurves]) -> list[TextAttention]:
    """The maps of each seed that has any; padding comes after all labelled tokens."""
    found = [run.analyses[-1].find_attention(figure.text, figure.by) for run in seed_runs if run.analyses]
    return [maps.select_available(figure.layers, figure.heads) for maps in found if maps]
