"""Splitting a pack in two, and the status of runs whose process is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from seedbed.errors import Busy, OutOfResources
from seedbed.records import CheckpointEvent, Cost, CostEvent, FinishEvent, StoredPack
from seedbed.store import Store, open_store
from seedbed.store.durable_files import is_locked
from tests.faults.disk_operations import Operation, each_operation, input_output_error
from tests.store.toy import claim, make_evaluation, make_plan

STATE = {"weights": np.arange(15.0).reshape(5, 3), "ends": np.arange(5), "step": np.array([4]), "scalar": np.array(7)}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path) as store:
        store.register(make_plan(5))
        yield store


def saved_pack(store: Store) -> str:
    """Five runs, of which the second has ended, saved at step 4."""
    [pack] = claim(store, make_plan(5).runs)
    cost = Cost({"compute": 10.0}, {"compute": 3}, steady_bytes=500, peak_bytes=900)
    store.record(pack, [make_evaluation(2, range(5), [0.5] * 5), FinishEvent(1, 3), CostEvent(4, cost)])
    store.save(pack, CheckpointEvent(4, STATE, {}))
    store.record(pack, [make_evaluation(5, [0, 2, 3, 4], [0.4] * 4)])
    return pack


def ids(*seeds: int) -> tuple[str, ...]:
    return tuple(make_plan(5).runs[seed].id for seed in seeds)


def test_each_half_resumes_with_its_slots_of_the_saved_state(store: Store) -> None:
    first, second = store.split(saved_pack(store))
    assert (first.runs, second.runs) == (ids(0, 2), ids(3, 4))
    for part, slots in ((first, [0, 2]), (second, [3, 4])):
        found = store.resume(part.id)
        assert found is not None
        assert found[0] == 4
        expected = {**STATE, "weights": STATE["weights"][slots], "ends": STATE["ends"][slots]}
        assert {name: array.tolist() for name, array in found[1].items()} == {
            name: array.tolist() for name, array in expected.items()
        }
        assert part.cost.seconds == {"compute": pytest.approx(4.0)}
        assert part.predicted_bytes == 400
    assert store.curves(ids(0))[ids(0)[0]]["val/loss"].steps.tolist() == [2]


def test_ended_runs_stay_in_the_old_pack_and_the_rest_is_claimed_in_the_new_ones(store: Store) -> None:
    old = saved_pack(store)
    parts = store.split(old)
    assert store.run(ids(1)[0]).pack == old
    assert claim(store, make_plan(5).runs) == [part.id for part in parts]
    assert {pack.id for pack in store.study_packs("toy")} == {old, *(part.id for part in parts)}


def test_an_unsaved_pack_splits_into_packs_that_start_at_step_0(store: Store) -> None:
    [pack] = claim(store, make_plan(5).runs)
    first, second = store.split(pack)
    assert (first.runs, second.runs) == (ids(0, 1, 2), ids(3, 4))
    assert (first.step, store.resume(second.id)) == (None, None)
    assert [one.id for one in store.study_packs("toy")] == sorted([first.id, second.id])


def test_a_split_is_atomic(tmp_path: Path) -> None:
    """Whichever disk operation fails, all runs can resume from step 4."""
    n, was_reached = 0, True
    while was_reached:
        n += 1
        was_reached = split_with_failure(tmp_path / str(n), n)
        with open_store(tmp_path / str(n)) as store:
            found = [store.pack(pack) for pack in claim(store, make_plan(5).runs)]
            assert [_members(pack) for pack in found] in ([ids(0, 1, 2, 3, 4)], [ids(0, 2), ids(3, 4)])
            assert [(store.resume(pack.id) or (None,))[0] for pack in found] == [4] * len(found)
    assert n > 30


def split_with_failure(home: Path, n: int) -> bool:
    """Whether a split has an n-th operation, which fails."""
    operations: list[Operation] | None = None

    def see(operation: Operation) -> None:
        if operations is not None:
            operations.append(operation)
            if len(operations) == n:
                input_output_error(operation)

    with each_operation(see, home), open_store(home) as store:
        store.register(make_plan(5))
        old = saved_pack(store)
        operations = []
        with suppress(OutOfResources):
            store.split(old)
        n_done, operations = len(operations), None
    return n_done >= n


def _members(pack: StoredPack) -> tuple[str, ...]:
    return pack.runs


# ---- runs whose process is gone ----


def test_a_run_is_running_only_while_a_process_holds_its_pack(store: Store) -> None:
    [pack] = claim(store, make_plan(5).runs)
    with store.lock(pack), open_store(store.home, read_only=True) as reader:
        store.resume(pack)
        assert {run.status for run in reader.runs("toy")} == {"running"}
        assert reader.study("toy").statuses == {"running": 5}
    with open_store(store.home, read_only=True) as reader:
        assert {run.status for run in reader.runs("toy")} == {"stopped"}
        assert reader.run(ids(0)[0]).status == "stopped"
        assert reader.study("toy").statuses == {"stopped": 5}
        assert {one.status for one in reader.progress()["toy"]} == {"stopped"}


def test_checking_a_lock_does_not_prevent_taking_it(tmp_path: Path, store: Store) -> None:
    path = store.home / "locks" / "p.lock"
    assert not is_locked(path)
    assert not path.exists()
    with store.lock("p"):
        assert is_locked(path)
        with pytest.raises(Busy), store.lock("p"):
            pass
    assert not is_locked(path)
    with store.lock("p"):
        pass


def test_chosen_runs_are_separated_from_the_others_in_their_order(store: Store) -> None:
    old = saved_pack(store)  # its run 1 has ended
    first, second = store.split(old, first={*ids(4, 0, 1), "a run of another pack"})
    assert (first.runs, second.runs) == (ids(0, 4), ids(2, 3))
    assert (first.step, second.step) == (4, 4)
    assert store.split(first.id, first=set(ids(0, 4))) == store.split(first.id, first=set(ids(2))) == []
    assert store.run(ids(0)[0]).pack == first.id
