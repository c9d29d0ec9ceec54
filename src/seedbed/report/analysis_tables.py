"""What goes on inside runs, told over seeds as tables; the numbers come from `inside`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from seedbed.report.fourier_analysis import MIN_TUNED_VARIANCE_SHARE
from seedbed.report.run_analysis import RunAnalysis, mean_over_inputs, std_over_inputs
from seedbed.report.tables import Table
from seedbed.stats.attention_stats import HEAD_STATISTICS

if TYPE_CHECKING:
    from seedbed.interp.heads import GateStatistics

Floats = NDArray[np.float64]
MAX_POSITIONS = 12  # positions of a table; more are in the JSON document


def analysis_tables(analyses: Sequence[RunAnalysis]) -> list[Table]:
    """One set of tables over these runs, which differ in nothing but their seeds."""
    makers: tuple[Callable[[Sequence[RunAnalysis]], list[Table]], ...] = (
        _head_statistic_tables, _share_tables, _received_tables, _layer_tables, _ablation_tables, _gate_tables, _fourier_tables,
        _neuron_tables,
    )  # fmt: skip
    named = f", {analyses[0].config_label}" if analyses[0].config_label else ""
    return [replace(table, title=f"{table.title}{named}") for make in makers for table in make(analyses)]


def _head_statistic_tables(analyses: Sequence[RunAnalysis]) -> list[Table]:
    if not analyses[0].numbers:
        return []
    names = [name for name in HEAD_STATISTICS if np.isfinite(analyses[0].numbers[name]).any()]
    rows = _head_rows([[one.numbers[name] for one in analyses] for name in names])
    rows += _uniform_row([[one.uniform_numbers[name] for one in analyses] for name in names])
    said = "; ".join(f"{name}: {HEAD_STATISTICS[name].description} ({HEAD_STATISTICS[name].unit})" for name in names)
    return [Table("heads", ("layer", "head", *names), rows, (f"{said}.", _sample_note(analyses)), n_labels=2)]


def _share_tables(analyses: Sequence[RunAnalysis]) -> list[Table]:
    """One table a kind of query: what its tokens give to each kind."""
    pairs = [pair for pair in analyses[0].shares if all(pair in one.shares for one in analyses)]
    tables = []
    for query in dict.fromkeys(query for _, query in pairs):
        sources = [source for source, asked in pairs if asked == query]
        if all(np.isin(one.shares[source, query], (0.0, 1.0)).all() for source in sources for one in analyses):
            continue  # a token that can look at nothing but itself
        rows = _head_rows([[one.shares[source, query] for one in analyses] for source in sources])
        rows += _uniform_row([[one.uniform_shares[source, query] for one in analyses] for source in sources])
        who = "all tokens" if query == "all" else query
        tables.append(Table(f"share of attention from {who}", ("layer", "head", *sources), rows, n_labels=2))
    return tables


def _received_tables(analyses: Sequence[RunAnalysis]) -> list[Table]:
    if analyses[0].received is None:
        return []
    every = [one.received for one in analyses if one.received is not None]
    shown = min(every[0].shape[-1], MAX_POSITIONS)
    rows = _head_rows([[one[..., place] for one in every] for place in range(shown)])
    title = "attention received by position, from those that can look there"
    return [Table(title, ("layer", "head", *(str(place + 1) for place in range(shown))), rows, n_labels=2)]


def _head_rows(columns: Sequence[Sequence[Floats]]) -> tuple[tuple[str, ...], ...]:
    """A row a head, and one a layer over its heads; columns hold each run's (B, L, H)."""
    n_layers, n_heads = columns[0][0].shape[-2:]
    rows = []
    for layer in range(n_layers):
        for head in range(n_heads):
            rows.append(
                (
                    str(layer + 1),
                    str(head + 1),
                    *(_format_mean_std([one[:, layer, head] for one in column]) for column in columns),
                )
            )
        if n_heads > 1:
            rows.append(
                (
                    str(layer + 1),
                    "all",
                    *(_format_mean_std([mean_over_inputs(one[:, layer].T) for one in column]) for column in columns),
                )
            )
    return tuple(rows)


def _uniform_row(columns: Sequence[Sequence[Floats]]) -> tuple[tuple[str, ...]]:
    """What a head would have that looks at all that it may see alike."""
    return (("all", "alike", *(_format_mean_std([one[:, 0, 0] for one in column]) for column in columns)),)


def _layer_tables(analyses: Sequence[RunAnalysis]) -> list[Table]:
    every = [one.layer_distances for one in analyses if one.layer_distances is not None]
    n_layers = every[0].shape[-1] if every else 0
    if n_layers < 2:
        return []
    rows = [
        (
            str(row + 1),
            *(
                _format_mean_std([one[:, row, column] for one in every]) if column != row else "–"
                for column in range(n_layers)
            ),
        )
        for row in range(n_layers)
    ]
    note = "Total variation between the maps of two layers, heads averaged: 0 where they look alike, 1 where nowhere."
    return [
        Table("layer against layer", ("layer", *(str(layer + 1) for layer in range(n_layers))), tuple(rows), (note,))
    ]


def mean_and_stds(by_run: Sequence[Floats]) -> tuple[float, float, float]:
    """Mean, std over runs (NaN for one), and std over inputs within a run, averaged over runs; population stds."""
    means = np.array([float(mean_over_inputs(one)) for one in by_run])
    within = float(np.mean([std_over_inputs(one) for one in by_run]))
    return float(means.mean()), float(means.std()) if len(means) > 1 else float("nan"), within


