"""Which steps of a run are evaluated, and resuming from any checkpoint as if never interrupted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seedbed.records import (
    CheckpointEvent,
    DivergenceEvent,
    EvaluationEvent,
    FinishEvent,
    Placement,
    StepEvent,
    StopEvent,
)
from seedbed.settings import Settings
from seedbed.tasks.base import BatchLimits
from seedbed.training.loop import train_pack

TINY = {"task.p": 5, "model.dim": 4, "model.heads": 2, "model.layers": 1}
CPU = Placement()


def events(settings, seeds=(0,), **options):
    return [event for event in train_pack(settings, seeds, CPU, **options) if not isinstance(event, StepEvent)]


def evaluated_steps(overrides):
    history = events([Settings.from_flat(TINY | overrides)])
    return [event.step for event in history if isinstance(event, EvaluationEvent)]


def test_by_default_a_run_has_the_reports_202_evaluations():
    """0, 1 … 100, 200 … 10000, 10001 and the final 10002; trained with a tenth of the steps."""
    steps = evaluated_steps({"train.steps": 1001, "train.eval_first": 10, "train.eval_every": 10})
    assert steps == [0, *range(1, 11), *range(20, 1001, 10), 1001, 1002]
    assert len([0, *range(1, 101), *range(200, 10_001, 100), 10_001, 10_002]) == 202


def test_steps_are_rounded_up_to_whole_epochs():
    """25 equations, 12 for training; batches of 5 make 3 an epoch, so 10 steps become 12."""
    steps = evaluated_steps({"train.steps": 10, "train.batch_size": 5, "train.eval_first": 0})
    assert steps == [0, 12, 13]


@pytest.mark.parametrize(("size", "steps"), [(32, 10005), (64, 10008), (128, 10004), (256, 10002), (512, 10001)])
def test_n_steps_of_the_default_task_are_whole_epochs(size, steps):
    assert Settings.from_flat({"train.batch_size": size}).n_steps() == steps


def test_an_epoch_draws_every_training_sample_once_and_its_last_batch_is_short():
    settings, other = (Settings.from_flat(TINY | {"train.batch_size": size}) for size in (5, 4))
    batches = settings.task.make_batches([settings, other], [3, 4], "cpu", BatchLimits())
    assert batches.epoch_sampler.updates_per_epoch.tolist() == [3, 3]
    for epoch in range(2):
        seen = [[], []]
        sizes = [[], []]
        for step in range(3 * epoch, 3 * epoch + 3):
            batches.prepare(step)
            batch = batches.draw(torch.tensor([step]))
            assert batch.weights.sum(1).tolist() == pytest.approx([1.0, 1.0])
            for run in range(2):
                rows = batch.inputs[run][batch.weights[run] > 0]
                sizes[run].append(len(rows))
                seen[run] += [tuple(row) for row in rows.tolist()]
        assert sizes == [[5, 5, 2], [4, 4, 4]]
        for run, seed in enumerate((3, 4)):
            train, _ = settings.task.split_rows(seed)
            assert sorted(seen[run]) == sorted(map(tuple, settings.task.build_table().tokens[train, :-1].tolist()))
    second = batches.draw(torch.tensor([3])).inputs
    batches.prepare(0)
    assert not torch.equal(batches.draw(torch.tensor([0])).inputs, second)


def test_the_final_evaluation_repeats_the_last_one():
    history = [e for e in events([Settings.from_flat(TINY | {"train.steps": 7})]) if isinstance(e, EvaluationEvent)]
    assert history[-1].step == history[-2].step + 1
    assert np.array_equal(history[-1].values, history[-2].values)


def test_metrics_are_means_over_whole_splits():
    """Loss and accuracy recomputed sample by sample from the saved weights with torch's own functions."""
    import torch.nn.functional as F
    from tests.equivalence.reference_gpt import PlainGPT

    settings = Settings.from_flat(TINY | {"train.steps": 30, "task.orders": (2, 3), "train.lr": 0.01})
    history = events([settings], seeds=(11,))
    saved = next(event for event in history if isinstance(event, CheckpointEvent))
    last = [event for event in history if isinstance(event, EvaluationEvent)][-1]
    plain = PlainGPT(settings.model, 10, 8)
    plain.load({name: torch.from_numpy(array) for name, array in saved.weights[0].items()})
    equations = settings.task.build_table()
    n_operands = np.where(equations.groups["[order=2]"], 2, 3)
    for split_name, rows in zip(("train", "val"), settings.task.split_rows(11), strict=True):
        for suffix, wanted in (("", (2, 3)), ("[order=2]", (2,)), ("[order=3]", (3,))):
            losses, correct = [], []
            for row in rows:
                if n_operands[row] not in wanted:
                    continue
                tokens = torch.from_numpy(equations.tokens[row])
                logits = plain(tokens[None, :-1])[0]
                after = range(2 * n_operands[row], 2 * n_operands[row] + 2)  # r and EOS
                losses.append(np.mean([F.cross_entropy(logits[t], tokens[t + 1]).item() for t in after]))
                correct.append(all(logits[t].argmax() == tokens[t + 1] for t in after))
            column = last.metrics.index(f"{split_name}/loss{suffix}")
            assert last.values[0, column] == pytest.approx(np.mean(losses), rel=1e-5)
            assert last.values[0, column + 1] == pytest.approx(np.mean(correct))
    norm = np.sqrt(sum((array.astype(float) ** 2).sum() for array in saved.weights[0].values()))
    assert last.values[0, last.metrics.index("norm")] == pytest.approx(norm, rel=1e-9)


