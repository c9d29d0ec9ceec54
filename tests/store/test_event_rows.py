"""Rows and curves without a database, and the speed of reading many."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seedbed.records import EvaluationEvent
from seedbed.store import Store
from seedbed.store.event_rows import EvaluationRows, MetricNames, MetricValues, SlotProgress, build_curves, fold_events
from tests.store.toy import claim, make_plan, make_run

READINGS = st.dictionaries(st.sampled_from("abcde"), st.floats(allow_nan=False), min_size=1)


def numbers(named: dict[str, float]) -> MetricValues:
    return MetricValues.from_array(tuple(named), np.array(list(named.values())))


@given(READINGS, READINGS)
def test_updating_numbers_is_updating_a_dictionary(old: dict[str, float], new: dict[str, float]) -> None:
    both = numbers(old).merged_with(numbers(new))
    assert dict(zip(both.names, both.to_array().tolist(), strict=True)) == old | new


@given(st.lists(st.tuples(st.integers(0, 9), READINGS), max_size=12))
def test_curves_of_folded_events_are_the_last_reading_of_each_step_and_name(
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
    stored: list[tuple[str, int, MetricNames, bytes]] = [
        (run, step, each.names, each.data) for (run, step), each in sorted(rows.items(), key=lambda row: row[0])
    ]
    found = build_curves(stored, None).get("run", {})
    assert {name: curve.steps.tolist() for name, curve in found.items()} == {
        name: sorted(steps) for name, steps in expected.items()
    }
    assert {name: curve.values.tolist() for name, curve in found.items()} == {
        name: [steps[step] for step in sorted(steps)] for name, steps in expected.items()
    }


def test_numbers_are_little_endian_whatever_they_came_as() -> None:
    for dtype in ("<f8", ">f8", "f4"):
        assert MetricValues.from_array(("a",), np.array([1.5], dtype=dtype)).data == bytes.fromhex("000000000000f83f")


def test_many_curves_are_read_fast(tmp_path: Path) -> None:
    """A fifth of 1,000 runs × 200 records × 8 names, which may take 1.5 s; a loaded machine gets twice that."""
    n_runs = 200
    names = tuple(f"train/reading {index}" for index in range(8))
    store = Store.open(tmp_path)
    store.register(make_plan(n_runs))
    [pack_id] = claim(store, make_plan(n_runs).runs)
    values = np.random.default_rng(0).normal(size=(200, n_runs, 8))
    store.record(pack_id, [EvaluationEvent(step, tuple(range(n_runs)), names, values[step]) for step in range(200)])
    ids = [make_run(seed).id for seed in range(n_runs)]
    start = time.perf_counter()
    curves = store.curves(ids)
    seconds = time.perf_counter() - start
    found = np.array([[curves[run][name].values for name in names] for run in ids])
    assert np.array_equal(found, values.transpose(1, 2, 0))
    assert seconds < 2 * 1.5 * n_runs / 1000
