"""Run analyses as tables and as JSON, averaged over seeds; the numbers come from `run_analysis`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from seedbed.records import to_jsonable
from seedbed.report.fourier_analysis import MIN_TUNED_VARIANCE_SHARE
from seedbed.report.run_analysis import Floats, RunAnalysis, mean_over_inputs, std_over_inputs
from seedbed.report.tables import Table, format_hundredths
from seedbed.stats.attention_stats import HEAD_STATISTICS, describe_head_statistics

if TYPE_CHECKING:
    from seedbed.interp.activations import GateStatistics


MAX_POSITIONS = 12  # columns of a table; the JSON document has all


def analysis_tables(analyses: Sequence[RunAnalysis]) -> list[Table]:
    """The tables of one config, over runs that differ only in their seed."""
    builders: tuple[Callable[[Sequence[RunAnalysis]], list[Table]], ...] = (
        _head_statistic_tables, _share_tables, _received_tables, _layer_tables, _ablation_tables, _gate_tables,
        _fourier_tables, _neuron_tables,
    )  # fmt: skip
    suffix = f", {analyses[0].config_label}" if analyses[0].config_label else ""
    return [replace(table, title=f"{table.title}{suffix}") for build in builders for table in build(analyses)]


def _head_statistic_tables(analyses: Sequence[RunAnalysis]) -> list[Table]:
    if not analyses[0].numbers:
        return []
    names = [name for name in HEAD_STATISTICS if np.isfinite(analyses[0].numbers[name]).any()]
    rows = _head_rows([[one.numbers[name] for one in analyses] for name in names])
    rows += _uniform_row([[one.uniform_numbers[name] for one in analyses] for name in names])
    notes = (describe_head_statistics(names), _sample_note(analyses))
    return [Table("heads", ("layer", "head", *names), rows, notes, n_labels=2)]


def _share_tables(analyses: Sequence[RunAnalysis]) -> list[Table]:
    """One table per kind of query token: the share of its attention on each kind of key token."""
    pairs = [pair for pair in analyses[0].shares if all(pair in one.shares for one in analyses)]
    tables = []
    for query in dict.fromkeys(query for _, query in pairs):
        sources = [source for source, query_kind in pairs if query_kind == query]
        if all(np.isin(one.shares[source, query], (0.0, 1.0)).all() for source in sources for one in analyses):
            continue  # a token that can attend only to itself
        rows = _head_rows([[one.shares[source, query] for one in analyses] for source in sources])
        rows += _uniform_row([[one.uniform_shares[source, query] for one in analyses] for source in sources])
        queries = "all tokens" if query == "all" else query
        tables.append(Table(f"share of attention from {queries}", ("layer", "head", *sources), rows, n_labels=2))
    return tables


def _received_tables(analyses: Sequence[RunAnalysis]) -> list[Table]:
    if analyses[0].received is None:
        return []
    received = [one.received for one in analyses if one.received is not None]
    n_positions = min(received[0].shape[-1], MAX_POSITIONS)
    rows = _head_rows([[one[..., position] for one in received] for position in range(n_positions)])
    title = "attention received by position, from the positions that can attend to it"
    return [Table(title, ("layer", "head", *(str(position + 1) for position in range(n_positions))), rows, n_labels=2)]


def _head_rows(columns: Sequence[Sequence[Floats]]) -> tuple[tuple[str, ...], ...]:
    """One row per head, and one per layer over its heads; columns hold each run's (B, L, H)."""
    n_layers, n_heads = columns[0][0].shape[-2:]
    rows = []
    for layer in range(n_layers):
        for head in range(n_heads):
            cells = [_format_mean_std([one[:, layer, head] for one in column]) for column in columns]
            rows.append((str(layer + 1), str(head + 1), *cells))
        if n_heads > 1:
            cells = [_format_mean_std([mean_over_inputs(one[:, layer].T) for one in column]) for column in columns]
            rows.append((str(layer + 1), "all", *cells))
    return tuple(rows)


def _uniform_row(columns: Sequence[Sequence[Floats]]) -> tuple[tuple[str, ...]]:
    """The values of uniform attention over all visible positions."""
    return (("all", "uniform", *(_format_mean_std([one[:, 0, 0] for one in column]) for column in columns)),)


