"""What goes on inside runs, told over seeds: heads, ablations, gates and the circles of modular arithmetic as tables.

    for point in look_into_points(home, "quickstart", (), n_inputs=64, ablation=False):
        tables = inside_tables(point)

Models are loaded one by one, and only numbers are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from seedbed.errors import MissingData
from seedbed.measures.attention import NUMBERS, head_numbers, received, shares_by_kind
from seedbed.measures.fourier import neuron_shares, power, strongest, top_share
from seedbed.records import Arrays, StoredRun
from seedbed.report.attended import step_named
from seedbed.report.gather import covered_runs
from seedbed.report.tables import Table
from seedbed.settings import Arithmetic, Settings, Value
from seedbed.store.store import Store

if TYPE_CHECKING:
    from seedbed.generate.load import Loaded
    from seedbed.inside.ablation import Ablation
    from seedbed.inside.heads import Gates
    from seedbed.inside.inputs import Inputs

Floats = NDArray[np.float64]
TUNED = 0.85  # of its variance; Nanda et al. 2023 call a neuron of one frequency so
MOST_RECEIVED = 12  # positions of a table; more are in the JSON document


@dataclass(frozen=True)
class Circles:
    """The number table of modular arithmetic at one step."""

    step: int
    share: float  # of the power in the five strongest frequencies
    frequencies: tuple[int, ...]


@dataclass(frozen=True)
class Neurons:
    """The hidden units of one layer at `=`, over all pairs of numbers."""

    layer: int
    share: float  # of a unit's variance that its best frequency explains, on average
    tuned: float  # share of units of which it explains at least TUNED


@dataclass(frozen=True)
class Inside:
    """What one run shows on a sample of its held-out inputs; numbers are (B, L, H), a head's for each input."""

    run: StoredRun
    step: int
    part: str
    n_inputs: int
    point: str = ""  # in words, where a study has several
    numbers: Mapping[str, Floats] = field(default_factory=dict)
    shares: Mapping[tuple[str, str], Floats] = field(default_factory=dict)
    received: Floats | None = None  # (B, L, H, T) what each position gets
    gates: tuple[Gates, ...] = ()
    ablation: Ablation | None = None
    circles: tuple[Circles, ...] = ()
    neurons: tuple[Neurons, ...] = ()


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
        named = {run.settings: words_of(point) for run, point in zip(runs, differing_dials(runs), strict=True)}
        return [
            tuple(
                replace(look_into(store, run, n_inputs, ablation, step_named(step)), point=named[settings])
                for run in some
            )
            for settings, some in points.items()
        ]


def differing_dials(runs: Sequence[StoredRun]) -> list[dict[str, Value]]:
    """Each run's values of the dials in which these runs differ."""
    dials = [run.settings.dials() for run in runs]
    names = [name for name in dials[0] if any(one.get(name) != dials[0][name] for one in dials)]
    return [{name: one.get(name) for name in names} for one in dials]


def words_of(point: Mapping[str, Value]) -> str:
    return ", ".join(f"{name}={value}" for name, value in point.items())


def look_into(
    store: Store, run: StoredRun, n_inputs: int, ablation: bool, step: int | Literal["last", "best"] = "last"
) -> Inside:
    """The numbers of one run at a kept step."""
    from seedbed.generate.load import Loaded
    from seedbed.inside.ablation import ablate
    from seedbed.inside.circles import units_over_pairs
    from seedbed.inside.heads import gates_of
    from seedbed.inside.inputs import sample_inputs

    kept = store.kept(run.id, step)
    loaded = Loaded(run, kept.step, store.load_weights(run.id, kept.step))
    inputs = sample_inputs(loaded, n_inputs)
    told: dict[str, Any] = {"circles": _circles_over_steps(store, run)}
    told["neurons"] = tuple(_neurons(layer, units) for layer, units in enumerate(units_over_pairs(loaded)))
    if run.settings.model.kind == "lstm":
        told["gates"] = tuple(gates_of(loaded, inputs))
    else:
        told |= _of_heads(loaded, inputs)
        told["ablation"] = ablate(loaded, inputs) if ablation else None
    return Inside(run, kept.step, inputs.part, inputs.n, **told)


def _of_heads(loaded: Loaded, inputs: Inputs) -> dict[str, Any]:
    from seedbed.inside.heads import over_inputs

    def numbers(weights: Floats, which: slice) -> dict[str, Floats]:
        return head_numbers(weights, inputs.tokens[which], inputs.seen[which])

    def shares(weights: Floats, which: slice) -> dict[tuple[str, str], Floats]:
        kinds = {name: where[which] for name, where in inputs.kinds.items()}
        return shares_by_kind(weights, kinds, inputs.seen[which])

    def got(weights: Floats, which: slice) -> dict[str, Floats]:
        return {"received": received(weights, inputs.seen[which])}

    return {
        "numbers": over_inputs(loaded, inputs, numbers),
        "shares": over_inputs(loaded, inputs, shares),
        "received": over_inputs(loaded, inputs, got)["received"],
    }


