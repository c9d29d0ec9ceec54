"""The running training loss, and which sets are evaluated: by stacking, resuming, diverging and scheduling."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.training.test_text_training import moods, play  # noqa: F401

from seedbed.records import CheckpointEvent, EvaluationEvent, Placement, StepEvent
from seedbed.settings import Settings
from seedbed.tasks.labels import load_labelled_dataset
from seedbed.training.evaluate import compute_metrics
from seedbed.training.loop import train_pack
from seedbed.training.trainer import Trainer

DOUBLE = Placement(dtype="float64")
TINY = {
    "task.p": 5, "model.dim": 4, "model.heads": 2, "model.layers": 1, "model.dropout": 0.2, "train.epochs": 3,
    "train.eval_first": 2, "train.eval_every": 4, "train.eval_sets": ("running", "val"), "train.lr": 0.01,
    "train.save_every": 3, "train.batch_size": 2,
}  # fmt: skip


def events(settings, seeds, **options):
    return [event for event in train_pack(settings, seeds, DOUBLE, **options) if not isinstance(event, StepEvent)]


def recorded(history, slot, metric="train/running_loss"):
    """The metric of one slot by step."""
    return {
        event.step: event.values[event.slots.index(slot), event.metrics.index(metric)]
        for event in history
        if isinstance(event, EvaluationEvent) and slot in event.slots and metric in event.metrics
    }


def update_losses(settings, seed):
    """The loss of each update, from the logits of a run alone and torch's cross-entropy."""
    trainer, losses = Trainer([settings], [seed], "cpu", torch.float64), []
    for _ in range(settings.n_steps()):
        total = 0.0
        trainer.batches.prepare(len(losses))
        trainer.model.train()
        for k in range(trainer.accumulate):
            trainer.n_batches_drawn += k
            batch = trainer.batches.draw(trainer.n_batches_drawn)
            logits = trainer.forward_batch(batch)[0]
            per_token = F.cross_entropy(logits.transpose(1, 2), batch.targets[0], reduction="none")
            total += (per_token.mean(1) * batch.weights[0]).sum().item()
            trainer.n_batches_drawn -= k
        losses.append(total)
        trainer.train_step()
    return losses


@pytest.mark.parametrize("more", [{}, {"train.accumulate": 2}, {"train.label_smoothing": 0.0, "train.ema": 0.9}])
def test_it_is_the_mean_loss_of_the_updates_since_the_last_evaluation(more):
    settings = Settings.from_flat(TINY | more | {"train.final_evaluation": False})
    losses, found = update_losses(settings, 7), recorded(events([settings], [7]), 0)
    evaluated = [0, *sorted({1, 2, *range(4, len(losses) + 1, 4), len(losses)})]
    assert list(found) == evaluated[1:]
    for start, end in pairwise(evaluated):
        assert found[end] == pytest.approx(np.mean(losses[start:end]), rel=1e-12)
    assert len(set(found.values())) == len(found)


def test_a_run_is_not_affected_by_neighbours_that_end_earlier_or_diverge():
    """Batches of 2, 5 and 2 of 12 samples: the second run ends, and is evaluated alone, between the others' steps."""
    pack = [Settings.from_flat(TINY | more) for more in ({}, {"train.batch_size": 5}, {"train.lr": 1e200})]
    assert pack[1].n_steps() % 4
    together = events(pack, (1, 2, 3))
    for slot, settings in enumerate(pack):
        alone = recorded(events([settings], [slot + 1]), 0)
        assert recorded(together, slot) == pytest.approx(alone, rel=1e-9, nan_ok=True)
        assert len(alone) > 1


def test_the_loss_that_made_a_run_diverge_does_not_count():
    history = recorded(events([Settings.from_flat(TINY | {"train.lr": 1e200})], [3]), 0)
    assert np.isfinite(history[1])
    assert np.isnan(list(history.values())[-1])


