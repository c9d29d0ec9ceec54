"""Analyses of trained runs: attention heads, ablations, LSTM gates and Fourier structure, as arrays over inputs.

    for analyses in analyze_configs(home, "quickstart", (), n_inputs=64, ablation=False):
        tables = analysis_tables(analyses)

Models are loaded one at a time, and only statistics are kept. Tables are left to `analysis_tables`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seedbed.format import format_config
from seedbed.records import StoredRun
from seedbed.report.fourier_analysis import FourierProgress, analyze_fourier, find_key_frequencies
from seedbed.report.study_runs import differing_settings, group_stored_runs, pick_settings
from seedbed.report.trained_models import Step, load_checkpoint, parse_step, runs_with_weights, skip_damaged
from seedbed.stats.attention_stats import (
    attention_by_token_kind,
    attention_received,
    head_statistics,
    layer_distances,
    uniform_attention,
)
from seedbed.store import Store, open_store

if TYPE_CHECKING:
    from seedbed.interp.ablation import Ablation
    from seedbed.interp.activations import GateStatistics
    from seedbed.sampling.loaded_run import LoadedRun
    from seedbed.tasks.base import AnalysisInputs

Floats = NDArray[np.float64]
Pair: TypeAlias = tuple[str, str]  # kinds of tokens: key, query


@dataclass(frozen=True)
class RunAnalysis:
    """The analysis of one run on a sample of held-out inputs; numbers and shares are (B, L, H): per input and head."""

    run: StoredRun
    step: int
    split: str
    n_inputs: int
    config_label: str = ""  # if the study has several configs
    numbers: Mapping[str, Floats] = field(default_factory=dict)
    shares: Mapping[Pair, Floats] = field(default_factory=dict)
    uniform_numbers: Mapping[str, Floats] = field(default_factory=dict)  # (B, 1, 1), of uniform attention
    uniform_shares: Mapping[Pair, Floats] = field(default_factory=dict)
    received: Floats | None = None  # (B, L, H, T) attention received by each position
    layer_distances: Floats | None = None  # (B, L, L)
    gates: tuple[GateStatistics, ...] = ()
    ablation: Ablation | None = None
    fourier: tuple[FourierProgress, ...] = ()


def analyze_configs(
    home: Path, study: str, only: Sequence[str], n_inputs: int, ablation: bool, step: str = "last"
) -> list[tuple[RunAnalysis, ...]]:
    """The analyses of a study's runs that have checkpoints, grouped by config; or of one run by its id.

    Runs of a study whose weights are damaged are left out with a warning, unless no others are left.
    """
    with open_store(home, read_only=True) as store:
        runs = runs_with_weights(store, study, only)
        analysed = skip_damaged(runs, lambda run: analyze_run(store, run, n_inputs, ablation, parse_step(step)))
    differing = differing_settings(runs)
    configs = []
    for (settings, dataset), members in group_stored_runs(runs).items():
        of_dataset = {} if dataset is None else {"dataset": dataset}
        label = format_config(pick_settings(settings, differing) | of_dataset)
        analyses = (replace(analysed[run.id], config_label=label) for run in members if run.id in analysed)
        configs.append(tuple(analyses))
    return [analyses for analyses in configs if analyses]


def analyze_run(store: Store, run: StoredRun, n_inputs: int, ablation: bool, step: Step = "last") -> RunAnalysis:
    """The analysis of one run at a checkpoint, and its Fourier analysis at all checkpoints."""
    from seedbed.interp.ablation import ablate

    loaded, _ = load_checkpoint(store, run, step)
    analysis, inputs = analyze_model(loaded, n_inputs)
    if ablation and run.settings.model.has_attention:
        analysis = replace(analysis, ablation=ablate(loaded, inputs))
    return replace(analysis, fourier=_fourier_over_checkpoints(store, run))


def analyze_model(loaded: LoadedRun, n_inputs: int) -> tuple[RunAnalysis, AnalysisInputs]:
    """The analysis of a model on a sample of held-out inputs, and that sample."""
    from seedbed.interp.activations import compute_gate_statistics

    inputs = loaded.analysis_inputs(n_inputs)
    family, statistics = loaded.run.settings.model, dict[str, Any]()
    if family.has_attention:
        statistics = _head_statistics(loaded, inputs)
    elif family.gate_hooks is not None:
        statistics = {"gates": tuple(compute_gate_statistics(loaded, inputs, family.gate_hooks))}
    return RunAnalysis(loaded.run, loaded.step, inputs.split, inputs.n_inputs, **statistics), inputs


def _head_statistics(loaded: LoadedRun, inputs: AnalysisInputs) -> dict[str, Any]:
    from seedbed.interp.attention_extraction import map_attention

    def compute(weights: Floats, batch: slice) -> dict[tuple[str, Any], Floats]:
        mask, words = inputs.non_padding[batch], None if inputs.word_indices is None else inputs.word_indices[batch]
        kinds = {name: is_kind[batch] for name, is_kind in inputs.token_kinds.items()}
        numbers = head_statistics(weights, inputs.tokens[batch], mask, words)
        shares = attention_by_token_kind(weights, kinds, mask)
        statistics: dict[tuple[str, Any], Floats] = {("numbers", name): values for name, values in numbers.items()}
        statistics |= {("shares", pair): values for pair, values in shares.items()}
        return statistics | {
            ("", "received"): attention_received(weights, mask),
            ("", "layer_distances"): layer_distances(weights, mask),
        }

    computed = map_attention(loaded, inputs, compute)
    uniform = compute(uniform_attention(inputs.non_padding, loaded.run.settings.model.causal), slice(None))
    return {  # the fields of RunAnalysis by name
        "numbers": _select_kind("numbers", computed), "shares": _select_kind("shares", computed),
        "uniform_numbers": _select_kind("numbers", uniform), "uniform_shares": _select_kind("shares", uniform),
        **_select_kind("", computed),
    }  # fmt: skip


def _select_kind(kind: str, statistics: Mapping[tuple[str, Any], Floats]) -> dict[Any, Floats]:
    return {name: values for (own_kind, name), values in statistics.items() if own_kind == kind}


def _fourier_over_checkpoints(store: Store, run: StoredRun) -> tuple[FourierProgress, ...]:
    """The Fourier analysis of every checkpoint; empty unless the task has a cyclic order of numbers."""
    order: tuple[int, ...] | None = run.settings.task.cyclic_order()
    if order is None:
        return ()
    frequencies = find_key_frequencies(store.load_weights(run.id), order)
    checkpoints = [load_checkpoint(store, run, checkpoint.step) for checkpoint in store.checkpoints(run.id)]
    return tuple(analyze_fourier(loaded, weights, order, frequencies) for loaded, weights in checkpoints)


def mean_over_inputs(values: Floats) -> Floats:
    """The mean over the first axis; NaN where no input has a finite value."""
    finite = np.isfinite(values)
    n = finite.sum(0)
    total = np.where(finite, values, 0).sum(0)
    return np.divide(total, n, out=np.full(total.shape, np.nan), where=n > 0)  # type: ignore[no-any-return]


def std_over_inputs(values: Floats) -> float:
    """The population std over the inputs that have a finite value."""
    finite = values[np.isfinite(values)]
    return float(np.std(finite)) if len(finite) else float("nan")