def _circles_over_steps(store: Store, run: StoredRun) -> tuple[Circles, ...]:
    """The progress of the circles over all kept steps; none but for modular arithmetic."""
    task = run.settings.task
    if not isinstance(task, Arithmetic):
        return ()
    return tuple(
        _circles(kept.step, store.load_weights(run.id, kept.step), task.p) for kept in store.checkpoints(run.id)
    )


def _circles(step: int, weights: Arrays, p: int) -> Circles:
    shares = power(np.asarray(weights["embed.weight"][:p], dtype=np.float64))
    return Circles(step, top_share(shares), tuple(strongest(shares)))


def _neurons(layer: int, units: Floats) -> Neurons:
    best = np.nan_to_num(neuron_shares(units)).max(0)
    return Neurons(layer, float(best.mean()), float((best >= TUNED).mean()))


def _mean(values: Floats) -> Floats:
    """The mean over inputs; NaN where no input has a value."""
    known = np.isfinite(values)
    n = known.sum(0)
    total = np.where(known, values, 0).sum(0)
    return np.divide(total, n, out=np.full(total.shape, np.nan), where=n > 0)  # type: ignore[no-any-return]


# ---- tables ----


def inside_tables(found: Sequence[Inside]) -> list[Table]:
    """One set of tables over these runs, which differ in nothing but their seeds."""
    makers: tuple[Callable[[Sequence[Inside]], list[Table]], ...] = (
        _number_tables, _share_tables, _received_tables, _ablation_tables, _gate_tables, _circle_tables, _neuron_tables,
    )  # fmt: skip
    named = f", {found[0].point}" if found[0].point else ""
    return [replace(table, title=f"{table.title}{named}") for make in makers for table in make(found)]


def _number_tables(found: Sequence[Inside]) -> list[Table]:
    if not found[0].numbers:
        return []
    names = [name for name in NUMBERS if np.isfinite(found[0].numbers[name]).any()]
    rows = _head_rows([[one.numbers[name] for one in found] for name in names])
    said = "; ".join(f"{name}: {NUMBERS[name].words} ({NUMBERS[name].unit})" for name in names)
    return [Table("heads", ("layer", "head", *names), rows, (f"{said}.", _note(found)), n_labels=2)]


def _share_tables(found: Sequence[Inside]) -> list[Table]:
    """One table a kind of query: what its tokens give to each kind."""
    pairs = [pair for pair in found[0].shares if all(pair in one.shares for one in found)]
    tables = []
    for query in dict.fromkeys(query for _, query in pairs):
        sources = [source for source, asked in pairs if asked == query]
        if all(np.isin(one.shares[source, query], (0.0, 1.0)).all() for source in sources for one in found):
            continue  # a token that can look at nothing but itself
        rows = _head_rows([[one.shares[source, query] for one in found] for source in sources])
        who = "all tokens" if query == "all" else query
        tables.append(Table(f"share of attention from {who}", ("layer", "head", *sources), rows, n_labels=2))
    return tables


def _received_tables(found: Sequence[Inside]) -> list[Table]:
    if found[0].received is None:
        return []
    every = [one.received for one in found if one.received is not None]
    shown = min(every[0].shape[-1], MOST_RECEIVED)
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
                (str(layer + 1), str(head + 1), *(_cell([one[:, layer, head] for one in column]) for column in columns))
            )
        if n_heads > 1:
            rows.append(
                (str(layer + 1), "all", *(_cell([_mean(one[:, layer].T) for one in column]) for column in columns))
            )
    return tuple(rows)


def spread(by_run: Sequence[Floats]) -> tuple[float, float, float]:
    """Mean, std over runs (NaN for one), and std over inputs within a run, averaged over runs; population stds."""
    means = np.array([float(_mean(one)) for one in by_run])
    within = [float(np.std(known)) if len(known := one[np.isfinite(one)]) else np.nan for one in by_run]
    return float(means.mean()), float(means.std()) if len(means) > 1 else float("nan"), float(np.mean(within))


def _cell(by_run: Sequence[Floats]) -> str:
    mean, over_runs, over_inputs = spread(by_run)
    return f"{mean:.2f} ± {over_inputs if len(by_run) == 1 else over_runs:.2f}"


def _note(found: Sequence[Inside]) -> str:
    one = found[0]
    inputs = f"{one.n_inputs} inputs of {one.part}"
    if len(found) == 1:
        return f"Run {one.run.id} at step {one.step:,}: mean ± std over {inputs}."
    return f"Mean ± std over {len(found)} seeds of each run's mean over {inputs}; the std over inputs is in --json."


def _ablation_tables(found: Sequence[Inside]) -> list[Table]:
    known = [one.ablation for one in found if one.ablation is not None]
    if not known:
        return []
    n_layers, n_heads = known[0].heads.shape
    columns = ("layer", *(f"− head {head + 1}" for head in range(n_heads)), "− attention", "− MLP", "loss after layer")
    rows = []
    for layer in range(n_layers):
        values = [[one.heads[layer, head] for one in known] for head in range(n_heads)]
        values += [[one.attention[layer] for one in known], [one.mlp[layer] for one in known]]
        values += [[one.lens[layer] for one in known]]
        rows.append((str(layer + 1), *map(_loss_cell, values)))
    note = f"Loss with everything: {_loss_cell([one.loss for one in known])}; the last column is the logit lens."
    return [Table("change of the loss (nats) without a part", columns, tuple(rows), (note,))]


