"""Rows and curves without a database, and the speed of loading many."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seedbed.records import EvaluationEvent
from seedbed.store import open_store
from seedbed.store.event_rows import EvaluationRows, MetricValues, SlotProgress, build_curves, fold_events
from tests.store.toy import claim, make_plan, make_run

METRICS = st.dictionaries(st.sampled_from("abcde"), st.floats(allow_nan=False), min_size=1)


def metric_values(named: dict[str, float]) -> MetricValues:
    return MetricValues.from_array(tuple(named), np.array(list(named.values())))


@given(METRICS, METRICS)
def test_merging_metric_values_is_like_merging_dictionaries(old: dict[str, float], new: dict[str, float]) -> None:
    both = metric_values(old).merged_with(metric_values(new))
    assert dict(zip(both.names, both.to_array().tolist(), strict=True)) == old | new


@given(st.lists(st.tuples(st.integers(0, 9), METRICS), max_size=12))
def test_curves_of_folded_events_hold_the_last_value_of_each_step_and_metric(
    events: list[tuple[int, dict[str, float]]],
) -> None:
    expected: dict[str, dict[int, float]] = {}
    for step, named in events:
        for name, value in named.items():
            expected.setdefault(name, {})[step] = value
    evaluations = [
        EvaluationEvent(step, (0,), tuple(named), np.array([list(named.values())])) for step, named in events
    ]
    rows: EvaluationRows = fold_events(evaluations, {0: SlotProgress("run", "running", 0)}).evaluations
    stored = [(step, each.names, each.data) for (_, step), each in sorted(rows.items(), key=lambda row: row[0])]
    steps, names, data = zip(*stored, strict=True) if stored else ((), (), ())
    ids = {each: index for index, each in enumerate(dict.fromkeys(names))}
    found = build_curves(steps, [ids[each] for each in names], data, {index: each for each, index in ids.items()}, None)
    assert {name: curve.steps.tolist() for name, curve in found.items()} == {
        name: sorted(steps) for name, steps in expected.items()
    }
    assert {name: curve.values.tolist() for name, curve in found.items()} == {
        name: [steps[step] for step in sorted(steps)] for name, steps in expected.items()
    }


def test_values_are_stored_little_endian_from_any_dtype() -> None:
    for dtype in ("<f8", ">f8", "f4"):
        assert MetricValues.from_array(("a",), np.array([1.5], dtype=dtype)).data == bytes.fromhex("000000000000f83f")


def test_many_curves_load_fast(tmp_path: Path) -> None:
    """A fifth of 1,000 runs × 200 evaluations × 8 metrics, which take 1.5 s of processor time; twice is accepted."""
    n_runs = 200
    names = tuple(f"train/metric {index}" for index in range(8))
    store = open_store(tmp_path)
    store.register(make_plan(n_runs))
    [pack_id] = claim(store, make_plan(n_runs).runs)
    values = np.random.default_rng(0).normal(size=(200, n_runs, 8))
    store.record(pack_id, [EvaluationEvent(step, tuple(range(n_runs)), names, values[step]) for step in range(200)])
    ids = [make_run(seed).id for seed in range(n_runs)]
    start = time.process_time()
    curves = store.curves(ids)
    seconds = time.process_time() - start
    found = np.array([[curves[run][name].values for name in names] for run in ids])
    assert np.array_equal(found, values.transpose(1, 2, 0))
    assert seconds < 2 * 1.5 * n_runs / 1000
