"""The store contract; a store on another database inherits `StoreContract` and provides an `address` fixture."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from seedbed.errors import Busy, MissingData, UsageError
from seedbed.records import (
    Annotation,
    Annotations,
    Cost,
    CostEvent,
    DivergenceEvent,
    EvaluationEvent,
    FinishEvent,
    Pack,
    Placement,
    Plan,
    StoredEvent,
    Vocabulary,
)
from seedbed.settings import DatasetInfo, Settings
from seedbed.store import Store, open_store, store_exists, upgrade_store
from tests.store.toy import PLACEMENT, claim, make_checkpoint, make_evaluation, make_pack, make_plan, make_run, train


def values(store: Store, run_id: str, name: str = "val/loss") -> dict[int, float]:
    """One curve as {step: value}."""
    curve = store.curves([run_id])[run_id].get(name)
    return {} if curve is None else dict(zip(curve.steps.tolist(), curve.values.tolist(), strict=True))


def make_text_plan(dataset: str) -> Plan:
    """A study of two runs, named after the dataset that they are trained on."""
    runs = (replace(make_run(seed), id=f"{seed}{dataset[-2:]}") for seed in range(2))
    info = DatasetInfo(vocab_size=5, context_length=3, n_train=2, digest=dataset)
    return replace(make_plan(0, dataset), runs=tuple(replace(run, dataset_info=info) for run in runs))


class StoreContract:
    """Tests that use only the public methods of a store; `address` is where there is none yet."""

    @pytest.fixture
    def store(self, address: str) -> Iterator[Store]:
        with open_store(address) as store:
            yield store

    # ---- planning ----

    def test_registered_runs_are_listed_in_study_order_with_their_settings(self, store: Store) -> None:
        plan = make_plan(5)
        store.register(plan)
        assert [run.id for run in store.runs("toy")] == [run.id for run in plan.runs]
        assert [run.settings for run in store.runs("toy")] == [run.settings for run in plan.runs]
        assert {run.status for run in store.runs("toy")} == {"planned"}
        found = store.study("toy")
        assert (found.text, found.n_runs, found.statuses) == (plan.text, 5, {"planned": 5})

    def test_registering_again_leaves_runs_unchanged_and_merges_axes_in_order(self, store: Store) -> None:
        store.register(make_plan(3, axes=("train.lr", "model.dim")))
        [pack_id] = claim(store, make_plan(3).runs)
        train(store, pack_id)
        before = store.runs("toy")
        store.register(make_plan(4, axes=("task.p", "train.lr")))
        assert store.runs("toy")[:3] == before
        assert [run.id for run in store.runs("toy")] == [run.id for run in make_plan(4).runs]
        assert store.study("toy").axes == ("train.lr", "model.dim", "task.p")

    def test_a_run_of_two_studies_is_stored_once(self, store: Store) -> None:
        store.register(make_plan(3, "one"))
        store.register(make_plan(2, "two"))
        assert [study.n_runs for study in store.studies()] == [3, 2]
        assert len(store.runs()) == 3

    def test_runs_are_found_by_a_unique_id_prefix(self, store: Store) -> None:
        store.register(make_plan(3))
        assert store.run("0002").seed == 2
        with pytest.raises(UsageError, match=r"several runs .*0000.*write more"):
            store.run("000")
        for unknown in ("ffff", "%", "____"):
            with pytest.raises(MissingData, match="no run"):
                store.run(unknown)
        with pytest.raises(MissingData, match=r"no study 'ty'.*toy"):
            store.study("ty")
        with pytest.raises(UsageError, match=r"toy is a study; name one of its runs, such as .*0000"):
            store.run("toy")

    # ---- parts of a store ----

    def test_a_dump_holds_what_was_asked_for_and_changes_nothing_where_it_came_from(self, store: Store) -> None:
        store.register(make_plan(3))
        train(store, claim(store, make_plan(3).runs)[0])
        ids = [run.id for run in store.runs("toy")]
        assert store.runs_with_weights() == {*ids}
        dump = store.dump({"toy": ids[:2]}, "last")
        assert [run.id for run in dump.runs] == ids[:2]
        assert [(file.kind, file.owner) for file in dump.files] == [("weights", run) for run in ids[:2]]
        assert [store.find_checkpoint(run).digest for run in ids[:2]] == [file.digest for file in dump.files]
        before = store.runs("toy")
        assert store.merge(dump, store.read_file).same == tuple(ids[:2])
        assert store.runs("toy") == before
        store.remove("toy", ids)
        assert store.runs_with_weights() == set()

    # ---- packs ----

    def test_unended_runs_are_claimed_in_the_pack_they_started_in(self, store: Store) -> None:
        runs = make_plan(5).runs
        store.register(make_plan(5))
        [first] = store.claim([make_pack(runs[:3])], lambda _: Placement(threads=2))
        assert first.runs == tuple(run.id for run in runs[:3])
        again = store.claim([make_pack(runs[2:4]), make_pack([runs[4], runs[0]])], lambda _: PLACEMENT)
        assert [pack.runs for pack in again] == [first.runs, (runs[3].id,), (runs[4].id,)]
        assert [pack.placement for pack in again] == [Placement(threads=2), PLACEMENT, PLACEMENT]

    def test_ended_runs_are_not_claimed(self, store: Store) -> None:
        runs = make_plan(4).runs
        store.register(make_plan(4))
        train(store, claim(store, runs[:3])[0])
        [pack] = store.claim([make_pack(runs)], lambda _: PLACEMENT)
        assert pack.runs == (runs[3].id,)

    def test_claiming_a_settled_run_does_not_claim_its_unfinished_neighbours(self, store: Store) -> None:
        runs = make_plan(2).runs
        store.register(make_plan(2))
        [pack_id] = claim(store, runs)
        store.record(pack_id, [FinishEvent(0, 4)])
        store.save(pack_id, make_checkpoint(4))
        assert claim(store, runs[:1]) == []
        assert claim(store, runs[1:]) == [pack_id]

    def test_the_placement_is_requested_for_the_remaining_runs_only(self, store: Store) -> None:
        store.register(make_plan(4))
        train(store, claim(store, make_plan(3).runs)[0])
        requested: list[Pack] = []
        store.claim([make_pack(make_plan(4).runs)], lambda pack: requested.append(pack) or PLACEMENT)  # type: ignore[func-returns-value]
        assert [run.seed for run in requested[0].runs] == [3]

    def test_a_pack_is_held_by_one_process_at_a_time(self, store: Store) -> None:
        with store.lock("p"), pytest.raises(Busy, match=r"pack p is held by process \d+ since"), store.lock("p"):
            pass
        with store.lock("p"):
            pass

    # ---- metrics ----

    @pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 0.1 + 0.2])
    def test_values_round_trip_bit_for_bit(self, store: Store, number: float) -> None:
        store.register(make_plan(1))
        [pack_id] = claim(store, make_plan(1).runs)
        store.record(pack_id, [make_evaluation(0, [0], [number])])
        curve = store.curves([make_run(0).id])[make_run(0).id]["val/loss"]
        assert curve.values.tobytes() == np.float64(number).tobytes()

    def test_recording_the_same_events_again_changes_nothing(self, store: Store) -> None:
        store.register(make_plan(2))
        [pack_id] = claim(store, make_plan(2).runs)
        events: list[StoredEvent] = [
            make_evaluation(1, [0, 1], [0.5, math.nan]),
            DivergenceEvent(1, 1, "NaN"),
            make_evaluation(2, [0], [0.4]),
            FinishEvent(0, 1),
        ]
        store.record(pack_id, events)
        before = store.runs("toy"), values(store, make_run(0).id), store.run(make_run(1).id)
        store.record(pack_id, events)
        assert (store.runs("toy"), values(store, make_run(0).id), store.run(make_run(1).id)) == before
        assert before[1] == {1: 0.5, 2: 0.4}
        assert [(run.status, run.step, run.cause) for run in before[0]] == [
            ("finished", 1, None),
            ("diverged", 1, "NaN"),
        ]

    def test_an_ended_run_ignores_later_events(self, store: Store) -> None:
        store.register(make_plan(2))
        [pack_id] = claim(store, make_plan(2).runs)
        store.record(
            pack_id, [make_evaluation(1, [0, 1], [0.5, 0.6]), FinishEvent(0, 1), make_evaluation(1, [0], [9.0])]
        )
        store.record(pack_id, [make_evaluation(2, [0, 1], [9.0, 0.7]), DivergenceEvent(0, 2, "late")])
        assert values(store, make_run(0).id) == {1: 0.5}
        assert values(store, make_run(1).id) == {1: 0.6, 2: 0.7}
        assert store.run(make_run(0).id).status == "finished"

    def test_metrics_are_keyed_by_run_step_and_name(self, store: Store) -> None:
        """Overlapping sets of metrics at one step: the later value wins, the others stay."""
        store.register(make_plan(1))
        [pack_id] = claim(store, make_plan(1).runs)
        store.record(
            pack_id, [EvaluationEvent(3, (0,), ("a", "b"), np.array([[1.0, 2.0]])), make_evaluation(1, [0], [8.0], "b")]
        )
        store.record(pack_id, [EvaluationEvent(3, (0,), ("b", "c"), np.array([[7.0, math.inf]]))])
        found = {name: values(store, make_run(0).id, name) for name in "abc"}
        assert found == {"a": {3: 1.0}, "b": {1: 8.0, 3: 7.0}, "c": {3: math.inf}}

    def test_curves_hold_only_the_requested_metrics_and_runs(self, store: Store) -> None:
        store.register(make_plan(3))
        train(store, claim(store, make_plan(3).runs)[0])
        ids = [make_run(2).id, make_run(0).id]
        found = store.curves(ids, names=["norm"])
        assert list(found) == ids
        assert [list(curves) for curves in found.values()] == [["norm"], ["norm"]]
        assert found[ids[0]]["norm"].steps.tolist() == [1, 2, 3, 4, 5, 6, 7]

    # ---- saving and resuming ----

    def test_a_saved_state_is_resumed_with_its_step(self, store: Store) -> None:
        store.register(make_plan(2))
        [pack_id] = claim(store, make_plan(2).runs)
        assert store.resume(pack_id) is None
        state: dict[str, NDArray[np.generic]] = {
            "transposed": np.arange(6.0, dtype=np.float32).reshape(2, 3).T,
            "scalar": np.array(7),
            "empty": np.zeros((0, 3)),
            "mask": np.array([True, False]),
        }
        store.save(pack_id, make_checkpoint(2))
        store.save(pack_id, type(make_checkpoint(4))(4, state, {}))
        found = store.resume(pack_id)
        assert found is not None
        assert found[0] == 4
        assert {name: (array.dtype, array.tolist()) for name, array in found[1].items()} == {
            name: (array.dtype, array.tolist()) for name, array in state.items()
        }

    def test_the_cost_of_a_pack_is_that_of_the_last_event(self, store: Store) -> None:
        store.register(make_plan(2))
        [pack_id] = claim(store, make_plan(2).runs)
        assert (store.study_packs("toy")[0].cost, store.study_packs("toy")[0].predicted_bytes) == (Cost(), 1_000)
        last = Cost({"compute": 2.5, "save": 0.5}, {"compute": 10, "save": 1}, steady_bytes=300, peak_bytes=700)
        store.record(
            pack_id, [CostEvent(1, Cost({"compute": 1.0})), make_evaluation(2, [0], [0.5]), CostEvent(2, last)]
        )
        store.save(pack_id, make_checkpoint(2))
        assert (store.study_packs("toy")[0].cost, store.study_packs("toy")[0].predicted_bytes) == (last, 1_000)
        assert last.mean_seconds("compute") == 0.25
        assert last.mean_seconds("evaluate") is None

    def test_two_states_are_kept_and_runs_end_only_once(self, store: Store) -> None:
        store.register(make_plan(2))
        [pack_id] = claim(store, make_plan(2).runs)
        for step in (2, 4):
            store.record(pack_id, [make_evaluation(step, [0, 1], [1.0, 2.0])])
            store.save(pack_id, make_checkpoint(step, [0, 1]))
            assert store.can_resume(pack_id)
        assert store.settled_runs() == set()
        store.record(pack_id, [FinishEvent(0, 4)])
        assert store.settled_runs() == set()  # a resume would undo it
        store.save(pack_id, make_checkpoint(4, [0, 1]))
        assert store.settled_runs() == {make_run(0).id}

    def test_resume_drops_everything_after_the_save(self, store: Store) -> None:
        store.register(make_plan(3))
        [pack_id] = claim(store, make_plan(3).runs)
        store.record(
            pack_id, [make_evaluation(1, [0, 1, 2], [1.0, 1.1, 1.2]), make_evaluation(2, [0], [1.0]), FinishEvent(0, 1)]
        )
        store.save(pack_id, make_checkpoint(1, [0, 1]))
        later: list[StoredEvent] = [
            make_evaluation(2, [1, 2], [0.1, 0.2]),
            DivergenceEvent(1, 2, "inf"),
            make_evaluation(3, [2], [0.3]),
            FinishEvent(2, 2),
        ]
        store.record(pack_id, later)
        found = store.resume(pack_id)
        assert found is not None
        assert found[0] == 1
        runs = store.pack_members(pack_id)
        assert [(run.status, run.step, run.cause) for run in runs] == [
            ("finished", 1, None),
            ("running", 1, None),
            ("running", 1, None),
        ]
        assert [values(store, run.id) for run in runs] == [{1: 1.0, 2: 1.0}, {1: 1.1}, {1: 1.2}]

    def test_resume_without_a_save_drops_everything(self, store: Store) -> None:
        store.register(make_plan(2))
        [pack_id] = claim(store, make_plan(2).runs)
        store.record(pack_id, [make_evaluation(0, [0, 1], [1.0, 2.0]), FinishEvent(0, 0), DivergenceEvent(1, 0, "NaN")])
        assert store.resume(pack_id) is None
        assert [(run.status, run.cause) for run in store.pack_members(pack_id)] == [("running", None)] * 2
        assert values(store, make_run(0).id) == {}

    def test_best_step_is_the_saved_step_with_the_lowest_finite_loss(self, store: Store) -> None:
        store.register(make_plan(2))
        [pack_id] = claim(store, make_plan(2).runs)
        for step, losses in enumerate([(0.9, math.nan), (0.5, -math.inf), (math.nan, 0.7), (0.5, 0.8), (0.6, 0.7)]):
            store.record(pack_id, [make_evaluation(step, [0, 1], losses)])
            store.save(pack_id, make_checkpoint(step, [0, 1], weight=10.0 * step))
        store.record(pack_id, [make_evaluation(5, [0, 1], [0.1, 0.1])])  # never saved, so never best
        assert [run.best_step for run in store.runs("toy")] == [1, 2]
        assert store.load_weights(make_run(0).id, "best")["w"].tolist() == np.full((2, 3), 10.0).tolist()
        assert store.load_weights(make_run(1).id, "last")["w"].tolist() == np.full((2, 3), 41.0).tolist()
        assert store.load_weights("0001", 3)["w"].tolist() == np.full((2, 3), 31.0).tolist()

    def test_missing_weights_are_reported_with_the_available_steps(self, store: Store) -> None:
        store.register(make_plan(1))
        with pytest.raises(MissingData, match="no saved weights for step last; steps with weights: none"):
            store.load_weights(make_run(0).id, "last")
        [pack_id] = claim(store, make_plan(1).runs)
        store.save(pack_id, make_checkpoint(1000, [0]))
        with pytest.raises(MissingData, match="steps with weights: 1,000"):
            store.load_weights(make_run(0).id, 7)
        with pytest.raises(MissingData, match="step best"):
            store.load_weights(make_run(0).id, "best")

    def test_stopped_and_failed_runs_resume_from_their_save(self, store: Store) -> None:
        store.register(make_plan(2))
        [pack_id] = claim(store, make_plan(2).runs)
        store.record(pack_id, [make_evaluation(1, [0, 1], [1.0, 2.0]), FinishEvent(0, 1)])
        store.save(pack_id, make_checkpoint(1))
        store.stop(pack_id)
        assert [run.status for run in store.runs("toy")] == ["finished", "stopped"]
        store.fail(pack_id, "out of memory")
        assert [(run.status, run.cause) for run in store.runs("toy")] == [
            ("finished", None),
            ("failed", "out of memory"),
        ]
        assert claim(store, make_plan(2).runs) == [pack_id]
        store.resume(pack_id)
        assert [(run.status, run.cause) for run in store.pack_members(pack_id)] == [
            ("finished", None),
            ("running", None),
        ]

    def test_finish_requires_all_runs_to_have_ended(self, store: Store) -> None:
        store.register(make_plan(2))
        [pack_id] = claim(store, make_plan(2).runs)
        store.record(pack_id, [FinishEvent(0, 1)])
        with pytest.raises(ValueError, match=make_run(1).id):
            store.finish(pack_id)

    def test_environment_changes_are_stored_with_their_step(self, store: Store) -> None:
        store.register(make_plan(1))
        [pack_id] = claim(store, make_plan(1).runs)
        store.resume(pack_id, {"torch": "2.12"})
        store.save(pack_id, make_checkpoint(4))
        store.resume(pack_id, {"torch": "2.12"})
        store.resume(pack_id, {"torch": "2.13"})
        expected = ({"step": 0, "torch": "2.12"}, {"step": 4, "torch": "2.13"})
        assert store.study_packs("toy")[0].environment == expected

    # ---- resetting and removing ----

    def test_reset_makes_runs_planned_again_and_leaves_others_unchanged(self, store: Store) -> None:
        runs = make_plan(3).runs
        store.register(make_plan(3))
        train(store, claim(store, runs)[0])
        before = store.runs("toy")
        store.reset([runs[1].id])
        after = store.runs("toy")
        assert (after[0], after[2]) == (before[0], before[2])
        assert (after[1].status, after[1].step, after[1].pack, after[1].cause) == ("planned", 0, None, None)
        assert values(store, runs[1].id) == {}
        assert store.checkpoints(runs[1].id) == []
        [pack] = store.claim([make_pack(runs)], lambda _: PLACEMENT)
        assert pack.runs == (runs[1].id,)

    def test_a_pack_of_reset_runs_can_start_again(self, store: Store) -> None:
        runs = make_plan(3).runs
        store.register(make_plan(3))
        [pack_id] = claim(store, runs)
        store.save(pack_id, make_checkpoint(2, [0, 1, 2]))
        store.reset([run.id for run in runs])
        assert claim(store, runs) == [pack_id]
        assert store.resume(pack_id) is None

    def test_remove_deletes_only_runs_that_no_other_study_has(self, store: Store) -> None:
        store.register(make_plan(3, "one"))
        store.register(make_plan(2, "two"))
        train(store, claim(store, make_plan(3).runs)[0])
        ids = [run.id for run in make_plan(3).runs]
        assert store.remove("one", ids) == [ids[2]]
        assert [study.name for study in store.studies()] == ["two"]
        assert [run.id for run in store.runs()] == ids[:2]
        assert len(store.checkpoints(ids[0])) == 2
        with pytest.raises(MissingData):
            store.load_weights(ids[2])

    def test_a_removed_run_keeps_its_slot_until_its_pack_ends(self, store: Store) -> None:
        runs = make_plan(3).runs
        store.register(make_plan(3))
        [pack_id] = claim(store, runs)
        assert store.remove("toy", [runs[1].id]) == [runs[1].id]
        assert [run.id for run in store.runs()] == [runs[0].id, runs[2].id]
        assert [run.id for run in store.pack_members(pack_id)] == [run.id for run in runs]
        train(store, pack_id)
        assert [run.status for run in store.runs("toy")] == ["finished", "finished"]
        with pytest.raises(MissingData):
            store.run(runs[1].id)

    def test_runs_being_trained_are_neither_removed_nor_reset(self, store: Store) -> None:
        store.register(make_plan(2))
        [pack_id] = claim(store, make_plan(2).runs)
        store.record(pack_id, [make_evaluation(1, [0], [1.0])])
        ids = [run.id for run in make_plan(2).runs]
        with store.lock(pack_id):
            with pytest.raises(Busy):
                store.remove("toy", ids)
            with pytest.raises(Busy):
                store.reset(ids)
        assert values(store, ids[0]) == {1: 1.0}

    def test_hostile_study_names_are_stored_as_plain_text(self, store: Store) -> None:
        names = ["../../x", "'; DROP TABLE runs; --", "\x1b[2J\u202e", "é", "e\u0301", "Run", "run"]
        for name in names:
            store.register(make_plan(1, name))
        assert {study.name for study in store.studies()} == set(names)

    def test_settings_of_every_kind_round_trip(self, store: Store) -> None:
        run = make_run(0)
        lstm = type(run)(
            "ab", 7, {}, Settings.from_flat({"model.kind": "lstm", "train.betas": (0.9, 0.98)}), run.parameters
        )
        store.register(type(make_plan(1))("toy", "", (), (lstm,)))
        assert store.run("ab").settings == lstm.settings

    # ---- opening, change stamps, analyses ----

    def test_a_writer_creates_the_store_that_a_reader_then_opens(self, address: str) -> None:
        assert not store_exists(address)
        with pytest.raises(MissingData):
            open_store(address, read_only=True)
        assert not store_exists(address)
        with open_store(address) as writer:
            writer.register(make_plan(2))
        assert store_exists(address)
        with open_store(address, read_only=True) as reader:
            assert len(reader.runs("toy")) == 2
            assert reader.address

    def test_a_current_store_needs_no_upgrade(self, store: Store, address: str) -> None:
        store.register(make_plan(2))
        before = store.runs("toy")
        assert "nothing was changed" in upgrade_store(address)
        assert store.runs("toy") == before

    def test_the_change_stamp_of_a_reader_differs_after_every_write(self, store: Store, address: str) -> None:
        with open_store(address, read_only=True) as reader:
            stamps = [reader.change_stamp()]
            store.register(make_plan(2))
            stamps.append(reader.change_stamp())
            [pack_id] = claim(store, make_plan(2).runs)
            stamps.append(reader.change_stamp())
            store.record(pack_id, [make_evaluation(1, [0, 1], [0.5, 0.6])])
            stamps.append(reader.change_stamp())
            store.save(pack_id, make_checkpoint(1, [0]))
            stamps.append(reader.change_stamp())
            assert len(set(stamps)) == len(stamps)
            reader.runs("toy")
            assert reader.change_stamp() == stamps[-1]

    def test_analyses_are_listed_by_step_and_replaced(self, store: Store) -> None:
        store.register(make_plan(2))
        run = make_run(0).id
        assert store.load_analyses(run) == []
        for step, value in [(10, 0.5), (2, 0.25), (10, 0.75)]:
            store.save_analysis(run, step, {"step": step, "metrics": {"é": value}})
        assert store.load_analyses(run) == [{"step": 2, "metrics": {"é": 0.25}}, {"step": 10, "metrics": {"é": 0.75}}]
        assert store.load_analyses(make_run(1).id) == []

    def test_analyses_are_deleted_with_their_run(self, store: Store) -> None:
        store.register(make_plan(2))
        for run in make_plan(2).runs:
            store.save_analysis(run.id, 1, {"step": 1})
        store.reset([make_run(0).id])
        assert [store.load_analyses(run.id) for run in make_plan(2).runs] == [[], [{"step": 1}]]

    def test_a_reader_can_save_analyses(self, store: Store, address: str) -> None:
        store.register(make_plan(1))
        with open_store(address, read_only=True) as reader:
            reader.save_analysis(make_run(0).id, 3, {"step": 3})
        assert store.load_analyses(make_run(0).id) == [{"step": 3}]

    # ---- vocabularies ----

    def test_a_vocabulary_round_trips_and_the_first_one_stays(self, store: Store) -> None:
        vocabulary = Vocabulary("bpe", ("<pad>", "\ud800", "שלום", '"\\'), (("a", "b"), ("ab", "c")), ("no", "yes"))
        store.register(make_text_plan("text/1/aa"))
        assert store.load_vocabulary("text/1/aa") is None
        store.save_vocabulary("text/1/aa", vocabulary)
        store.save_vocabulary("text/1/aa", Vocabulary("bytes", ()))
        assert store.load_vocabulary("text/1/aa") == vocabulary
        assert list(store.dataset_dates()) == ["text/1/aa"]

    def test_a_vocabulary_is_deleted_with_the_last_run_on_its_dataset(self, store: Store) -> None:
        for dataset in ("text/1/aa", "text/1/bb"):
            store.register(make_text_plan(dataset))
            store.save_vocabulary(dataset, Vocabulary("bytes", ()))
        [first, second] = store.runs("text/1/aa")
        store.remove("text/1/aa", [first.id])
        assert store.load_vocabulary("text/1/aa") is not None
        store.remove("text/1/aa", [second.id])
        assert store.load_vocabulary("text/1/aa") is None
        assert store.load_vocabulary("text/1/bb") is not None

    # ---- notes and tags ----

    def test_notes_and_tags_belong_to_a_study_or_a_run(self, store: Store) -> None:
        store.register(make_plan(3))
        run = make_run(1).id
        assert store.annotations() == Annotations()
        store.set_note("toy", " shown in week 3\n")
        assert store.add_tags("0001", ["grokked", "a/b"]) == Annotation("", ("a/b", "grokked"))
        assert store.set_note("0001", "late") == Annotation("late", ("a/b", "grokked"))
        found = {run: Annotation("late", ("a/b", "grokked"))}
        assert store.annotations() == Annotations({"toy": Annotation("shown in week 3")}, found)
        store.remove_tags(run, ["a/b"])
        store.set_note("toy", "")
        assert store.annotations() == Annotations({}, {run: Annotation("late", ("grokked",))})

    def test_a_study_is_annotated_rather_than_a_run_whose_id_begins_with_its_name(self, store: Store) -> None:
        store.register(make_plan(2, "0001"))
        assert store.find_target("0001") == ("study", "0001")
        assert store.find_target("00010") == ("run", make_run(1).id)
        with pytest.raises(MissingData, match="no study and no run 'nothing'"):
            store.set_note("nothing", "text")

    @pytest.mark.parametrize("tag", ["", "two words", "a,b", "-draft", "a=b", "a\n"])
    def test_a_tag_is_one_word(self, store: Store, tag: str) -> None:
        store.register(make_plan(1))
        with pytest.raises(UsageError, match="cannot be a tag; expected one word"):
            store.add_tags("toy", ["fine", tag])
        with pytest.raises(UsageError, match=r"no tag 'fine' to remove; tags: none"):
            store.remove_tags("toy", ["fine"])
        assert store.annotations() == Annotations()

    def test_annotations_survive_a_reset_and_end_with_what_they_annotate(self, store: Store) -> None:
        store.register(make_plan(2))
        for target in ("toy", "0000", "0001"):
            store.add_tags(target, ["kept"])
        store.reset([make_run(0).id])
        store.register(make_plan(2))
        assert set(store.annotations().runs) == {make_run(0).id, make_run(1).id}
        store.remove("toy", [make_run(0).id])
        assert set(store.annotations().runs) == {make_run(1).id}
        store.remove("toy", [make_run(1).id])
        assert store.annotations() == Annotations()


class TestSQLiteStore(StoreContract):
    @pytest.fixture
    def address(self, tmp_path: Path) -> str:
        return f"sqlite:{tmp_path / 'lab'}"


def test_an_address_is_a_folder_or_has_a_known_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for address in ("one", "sqlite:two", Path("three:3"), "./four:4", str(tmp_path / "five:5")):
        open_store(address).close()
        assert store_exists(address)
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two", "three:3", "four:4", "five:5"}
    assert open_store("sqlite:two").address == "two/store.db"


@pytest.mark.parametrize("open_address", [open_store, store_exists, upgrade_store])
def test_an_unknown_scheme_is_answered_with_those_accepted(open_address: Callable[[str], object]) -> None:
    message = "postgres:lab: postgres is not a kind of store; expected a folder or sqlite:FOLDER "
    with pytest.raises(UsageError, match=message):
        open_address("postgres:lab")