def _loss_cell(values: Sequence[float]) -> str:
    mean = f"{np.mean(values):.4g}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values):.2g}"


def _gate_tables(found: Sequence[Inside]) -> list[Table]:
    layers = [one.gates for one in found if one.gates]
    if not layers:
        return []
    columns: dict[str, Callable[[Gates], float]] = {f"mean {gate}": _reader("means", gate) for gate in "ifgo"}
    columns |= {f"{gate} shut": _reader("shut", gate) for gate in "ifo"}
    columns |= {f"{gate} open": _reader("open", gate) for gate in "ifo"}
    columns |= {"mean |c|": lambda gates: gates.cell, "c saturated": lambda gates: gates.cell_saturated}
    rows = [
        (str(place + 1), *(_gate_cell([read(one[place]) for one in layers]) for read in columns.values()))
        for place in range(len(layers[0]))
    ]
    note = "Shut: below 0.1; open: above 0.9; c saturated: |tanh c| above 0.9; shares of units and positions."
    return [Table("gates and cells", ("layer", *columns), tuple(rows), (note, _note(found)))]


def _reader(kind: str, gate: str) -> Callable[[Gates], float]:
    return lambda gates: float(getattr(gates, kind)[gate])


def _gate_cell(values: Sequence[float]) -> str:
    return f"{np.mean(values):.2f}" + (f" ± {np.std(values):.2f}" if len(values) > 1 else "")


def _circle_tables(found: Sequence[Inside]) -> list[Table]:
    known = [one for one in found if one.circles]
    steps = sorted({circles.step for one in known for circles in one.circles})
    if not steps:
        return []
    rows = []
    for step in steps:
        there = [(one.run.seed, circles) for one in known for circles in one.circles if circles.step == step]
        named = "; ".join(f"seed {seed}: {', '.join(map(str, one.frequencies))}" for seed, one in there[:3])
        rows.append((f"{step:,}", _gate_cell([one.share for _, one in there]), named))
    p = known[0].run.settings.task.p  # type: ignore[union-attr]
    even = min(5, p // 2) / (p // 2)
    note = (
        f"Power of the number table over 0 … {p - 1} in its five strongest frequencies; all alike would be {even:.2f}."
    )
    return [Table("circles", ("step", "share of power", "strongest frequencies"), tuple(rows), (note,))]


def _neuron_tables(found: Sequence[Inside]) -> list[Table]:
    known = [one.neurons for one in found if one.neurons]
    if not known:
        return []
    rows = [
        (
            str(place + 1),
            _gate_cell([one[place].share for one in known]),
            _gate_cell([one[place].tuned for one in known]),
        )
        for place in range(len(known[0]))
    ]
    columns = ("layer", "best frequency explains", f"units with {TUNED} or more")
    note = "Variance of each hidden unit at = over all pairs of numbers, in the waves of one frequency."
    return [Table("hidden units on circles", columns, tuple(rows), (note,))]


# ---- JSON ----


def inside_as_json(found: Sequence[Inside]) -> dict[str, Any]:
    """Every number over the runs: mean, std over seeds and std over inputs, (L, H) each."""
    document: dict[str, Any] = {
        "runs": [{"id": one.run.id, "seed": one.run.seed, "step": one.step} for one in found],
        "inputs": {"n": found[0].n_inputs, "part": found[0].part},
    }
    if found[0].numbers:
        document["numbers"] = {
            name: {"unit": NUMBERS[name].unit} | _spreads([one.numbers[name] for one in found]) for name in NUMBERS
        }
        document["shares"] = [
            {"on": pair[0], "from": pair[1]} | _spreads([one.shares[pair] for one in found if pair in one.shares])
            for pair in found[0].shares
        ]
        document["received"] = _listed(
            np.mean([_mean(one.received) for one in found if one.received is not None], axis=0)
        )
    known = [one.ablation for one in found if one.ablation is not None]
    if known:
        names = ("loss", "heads", "attention", "mlp", "lens")
        document["ablation"] = {name: [_listed(np.asarray(getattr(one, name))) for one in known] for name in names}
    document["gates"] = [[vars(gates) for gates in one.gates] for one in found if one.gates]
    document["circles"] = [[vars(circles) for circles in one.circles] for one in found if one.circles]
    document["neurons"] = [[vars(neurons) for neurons in one.neurons] for one in found if one.neurons]
    return document


def _spreads(by_run: Sequence[Floats]) -> dict[str, Any]:
    n_layers, n_heads = by_run[0].shape[-2:]
    cells = np.array([[spread([one[:, i, h] for one in by_run]) for h in range(n_heads)] for i in range(n_layers)])
    return {name: _listed(cells[..., place]) for place, name in enumerate(("mean", "std_seeds", "std_inputs"))}


def _listed(values: Floats) -> Any:
    """Numbers with six digits."""
    return np.round(values, 6).tolist()
