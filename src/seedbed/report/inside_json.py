"""What goes on inside runs as one JSON document, every number with its std over seeds and over inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from seedbed.measures.attention import NUMBERS
from seedbed.records import jsonable
from seedbed.report.inside import Floats, Inside, mean_over_inputs
from seedbed.report.inside_tables import spread


def inside_as_json(found: Sequence[Inside]) -> dict[str, Any]:
    """Every number over the runs: mean, std over seeds and std over inputs, (L, H) each."""
    document: dict[str, Any] = {
        "runs": [{"id": one.run.id, "seed": one.run.seed, "step": one.step} for one in found],
        "inputs": {"n": found[0].n_inputs, "part": found[0].part},
    }
    if found[0].numbers:
        document["numbers"] = {
            name: {"unit": NUMBERS[name].unit}
            | _spreads([one.numbers[name] for one in found])
            | {"even": _listed(np.mean([mean_over_inputs(one.even[name])[0, 0] for one in found]))}
            for name in NUMBERS
        }
        document["shares"] = [
            {"on": pair[0], "from": pair[1]} | _spreads([one.shares[pair] for one in found if pair in one.shares])
            for pair in found[0].shares
        ]
        document["received"] = _listed(
            np.mean([mean_over_inputs(one.received) for one in found if one.received is not None], axis=0)
        )
        apart = [mean_over_inputs(one.layers_apart) for one in found if one.layers_apart is not None]
        document["layers_apart"] = _listed(np.mean(apart, axis=0))
    known = [one.ablation for one in found if one.ablation is not None]
    if known:
        names = ("loss", "heads", "attention", "mlp", "layers", "lens")
        document["ablation"] = {name: [_listed(np.asarray(getattr(one, name))) for one in known] for name in names}
    document["gates"] = [[vars(gates) for gates in one.gates] for one in found if one.gates]
    document["circles"] = [jsonable([asdict(circles) for circles in one.circles]) for one in found if one.circles]
    return document


def _spreads(by_run: Sequence[Floats]) -> dict[str, Any]:
    n_layers, n_heads = by_run[0].shape[-2:]
    cells = np.array([[spread([one[:, i, h] for one in by_run]) for h in range(n_heads)] for i in range(n_layers)])
    return {name: _listed(cells[..., place]) for place, name in enumerate(("mean", "std_seeds", "std_inputs"))}


def _listed(values: Floats) -> Any:
    """Numbers with six digits."""
    return np.round(values, 6).tolist()
