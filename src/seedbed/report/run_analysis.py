"""What goes on inside runs: heads, ablations, gates and the circles of modular arithmetic, as arrays over inputs.

    for point in look_into_points(home, "quickstart", (), n_inputs=64, ablation=False):
        tables = inside_tables(point)

Models are loaded one by one, and only numbers are kept. Tables are left to `inside_tables`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seedbed.errors import MissingData
from seedbed.records import Arrays, StoredRun
from seedbed.report.attention_export import parse_step
from seedbed.report.fourier_analysis import FourierProgress, analyze_fourier, find_key_frequencies
from seedbed.report.study_runs import differing_settings, matching_runs
from seedbed.settings import ArithmeticSettings, Settings
from seedbed.stats.attention_stats import (
    attention_by_token_kind,
    attention_received,
    head_statistics,
    layer_distances,
    uniform_attention,
)
from seedbed.store.store import Store

if TYPE_CHECKING:
    from seedbed.interp.ablation import Ablation
    from seedbed.interp.analysis_inputs import AnalysisInputs
    from seedbed.interp.heads import GateStatistics
    from seedbed.sampling.loaded_run import LoadedRun

Floats = NDArray[np.float64]
Pair: TypeAlias = tuple[str, str]  # kinds of tokens: looked at, looking


@dataclass(frozen=True)
class RunAnalysis:
    """What one run shows on a sample of its held-out inputs; numbers are (B, L, H), a head's for each input."""

    run: StoredRun
    step: int
    split: str
    n_inputs: int
    config_label: str = ""  # in words, where a study has several
    numbers: Mapping[str, Floats] = field(default_factory=dict)
    shares: Mapping[Pair, Floats] = field(default_factory=dict)
    uniform_numbers: Mapping[str, Floats] = field(default_factory=dict)  # (B, 1, 1) of a head that looks at all alike
    uniform_shares: Mapping[Pair, Floats] = field(default_factory=dict)
    received: Floats | None = None  # (B, L, H, T) what each position gets
    layer_distances: Floats | None = None  # (B, L, L)
    gates: tuple[GateStatistics, ...] = ()
    ablation: Ablation | None = None
    fourier: tuple[FourierProgress, ...] = ()


def analyze_configs(
    home: Path, study: str, overrides: Sequence[str], n_inputs: int, ablation: bool, step: str = "last"
) -> list[tuple[RunAnalysis, ...]]:
    """The runs of a study that have weights, those that differ only in their seed together; or one run by its id."""
    with Store.open_read_only(home) as store:
        if study in {one.name for one in store.studies()}:
            runs = [run for run in matching_runs(store, study, overrides) if store.checkpoints(run.id)]
        else:
            runs = [store.run(study)]
        if not runs:
            raise MissingData(f"no run of {study} has kept weights yet; `seedbed run {study}` trains them")
        points: dict[Settings, list[StoredRun]] = {}
        for run in runs:
            points.setdefault(run.settings, []).append(run)
        differing = differing_settings(runs)
        named = {run.settings: _format_settings(run, differing) for run in runs}
        return [
            tuple(
                replace(analyze_run(store, run, n_inputs, ablation, parse_step(step)), config_label=named[settings])
                for run in some
            )
            for settings, some in points.items()
        ]


def _format_settings(run: StoredRun, names: Sequence[str]) -> str:
    """The run's values of these dials."""
    dials = run.settings.flat()
    return ", ".join(f"{name}={dials[name]}" for name in names if name in dials)


def analyze_run(
    store: Store, run: StoredRun, n_inputs: int, ablation: bool, step: int | Literal["last", "best"] = "last"
) -> RunAnalysis:
    """The numbers of one run at a kept step, and its circles at all of them."""
    from seedbed.interp.ablation import ablate

    loaded, _ = load_checkpoint(store, run, step)
    found, inputs = analyze_model(loaded, n_inputs)
    if ablation and run.settings.model.kind != "lstm":
        found = replace(found, ablation=ablate(loaded, inputs))
    return replace(found, fourier=_fourier_over_checkpoints(store, run))


