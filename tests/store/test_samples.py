"""Samples in the store: any text comes back, a rewind drops what came after the save, an old store is upgraded."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.records import DivergenceEvent, SampleEvent, StoredSample
from seedbed.store import Store
from seedbed.store.event_rows import SlotProgress, fold_events, sample_from_row
from tests.store.toy import claim, evaluated, make_plan, make_run, saved

RUN = make_run(0).id


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.open(tmp_path)
    store.register(make_plan(3))
    return store


def sampled(step: int, text: str = "and so on", slot: int = 0, number: int = 0) -> SampleEvent:
    return SampleEvent(slot, step, "my lord", text, (3, 1, 4), (-0.5, float("nan"), float("-inf")), number)


class Row:
    def __init__(self, values: dict[str, object]) -> None:
        self.__dict__ = values


@given(st.text(st.characters(), max_size=20), st.lists(st.integers(0, 2**40)), st.lists(st.floats(allow_nan=False)))
def test_any_text_and_numbers_come_back(text: str, tokens: list[int], logs: list[float]) -> None:
    event = SampleEvent(0, 5, text, text[::-1], tuple(tokens), tuple(logs), 2)
    [row] = fold_events([event], {0: SlotProgress("run", "running", 0)}).samples
    assert sample_from_row(Row(row)) == StoredSample("run", 5, 2, text, text[::-1], tuple(tokens), tuple(logs))


def test_samples_come_back_by_step_and_number_for_their_run_alone(store: Store) -> None:
    [pack] = claim(store, make_plan(3).runs)
    store.record(pack, [sampled(4, "b", number=1), sampled(4, "\ud800\0"), sampled(2, "a"), sampled(4, slot=2)])
    found = [(one.step, one.number, one.text) for one in store.samples(RUN)]
    assert found == [(2, 0, "a"), (4, 0, "\ud800\0"), (4, 1, "b")]
    assert [one.step for one in store.samples(make_run(2).id)] == [4]
    assert store.samples(make_run(1).id) == []
    assert store.run(RUN).step == 4


def test_the_same_again_changes_nothing_and_an_ended_run_writes_no_more(store: Store) -> None:
    [pack] = claim(store, make_plan(3).runs)
    for _ in range(2):
        store.record(pack, [sampled(3)])
    store.record(pack, [DivergenceEvent(0, 3, "loss became inf"), sampled(4)])
    assert [one.step for one in store.samples(RUN)] == [3]


def test_what_was_written_after_the_saved_step_is_dropped_on_resume(store: Store) -> None:
    [pack] = claim(store, make_plan(3).runs)
    store.record(pack, [evaluated(2, [0, 1, 2], [1, 1, 1]), sampled(2)])
    store.save(pack, saved(2, [0]))
    store.record(pack, [sampled(3), sampled(4)])
    store.resume(pack)
    assert [one.step for one in store.samples(RUN)] == [2]


def test_a_reset_run_has_no_samples(store: Store) -> None:
    [pack] = claim(store, make_plan(3).runs)
    store.record(pack, [sampled(2)])
    store.reset([RUN])
    assert store.samples(RUN) == []


def make_old(home: Path) -> None:
    """The store as schema 1 had it."""
    with sqlite3.connect(home / "store.db") as connection:
        connection.execute("DROP TABLE samples")
        connection.execute("DROP TABLE costs")
        connection.execute("UPDATE meta SET value = '1' WHERE key = 'schema'")
    connection.close()


def test_an_old_store_is_upgraded_when_opened_for_writing_and_keeps_its_readings(store: Store) -> None:
    [pack] = claim(store, make_plan(3).runs)
    store.record(pack, [evaluated(2, [0], [0.25])])
    store.close()
    make_old(store.home)
    with Store.open(store.home) as again:
        assert again.curves([RUN])[RUN]["val/loss"].values.tolist() == [0.25]
        again.record(pack, [sampled(3)])
    with Store.open_read_only(store.home) as reader:
        assert [one.step for one in reader.samples(RUN)] == [3]


def test_an_old_store_that_is_only_read_has_no_samples_and_stays_as_it_was(store: Store) -> None:
    store.close()
    make_old(store.home)
    before = (store.home / "store.db").read_bytes()
    with Store.open_read_only(store.home) as reader:
        assert reader.samples(RUN) == []
    assert (store.home / "store.db").read_bytes() == before