def _layer_tables(analyses: Sequence[RunAnalysis]) -> list[Table]:
    distances = [one.layer_distances for one in analyses if one.layer_distances is not None]
    n_layers = distances[0].shape[-1] if distances else 0
    if n_layers < 2:
        return []
    names = [str(layer + 1) for layer in range(n_layers)]
    rows = []
    for row, name in enumerate(names):
        cells = [_format_mean_std([one[:, row, column] for one in distances]) for column in range(n_layers)]
        rows.append((name, *cells[:row], "–", *cells[row + 1 :]))
    note = "Total variation between the maps of two layers, averaged over heads: 0 if they are equal, 1 if disjoint."
    return [Table("layer against layer", ("layer", *names), tuple(rows), (note,))]


def mean_and_stds(by_run: Sequence[Floats]) -> tuple[float, float, float]:
    """Mean, std over runs (NaN for one), and the std over inputs averaged over runs; population stds."""
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
    ablations = [one.ablation for one in analyses if one.ablation is not None]
    if not ablations:
        return []
    n_layers, n_heads = ablations[0].heads.shape
    without_head = [f"− head {head + 1}" for head in range(n_heads)]
    columns = ("layer", *without_head, "− attention", "− MLP", "− layer", "loss after layer")
    rows = []
    for layer in range(n_layers):
        values = [[one.heads[layer, head] for one in ablations] for head in range(n_heads)]
        values += [[one.attention[layer] for one in ablations], [one.mlp[layer] for one in ablations]]
        values += [[one.layers[layer] for one in ablations], [one.lens[layer] for one in ablations]]
        rows.append((str(layer + 1), *map(_format_loss, values)))
    note = (
        f"Loss of the full model: {_format_loss([one.loss for one in ablations])}; the last column is the logit lens."
    )
    return [Table("change of the loss (nats) when a component is ablated", columns, tuple(rows), (note,))]


def _format_loss(values: Sequence[float]) -> str:
    if not np.isfinite(values).all():
        return "–"
    mean = f"{np.mean(values):.4g}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values):.2g}"


def _gate_tables(analyses: Sequence[RunAnalysis]) -> list[Table]:
    gates_by_run = [one.gates for one in analyses if one.gates]
    if not gates_by_run:
        return []
    first = gates_by_run[0][0]
    columns: dict[str, Callable[[GateStatistics], float]] = {
        f"mean {gate}": _gate_getter("means", gate) for gate in first.means
    }
    columns |= {f"{gate} shut": _gate_getter("shut", gate) for gate in first.shut}
    columns |= {f"{gate} open": _gate_getter("open", gate) for gate in first.open}
    state = first.state_symbol
    columns |= {f"mean |{state}|": lambda gates: gates.cell, f"{state} saturated": lambda gates: gates.cell_saturated}
    rows = [
        (str(layer + 1), *(format_hundredths([read(one[layer]) for one in gates_by_run]) for read in columns.values()))
        for layer in range(len(gates_by_run[0]))
    ]
    saturated = f"{state} saturated: |tanh {state}| above 0.9"
    note = f"Shut: below 0.1; open: above 0.9; {saturated}; shares of units and positions."
    return [Table("gates and cells", ("layer", *columns), tuple(rows), (note, _sample_note(analyses)))]


def _gate_getter(kind: str, gate: str) -> Callable[[GateStatistics], float]:
    return lambda gates: float(getattr(gates, kind)[gate])


def _fourier_tables(analyses: Sequence[RunAnalysis]) -> list[Table]:
    """One row per checkpoint: how far the Fourier circuit has formed."""
    analysed = [one for one in analyses if one.fourier]
    steps = sorted({progress.step for one in analysed for progress in one.fourier})
    if not steps:
        return []
    rows = []
    for step in steps:
        at_step = [progress for one in analysed for progress in one.fourier if progress.step == step]
        losses = [[one.restricted for one in at_step], [one.excluded for one in at_step]]
        shares = [[one.share for one in at_step], [one.n_frequencies for one in at_step]]
        rows.append((f"{step:,}", *map(format_hundredths, shares), *map(_format_loss, losses)))
    columns = ("step", "share in key frequencies", "frequencies", "restricted loss", "excluded loss")
    return [Table("circles", columns, tuple(rows), _fourier_notes(analysed))]


def _fourier_notes(analyses: Sequence[RunAnalysis]) -> tuple[str, ...]:
    order = analyses[0].run.settings.task.cyclic_order()
    n_frequencies = len(order) // 2
    by_seed = "; ".join(
        f"seed {one.run.seed}: {', '.join(map(str, one.fourier[-1].frequencies))}" for one in analyses[:8]
    )
    return (
        *_logarithm_notes(order),
        f"Key frequencies, each with more than 1 / {n_frequencies} of the power at the last step ({by_seed}). Share: "
        f"of the power of the number embeddings; frequencies: their effective number, at most {n_frequencies}.",
        "Restricted: validation loss (nats) of the logits projected onto the key frequencies; excluded: training loss "
        "without that projection (Nanda et al. 2023). The first falls and the second rises as the circuit forms.",
        *_missing_loss_notes(analyses),
    )