PACK = [
    Settings.from_flat(TINY | {"train.steps": 40, "train.save_every": 10, "train.eval_first": 3, "train.eval_every": 7,
                        "model.dropout": 0.2, "train.batch_size": size} | more)
    for size, more in [(5, {}), (12, {"train.schedule": "plateau", "train.threshold": 0.01}), (5, {"train.lr": 1e19})]
]  # fmt: skip


def comparable(history):
    """Events as values that compare by bytes, without times."""
    out = []
    for event in history:
        if isinstance(event, EvaluationEvent):
            out.append(("evaluated", event.step, event.slots, event.metrics, event.values.tobytes()))
        elif isinstance(event, CheckpointEvent):
            weights = [
                (slot, name, a.tobytes()) for slot, arrays in event.weights.items() for name, a in arrays.items()
            ]
            out.append(("saved", event.step, weights, {name: a.tobytes() for name, a in event.state.items()}))
        elif isinstance(event, DivergenceEvent | FinishEvent):
            out.append(event)
    return out


def test_resuming_from_any_checkpoint_equals_never_having_stopped():
    """Byte for byte, twice in a row, with dropout, shuffled batches, a plateau schedule and a diverging run."""
    whole = events(PACK, seeds=(1, 2, 3))
    assert any(isinstance(event, DivergenceEvent) for event in whole)
    saves = [i for i, event in enumerate(whole) if isinstance(event, CheckpointEvent)]
    assert len(saves) >= 4
    for i in saves[:-1]:
        resumed = events(PACK, seeds=(1, 2, 3), resume_state=whole[i].state)
        assert comparable(resumed) == comparable(whole[i + 1 :])
        again = next(event for event in resumed if isinstance(event, CheckpointEvent))
        at = next(j for j, event in enumerate(whole) if isinstance(event, CheckpointEvent) and event.step == again.step)
        assert comparable(events(PACK, seeds=(1, 2, 3), resume_state=again.state)) == comparable(whole[at + 1 :])


