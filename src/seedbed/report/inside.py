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
from seedbed.measures.attention import even_weights, head_numbers, layers_apart, received, shares_by_kind
from seedbed.records import Arrays, StoredRun
from seedbed.report.attended import step_named
from seedbed.report.circles import Circles, circles_of, key_of
from seedbed.report.gather import covered_runs, differing_dials
from seedbed.settings import Arithmetic, Settings
from seedbed.store.store import Store

if TYPE_CHECKING:
    from seedbed.generate.load import Loaded
    from seedbed.inside.ablation import Ablation
    from seedbed.inside.heads import Gates
    from seedbed.inside.inputs import Inputs

Floats = NDArray[np.float64]
Pair: TypeAlias = tuple[str, str]  # kinds of tokens: looked at, looking


@dataclass(frozen=True)
class Inside:
    """What one run shows on a sample of its held-out inputs; numbers are (B, L, H), a head's for each input."""

    run: StoredRun
    step: int
    part: str
    n_inputs: int
    point: str = ""  # in words, where a study has several
    numbers: Mapping[str, Floats] = field(default_factory=dict)
    shares: Mapping[Pair, Floats] = field(default_factory=dict)
    even: Mapping[str, Floats] = field(default_factory=dict)  # (B, 1, 1) of a head that looks at all alike
    even_shares: Mapping[Pair, Floats] = field(default_factory=dict)
    received: Floats | None = None  # (B, L, H, T) what each position gets
    layers_apart: Floats | None = None  # (B, L, L)
    gates: tuple[Gates, ...] = ()
    ablation: Ablation | None = None
    circles: tuple[Circles, ...] = ()


def look_into_points(
    home: Path, study: str, words: Sequence[str], n_inputs: int, ablation: bool, step: str = "last"
) -> list[tuple[Inside, ...]]:
    """The runs of a study that have weights, those that differ only in their seed together; or one run by its id."""
    with Store.read(home) as store:
        if study in {one.name for one in store.studies()}:
            runs = [run for run in covered_runs(store, study, words) if store.checkpoints(run.id)]
        else:
            runs = [store.run(study)]
        if not runs:
            raise MissingData(f"no run of {study} has kept weights yet; `seedbed run {study}` trains them")
        points: dict[Settings, list[StoredRun]] = {}
        for run in runs:
            points.setdefault(run.settings, []).append(run)
        differing = differing_dials(runs)
        named = {run.settings: _in_words(run, differing) for run in runs}
        return [
            tuple(
                replace(look_into(store, run, n_inputs, ablation, step_named(step)), point=named[settings])
                for run in some
            )
            for settings, some in points.items()
        ]


def _in_words(run: StoredRun, names: Sequence[str]) -> str:
    """The run's values of these dials."""
    dials = run.settings.dials()
    return ", ".join(f"{name}={dials[name]}" for name in names if name in dials)


def look_into(
    store: Store, run: StoredRun, n_inputs: int, ablation: bool, step: int | Literal["last", "best"] = "last"
) -> Inside:
    """The numbers of one run at a kept step, and its circles at all of them."""
    from seedbed.inside.ablation import ablate

    loaded, _ = load_kept_run(store, run, step)
    found, inputs = look_at(loaded, n_inputs)
    if ablation and run.settings.model.kind != "lstm":
        found = replace(found, ablation=ablate(loaded, inputs))
    return replace(found, circles=_circles_over_steps(store, run))


def load_kept_run(store: Store, run: StoredRun, step: int | Literal["last", "best"] = "last") -> tuple[Loaded, Arrays]:
    """A run's model at a kept step, and its weights as they lie in the store."""
    from seedbed.generate.load import Loaded

    kept = store.kept(run.id, step)
    weights = store.load_weights(run.id, kept.step)
    return Loaded(run, kept.step, weights), weights


def look_at(loaded: Loaded, n_inputs: int) -> tuple[Inside, Inputs]:
    """What a model does on a sample of its held-out inputs, and that sample."""
    from seedbed.inside.heads import gates_of
    from seedbed.inside.inputs import sample_inputs

    inputs = sample_inputs(loaded, n_inputs)
    is_lstm = loaded.run.settings.model.kind == "lstm"
    told: dict[str, Any] = {"gates": tuple(gates_of(loaded, inputs))} if is_lstm else _of_heads(loaded, inputs)
    return Inside(loaded.run, loaded.step, inputs.part, inputs.n, **told), inputs


def _of_heads(loaded: Loaded, inputs: Inputs) -> dict[str, Any]:
    from seedbed.inside.heads import over_inputs

    def measured(weights: Floats, which: slice) -> dict[tuple[str, Any], Floats]:
        seen, words = inputs.seen[which], None if inputs.words is None else inputs.words[which]
        kinds = {name: where[which] for name, where in inputs.kinds.items()}
        numbers, shares = head_numbers(weights, inputs.tokens[which], seen, words), shares_by_kind(weights, kinds, seen)
        found: dict[tuple[str, Any], Floats] = {("numbers", name): values for name, values in numbers.items()}
        found |= {("shares", pair): values for pair, values in shares.items()}
        return found | {("", "received"): received(weights, seen), ("", "layers_apart"): layers_apart(weights, seen)}

    causal = loaded.run.settings.model.kind == "gpt"
    found = over_inputs(loaded, inputs, measured)
    even = measured(even_weights(inputs.seen, causal), slice(None))
    return {
        "numbers": _of_kind("numbers", found), "shares": _of_kind("shares", found),
        "even": _of_kind("numbers", even), "even_shares": _of_kind("shares", even), **_of_kind("", found),
    }  # fmt: skip


def _of_kind(kind: str, found: Mapping[tuple[str, Any], Floats]) -> dict[Any, Floats]:
    return {name: values for (one, name), values in found.items() if one == kind}


def _circles_over_steps(store: Store, run: StoredRun) -> tuple[Circles, ...]:
    """The progress of the circles over all kept steps; none but for modular arithmetic."""
    task = run.settings.task
    if not isinstance(task, Arithmetic):
        return ()
    key = key_of(store.load_weights(run.id), task.p)
    kept = [load_kept_run(store, run, one.step) for one in store.checkpoints(run.id)]
    return tuple(circles_of(loaded, weights, task.p, key) for loaded, weights in kept)


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