def test_resuming_between_evaluations_equals_never_having_stopped():
    pack = [Settings.from_flat(TINY | more) for more in ({}, {"train.batch_size": 5})]
    whole = events(pack, (1, 2))
    saves = [event for event in whole if isinstance(event, CheckpointEvent)]
    between = next(event for event in saves if event.step == 3)
    assert between.state["running_loss.counts"].tolist() == [1, 1]
    resumed = events(pack, (1, 2), resume_state=between.state)
    for slot in range(2):
        assert recorded(resumed, slot) == {s: v for s, v in recorded(whole, slot).items() if s > 3}
    forgetful = dict(between.state) | {"running_loss.sums": np.zeros(2)}
    assert recorded(events(pack, (1, 2), resume_state=forgetful), 0) != recorded(resumed, 0)


def test_a_plateau_schedule_monitors_it_where_the_training_set_is_not_evaluated():
    """The learning rates are those of torch's schedule with the recorded values; before training there is none."""
    more = {"train.schedule": "plateau", "train.threshold": 0.05, "train.eval_first": 0, "train.epochs": 10}
    settings = Settings.from_flat(TINY | more)
    history = events([settings], [1])
    found = recorded(history, 0)
    assert 0 not in found
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    expected = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.05)
    factors = {}
    for step, value in found.items():
        if step % 4 == 0:
            expected.step(value)
            factors[step] = optimizer.param_groups[0]["lr"]
    saved = {event.step: float(event.state["schedule.drop"][0]) for event in history
             if isinstance(event, CheckpointEvent) and event.step in factors}  # fmt: skip
    assert saved
    assert saved == {step: factors[step] for step in saved}
    assert min(saved.values()) < 1


def test_text_has_its_perplexity_too(play):  # noqa: F811
    settings = Settings.from_flat(play | {"train.eval_sets": ("running", "val")})
    history = events([settings], [0])
    loss, perplexity = (recorded(history, 0, f"train/running_{name}") for name in ("loss", "perplexity"))
    assert list(loss) == list(perplexity) == [3, 6]
    assert perplexity == pytest.approx({step: np.exp(value) for step, value in loss.items()}, rel=1e-12)


@pytest.mark.parametrize("sets", [("train",), ("val",), ("running",), ("train", "val", "test"), ("running", "test")])
def test_only_the_sets_asked_for_are_evaluated(sets, moods, play):  # noqa: F811
    """Their values are those of an evaluation of all sets."""
    held_out = {"task.val_fraction": 0.2, "task.test_fraction": 0.2}
    for values in (moods, play | held_out, {"task.p": 5, "model.dim": 4, "model.heads": 2, "task.orders": (2, 3)}):
        few, every = (
            Trainer([Settings.from_flat(values | {"train.eval_sets": wanted})], [3], "cpu", torch.float64)
            for wanted in (sets, ("train", "val", "test"))
        )
        found, expected = (compute_metrics(trainer) for trainer in (few, every))
        names = {
            name for name in found if name.startswith(("train/", "val/", "test")) and not name.startswith("train/run")
        }
        assert names == {name for name in expected if name.partition("/")[0] in sets}
        assert "norm" in found
        assert ("train/running_loss" in found) == ("running" in sets)
        for name in names:
            assert torch.equal(found[name], expected[name])
        n_evaluated = sum(chunk.inputs.shape[1] for chunk in few.batches.eval_chunks())
        assert (n_evaluated == 0) == (not names)
    assert len(load_labelled_dataset(Settings.from_flat(moods).task).splits) == 2


def test_what_is_monitored_has_to_be_evaluated():
    def conflicts(**values):
        flat = {name.replace("__", "."): value for name, value in values.items()}
        return [reason for _, reason in Settings.from_flat(flat).conflicts()]

    assert conflicts(train__eval_sets=("val",)) == []
    assert conflicts(train__eval_sets=("running",), train__schedule="plateau") == []
    assert conflicts(train__eval_sets=("val",), train__schedule="plateau") == [
        'train.eval_sets = ["val"] lacks train/loss, which train.schedule = plateau monitors'
    ]
    assert conflicts(train__eval_sets=("train",), train__stop_after=3) == [
        'train.eval_sets = ["train"] lacks val/loss, which train.stop_after = 3 monitors'
    ]


def test_the_order_of_the_sets_means_nothing():
    first, second = (Settings.from_flat({"train.eval_sets": sets}) for sets in (["val", "running"], ["running", "val"]))
    assert first == second
    assert first.identity() == {"train.eval_sets": ("running", "val")}
    assert Settings.from_flat({"train.eval_sets": ["test", "val", "train"]}).identity() == {}