@pytest.mark.parametrize(("steps", "kept"), [("log", [1, 2, 4, 8, 10, 16]), ((3, 10, 99), [3, 10])])
def test_listed_steps_are_kept_and_change_nothing_else(steps, kept):
    """Beside every tenth step and the last; evaluations are the same, and any checkpoint can be resumed from."""
    pack = [Settings.from_flat(run.flat() | {"train.save_steps": steps}) for run in PACK]
    plain, whole = events(PACK, seeds=(1, 2, 3)), events(pack, seeds=(1, 2, 3))
    saves = [event for event in whole if isinstance(event, CheckpointEvent)]
    assert [event.step for event in saves if event.step < 20] == kept
    assert saves[0].weights.keys() >= {0, 1}  # the third diverges

    def without_saves(history):
        return [event for event in comparable(history) if not (isinstance(event, tuple) and event[0] == "saved")]

    assert without_saves(whole) == without_saves(plain)
    at = whole.index(saves[1])
    assert comparable(events(pack, seeds=(1, 2, 3), resume_state=saves[1].state)) == comparable(whole[at + 1 :])
    assert Settings.from_flat({"train.save_steps": [9, 3, 3]}).train.save_steps == (3, 9)


def test_a_stopped_pack_saves_its_current_step_and_resumes_exactly():
    whole, calls = events(PACK, seeds=(1, 2, 3)), iter([False] * 17 + [True])
    first = events(PACK, seeds=(1, 2, 3), should_stop=lambda: next(calls))
    assert isinstance(first[-1], StopEvent)
    saved = first[-2]
    assert isinstance(saved, CheckpointEvent)
    assert saved.step == first[-1].step == 17
    assert not saved.weights
    second = events(PACK, seeds=(1, 2, 3), resume_state=saved.state)
    assert comparable([*first[:-2], *second]) == comparable(whole)


def test_the_resume_test_notices_a_missing_moment():
    """Negative control: without the optimizer's first moments the rest of the run differs."""
    whole = events(PACK, seeds=(1, 2, 3))
    at, saved = next((i, event) for i, event in enumerate(whole) if isinstance(event, CheckpointEvent))
    incomplete = dict(saved.state) | {"optimizer.moment0": np.zeros_like(saved.state["optimizer.moment0"])}
    assert comparable(events(PACK, seeds=(1, 2, 3), resume_state=incomplete)) != comparable(whole[at + 1 :])


def test_a_diverged_run_is_reported_with_its_cause_and_no_longer_evaluated():
    whole = events(PACK, seeds=(1, 2, 3))
    diverged = next(event for event in whole if isinstance(event, DivergenceEvent))
    assert diverged.slot == 2
    assert "finite" in diverged.cause
    after = whole[whole.index(diverged) :]
    assert all(2 not in event.slots for event in after if isinstance(event, EvaluationEvent))
    assert {event.slot for event in whole if isinstance(event, FinishEvent)} == {0, 1}


def test_training_twice_gives_the_same_bytes():
    assert comparable(events(PACK, seeds=(1, 2, 3))) == comparable(events(PACK, seeds=(1, 2, 3)))


def test_a_divergence_between_evaluations_is_reported_once_after_resuming():
    """One run diverges at once; the pack stops before an evaluation, resumes, stops after it, and resumes again."""
    overrides = {"train.steps": 30, "train.eval_first": 0, "train.eval_every": 10, "train.batch_size": 512}
    runs = [Settings.from_flat(TINY | overrides | {"train.lr": lr}) for lr in (1e30, 1e-3)]

    def until(n, state=None):
        return events(runs, (0, 1), should_stop=iter([False] * n + [True] * 99).__next__, resume_state=state)

    def reported(history):
        return [
            (type(event).__name__, event.slot) for event in history if isinstance(event, DivergenceEvent | FinishEvent)
        ]

    first = until(5)
    [saved] = [event for event in first if isinstance(event, CheckpointEvent)]
    assert reported(first) == []
    assert saved.state["broken_at"][0] > 0
    second = until(10, saved.state)
    assert reported(second) == [("DivergenceEvent", 0)]
    third = until(99, [event for event in second if isinstance(event, CheckpointEvent)][-1].state)
    assert reported(third) == [("FinishEvent", 1)]
    assert reported(events(runs, (0, 1))) == [("DivergenceEvent", 0), ("FinishEvent", 1)]