def _logarithm_notes(order: Sequence[int]) -> tuple[str, ...]:
    """How products are turned into sums, if they are."""
    if order[0] == 0:
        return ()
    return (
        f"Frequencies of 1 … {len(order)} in the order of their discrete logarithm to base {order[1]}, modulo "
        f"{len(order)}: it turns products into sums. 0 has none and is left out, also of the losses.",
    )


def _missing_loss_notes(analyses: Sequence[RunAnalysis]) -> tuple[str, ...]:
    """Why there is no restricted or excluded loss, if there is none."""
    last = [one.fourier[-1] for one in analyses]
    if all(np.isfinite([progress.restricted for progress in last])) and all(
        np.isfinite([progress.excluded for progress in last])
    ):
        return ()
    return ("–: the losses need equations with two operands, in training and in validation.",)


def _neuron_tables(analyses: Sequence[RunAnalysis]) -> list[Table]:
    neurons_by_run = [one.fourier[-1].neurons for one in analyses if one.fourier and one.fourier[-1].neurons]
    if not neurons_by_run:
        return []
    rows = []
    for layer in range(len(neurons_by_run[0])):
        shares = [[one[layer].share for one in neurons_by_run], [one[layer].tuned for one in neurons_by_run]]
        rows.append((str(layer + 1), *map(format_hundredths, shares)))
    columns = ("layer", "best frequency explains", f"units with {MIN_TUNED_VARIANCE_SHARE} or more")
    note = "Share of each hidden unit's variance at =, over all pairs of numbers, in one frequency, at the last step."
    return [Table("hidden units on circles", columns, tuple(rows), (note,))]


# ---- as JSON ----


def analyses_as_json(analyses: Sequence[RunAnalysis]) -> dict[str, Any]:
    """The runs of one config: each statistic as mean, std over seeds and std over inputs, all (L, H)."""
    document: dict[str, Any] = {
        "runs": [{"id": one.run.id, "seed": one.run.seed, "step": one.step} for one in analyses],
        "inputs": {"n": analyses[0].n_inputs, "part": analyses[0].split},
    }
    if analyses[0].numbers:
        document["numbers"] = {
            name: {"unit": HEAD_STATISTICS[name].unit}
            | _spreads([one.numbers[name] for one in analyses])
            | {"even": _rounded_list(np.mean([mean_over_inputs(one.uniform_numbers[name])[0, 0] for one in analyses]))}
            for name in HEAD_STATISTICS
        }
        document["shares"] = [
            {"on": pair[0], "from": pair[1]} | _spreads([one.shares[pair] for one in analyses if pair in one.shares])
            for pair in analyses[0].shares
        ]
        document["received"] = _rounded_list(
            np.mean([mean_over_inputs(one.received) for one in analyses if one.received is not None], axis=0)
        )
        distances = [mean_over_inputs(one.layer_distances) for one in analyses if one.layer_distances is not None]
        document["layers_apart"] = _rounded_list(np.mean(distances, axis=0))
    ablations = [one.ablation for one in analyses if one.ablation is not None]
    if ablations:
        names = ("loss", "heads", "attention", "mlp", "layers", "lens")
        document["ablation"] = {
            name: [_rounded_list(np.asarray(getattr(one, name))) for one in ablations] for name in names
        }
    document["gates"] = [[vars(gates) for gates in one.gates] for one in analyses if one.gates]
    document["circles"] = [
        to_jsonable([asdict(progress) for progress in one.fourier]) for one in analyses if one.fourier
    ]
    return document


def _spreads(by_run: Sequence[Floats]) -> dict[str, Any]:
    n_layers, n_heads = by_run[0].shape[-2:]
    cells = np.array(
        [[mean_and_stds([one[:, i, h] for one in by_run]) for h in range(n_heads)] for i in range(n_layers)]
    )
    return {name: _rounded_list(cells[..., index]) for index, name in enumerate(("mean", "std_seeds", "std_inputs"))}


def _rounded_list(values: Floats) -> Any:
    """Nested lists, rounded to six decimals."""
    return np.round(values, 6).tolist()
