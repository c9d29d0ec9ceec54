"""Run analyses as a JSON document, every statistic with its std over seeds and over inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from seedbed.records import to_jsonable
from seedbed.report.analysis_tables import mean_and_stds
from seedbed.report.run_analysis import Floats, RunAnalysis, mean_over_inputs
from seedbed.stats.attention_stats import HEAD_STATISTICS


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