def _format_mean_std(by_run: Sequence[Floats]) -> str:
    mean, over_runs, over_inputs = mean_and_stds(by_run)
    if np.isnan(mean):
        return "–"
    return f"{mean:.2f} ± {over_inputs if len(by_run) == 1 else over_runs:.2f}"


def _sample_note(analyses: Sequence[RunAnalysis]) -> str:
    one = analyses[0]
    inputs = f"{one.n_inputs} inputs of {one.split}"
    if len(analyses) == 1:
        return f"Run {one.run.id} at step {one.step:,}: mean ± std over {inputs}."
    return f"Mean ± std over {len(analyses)} seeds of each run's mean over {inputs}; the std over inputs is in --json."


def _ablation_tables(analyses: Sequence[RunAnalysis]) -> list[Table]:
    known = [one.ablation for one in analyses if one.ablation is not None]
    if not known:
        return []
    n_layers, n_heads = known[0].heads.shape
    columns = (
        "layer",
        *(f"− head {head + 1}" for head in range(n_heads)),
        "− attention",
        "− MLP",
        "− layer",
        "loss after layer",
    )
    rows = []
    for layer in range(n_layers):
        values = [[one.heads[layer, head] for one in known] for head in range(n_heads)]
        values += [[one.attention[layer] for one in known], [one.mlp[layer] for one in known]]
        values += [[one.layers[layer] for one in known], [one.lens[layer] for one in known]]
        rows.append((str(layer + 1), *map(_format_loss, values)))
    note = f"Loss with everything: {_format_loss([one.loss for one in known])}; the last column is the logit lens."
    return [Table("change of the loss (nats) without a part", columns, tuple(rows), (note,))]


def _format_loss(values: Sequence[float]) -> str:
    mean = f"{np.mean(values):.4g}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values):.2g}"


def _gate_tables(analyses: Sequence[RunAnalysis]) -> list[Table]:
    layers = [one.gates for one in analyses if one.gates]
    if not layers:
        return []
    columns: dict[str, Callable[[GateStatistics], float]] = {
        f"mean {gate}": _gate_getter("means", gate) for gate in "ifgo"
    }
    columns |= {f"{gate} shut": _gate_getter("shut", gate) for gate in "ifo"}
    columns |= {f"{gate} open": _gate_getter("open", gate) for gate in "ifo"}
    columns |= {"mean |c|": lambda gates: gates.cell, "c saturated": lambda gates: gates.cell_saturated}
    rows = [
        (str(place + 1), *(_format_share([read(one[place]) for one in layers]) for read in columns.values()))
        for place in range(len(layers[0]))
    ]
    note = "Shut: below 0.1; open: above 0.9; c saturated: |tanh c| above 0.9; shares of units and positions."
    return [Table("gates and cells", ("layer", *columns), tuple(rows), (note, _sample_note(analyses)))]


def _gate_getter(kind: str, gate: str) -> Callable[[GateStatistics], float]:
    return lambda gates: float(getattr(gates, kind)[gate])


def _format_share(values: Sequence[float]) -> str:
    return f"{np.mean(values):.2f}" + (f" ± {np.std(values):.2f}" if len(values) > 1 else "")


def _fourier_tables(analyses: Sequence[RunAnalysis]) -> list[Table]:
    """One row a kept step: the progress of the circles."""
    known = [one for one in analyses if one.fourier]
    steps = sorted({circles.step for one in known for circles in one.fourier})
    if not steps:
        return []
    rows = []
    for step in steps:
        there = [circles for one in known for circles in one.fourier if circles.step == step]
        losses = [[one.restricted for one in there], [one.excluded for one in there]]
        shares = [[one.share for one in there], [one.n_frequencies for one in there]]
        rows.append((f"{step:,}", *map(_format_share, shares), *map(_format_loss, losses)))
    columns = ("step", "share in key frequencies", "frequencies", "restricted loss", "excluded loss")
    return [Table("circles", columns, tuple(rows), _fourier_notes(known))]


def _fourier_notes(analyses: Sequence[RunAnalysis]) -> tuple[str, ...]:
    p = analyses[0].run.settings.task.p  # type: ignore[union-attr]
    named = "; ".join(
        f"seed {one.run.seed}: {', '.join(map(str, one.fourier[-1].frequencies))}" for one in analyses[:8]
    )
    return (
        f"Key frequencies, which hold more than 1 of {p // 2} in the last step ({named}). Share: of the number table's "
        f"power over 0 … {p - 1}; frequencies: how many alike would be as even, {p // 2} at most.",
        "Restricted: validation loss in nats of the logits' part on key circles alone; excluded: training loss without "
        "it (Nanda et al. 2023). The first falls and the second rises while the circles are built.",
    )


def _neuron_tables(analyses: Sequence[RunAnalysis]) -> list[Table]:
    known = [one.fourier[-1].neurons for one in analyses if one.fourier and one.fourier[-1].neurons]
    if not known:
        return []
    rows = [
        (
            str(place + 1),
            _format_share([one[place].share for one in known]),
            _format_share([one[place].tuned for one in known]),
        )
        for place in range(len(known[0]))
    ]
    columns = ("layer", "best frequency explains", f"units with {MIN_TUNED_VARIANCE_SHARE} or more")
    note = (
        "Variance of each hidden unit at = over all pairs of numbers, in the waves of one frequency, at the last step."
    )
    return [Table("hidden units on circles", columns, tuple(rows), (note,))]