def load_checkpoint(
    store: Store, run: StoredRun, step: int | Literal["last", "best"] = "last"
) -> tuple[LoadedRun, Arrays]:
    """A run's model at a kept step, and its weights as they lie in the store."""
    from seedbed.sampling.loaded_run import LoadedRun

    kept = store.find_checkpoint(run.id, step)
    weights = store.load_weights(run.id, kept.step)
    return LoadedRun(run, kept.step, weights), weights


def analyze_model(loaded: LoadedRun, n_inputs: int) -> tuple[RunAnalysis, AnalysisInputs]:
    """What a model does on a sample of its held-out inputs, and that sample."""
    from seedbed.interp.analysis_inputs import sample_inputs
    from seedbed.interp.heads import compute_gate_statistics

    inputs = sample_inputs(loaded, n_inputs)
    is_lstm = loaded.run.settings.model.kind == "lstm"
    told: dict[str, Any] = (
        {"gates": tuple(compute_gate_statistics(loaded, inputs))} if is_lstm else _head_statistics(loaded, inputs)
    )
    return RunAnalysis(loaded.run, loaded.step, inputs.split, inputs.n_inputs, **told), inputs


def _head_statistics(loaded: LoadedRun, inputs: AnalysisInputs) -> dict[str, Any]:
    from seedbed.interp.heads import map_attention

    def measured(weights: Floats, which: slice) -> dict[tuple[str, Any], Floats]:
        seen, words = inputs.non_padding[which], None if inputs.word_indices is None else inputs.word_indices[which]
        kinds = {name: where[which] for name, where in inputs.token_kinds.items()}
        numbers, shares = (
            head_statistics(weights, inputs.tokens[which], seen, words),
            attention_by_token_kind(weights, kinds, seen),
        )
        found: dict[tuple[str, Any], Floats] = {("numbers", name): values for name, values in numbers.items()}
        found |= {("shares", pair): values for pair, values in shares.items()}
        return found | {
            ("", "received"): attention_received(weights, seen),
            ("", "layer_distances"): layer_distances(weights, seen),
        }

    causal = loaded.run.settings.model.kind == "gpt"
    found = map_attention(loaded, inputs, measured)
    even = measured(uniform_attention(inputs.non_padding, causal), slice(None))
    return {
        "numbers": _select_kind("numbers", found), "shares": _select_kind("shares", found),
        "uniform_numbers": _select_kind("numbers", even), "uniform_shares": _select_kind("shares", even), **_select_kind("", found),
    }  # fmt: skip


def _select_kind(kind: str, statistics: Mapping[tuple[str, Any], Floats]) -> dict[Any, Floats]:
    return {name: values for (one, name), values in statistics.items() if one == kind}


def _fourier_over_checkpoints(store: Store, run: StoredRun) -> tuple[FourierProgress, ...]:
    """The progress of the circles over all kept steps; none but for modular arithmetic."""
    task = run.settings.task
    if not isinstance(task, ArithmeticSettings):
        return ()
    key = find_key_frequencies(store.load_weights(run.id), task.p)
    kept = [load_checkpoint(store, run, one.step) for one in store.checkpoints(run.id)]
    return tuple(analyze_fourier(loaded, weights, task.p, key) for loaded, weights in kept)


def mean_over_inputs(values: Floats) -> Floats:
    """The mean over the first axis; NaN where no input has a value."""
    known = np.isfinite(values)
    n = known.sum(0)
    total = np.where(known, values, 0).sum(0)
    return np.divide(total, n, out=np.full(total.shape, np.nan), where=n > 0)  # type: ignore[no-any-return]


def std_over_inputs(values: Floats) -> float:
    """The population std of one number over the inputs that have it."""
    known = values[np.isfinite(values)]
    return float(np.std(known)) if len(known) else float("nan")
