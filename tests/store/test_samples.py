"""Samples in the store: any text round-trips, a resume drops those after the save."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.records import DivergenceEvent, SampleEvent, StoredSample
from seedbed.store import Store, open_store
from seedbed.store.event_rows import SlotProgress, fold_events, sample_from_row
from tests.store.toy import claim, make_checkpoint, make_evaluation, make_plan, make_run

RUN = make_run(0).id


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(tmp_path)
    store.register(make_plan(3))
    return store


def make_sample(step: int, text: str = "and so on", slot: int = 0, number: int = 0) -> SampleEvent:
    return SampleEvent(slot, step, "my lord", text, (3, 1, 4), (-0.5, float("nan"), float("-inf")), number)


@given(st.text(st.characters(), max_size=20), st.lists(st.integers(0, 2**40)), st.lists(st.floats(allow_nan=False)))
def test_any_text_tokens_and_log_probabilities_round_trip(text: str, tokens: list[int], logs: list[float]) -> None:
    event = SampleEvent(0, 5, text, text[::-1], tuple(tokens), tuple(logs), 2)
    [row] = fold_events([event], {0: SlotProgress("run", "running", 0)}).samples
    assert sample_from_row(row) == StoredSample("run", 5, 2, text, text[::-1], tuple(tokens), tuple(logs))


def test_samples_are_ordered_by_step_and_number_per_run(store: Store) -> None:
    [pack] = claim(store, make_plan(3).runs)
    store.record(
        pack, [make_sample(4, "b", number=1), make_sample(4, "\ud800\0"), make_sample(2, "a"), make_sample(4, slot=2)]
    )
    found = [(one.step, one.number, one.text) for one in store.samples(RUN)]
    assert found == [(2, 0, "a"), (4, 0, "\ud800\0"), (4, 1, "b")]
    assert [one.step for one in store.samples(make_run(2).id)] == [4]
    assert store.samples(make_run(1).id) == []
    assert store.run(RUN).step == 4


def test_recording_again_changes_nothing_and_ended_runs_add_no_samples(store: Store) -> None:
    [pack] = claim(store, make_plan(3).runs)
    for _ in range(2):
        store.record(pack, [make_sample(3)])
    store.record(pack, [DivergenceEvent(0, 3, "loss became inf"), make_sample(4)])
    assert [one.step for one in store.samples(RUN)] == [3]


def test_resume_drops_samples_after_the_saved_step(store: Store) -> None:
    [pack] = claim(store, make_plan(3).runs)
    store.record(pack, [make_evaluation(2, [0, 1, 2], [1, 1, 1]), make_sample(2)])
    store.save(pack, make_checkpoint(2, [0]))
    store.record(pack, [make_sample(3), make_sample(4)])
    store.resume(pack)
    assert [one.step for one in store.samples(RUN)] == [2]


def test_a_reset_run_has_no_samples(store: Store) -> None:
    [pack] = claim(store, make_plan(3).runs)
    store.record(pack, [make_sample(2)])
    store.reset([RUN])
    assert store.samples(RUN) == []
