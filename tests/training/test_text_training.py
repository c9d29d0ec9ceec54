"""Text and labels in training: readings against hand loops, budgets, stopping, and going on mid-epoch."""

from __future__ import annotations

import os
from math import exp, log

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from seedbed.data.dataset_info import get_dataset_info
from seedbed.data.datasets import load_labelled_dataset, load_text_dataset
from seedbed.data.windows import consecutive_windows, gather_windows
from seedbed.errors import UsageError
from seedbed.models.build import build_model, build_pack, load_run_arrays
from seedbed.models.layers import running_stats
from seedbed.models.parameters import FlatParameters
from seedbed.records import (
    CheckpointEvent,
    Cost,
    CostEvent,
    EvaluationEvent,
    FinishEvent,
    Placement,
    SampleEvent,
    StepEvent,
    StopEvent,
)
from seedbed.sampling.sampler import generate_tokens
from seedbed.settings import Settings
from seedbed.training.evaluate import compute_metrics
from seedbed.training.loop import train_pack
from seedbed.training.trainer import Trainer

PLAY = "to be, or not to be: that is the question. whether 'tis nobler — ähm — in the mind to suffer the slings "
DOUBLE = Placement(dtype="float64")


@pytest.fixture
def play(tmp_path):
    path = tmp_path / "play.txt"
    path.write_text("".join(PLAY[i % 7 :] for i in range(9)), encoding="utf-8")
    return {"task.kind": "text", "task.corpus": str(path), "task.length": 7, "task.sampler": "epochs",
            "model.dim": 8, "model.heads": 2, "model.layers": 1, "train.batch_size": 5, "train.steps": 6,
            "train.eval_first": 0, "train.eval_every": 3, "train.weight_decay": 0.1, "train.lr": 0.01,
            "train.final_evaluation": False}  # fmt: skip


@pytest.fixture
def moods(tmp_path):
    path = tmp_path / "moods.tsv"
    lines = [f"{'glad' if i % 3 else 'sad'}\tday {i % 5} was {'fine' if i % 3 else 'grey'}\n" for i in range(31)]
    path.write_text("".join(lines), encoding="utf-8")
    return {"task.kind": "labels", "task.corpus": str(path), "task.length": 6, "task.val_fraction": 0.2,
            "model.kind": "encoder", "model.dim": 8, "model.heads": 2, "model.layers": 1, "model.batch_norm": True,
            "model.classifier_dropout": 0.3, "train.batch_size": 4, "train.steps": 20, "train.eval_first": 0,
            "train.eval_every": 4, "train.lr": 0.01, "train.final_evaluation": False}  # fmt: skip


def events(dials, seeds=(0,), placement=DOUBLE, **more):
    runs = (
        [Settings.from_flat(dials)] * len(seeds)
        if isinstance(dials, dict)
        else [Settings.from_flat(one) for one in dials]
    )
    return [event for event in train_pack(runs, seeds, placement, **more) if not isinstance(event, StepEvent)]


def last_readings(found, slot=0):
    record = [event for event in found if isinstance(event, EvaluationEvent) and slot in event.slots][-1]
    return dict(zip(record.metrics, record.values[record.slots.index(slot)].tolist(), strict=True))


def model_of(settings, weights):
    """The trained model of one run, with a run axis of one."""
    model = build_model(settings)
    FlatParameters(model, 1, torch.device("cpu"), torch.float64).load_arrays(0, weights)
    return model.eval()


def token_losses(model, ids, windows):
    """By hand: every window by itself through torch's cross_entropy; the losses and hits of its scored targets."""
    tokens, mask = gather_windows(ids, windows)
    for row, scored in zip(torch.from_numpy(tokens), torch.from_numpy(mask), strict=True):
        with torch.no_grad():
            logits = model(row[None, None, :-1])[0, 0]
        losses = F.cross_entropy(logits, row[1:], reduction="none")
        yield losses[scored].numpy(), (logits.argmax(-1) == row[1:])[scored].numpy(), row[1:][scored].numpy()


@pytest.mark.parametrize("kind", ["gpt", "lstm"])
def test_readings_of_text_are_counted_token_by_token(play, kind):
    dials = play | {"model.kind": kind} if kind == "gpt" else {k: v for k, v in play.items() if k != "model.heads"} | {
        "model.kind": "lstm"}  # fmt: skip
    settings, found = Settings.from_flat(dials), events(dials)
    saved = next(event for event in found if isinstance(event, CheckpointEvent))
    text, readings = load_text_dataset(settings.task), last_readings(found)
    for name in ("train", "val"):
        part = text.splits[name]
        by_window = list(
            token_losses(model_of(settings, saved.weights[0]), part.ids, consecutive_windows(part.spans, 7))
        )
        losses, hits, targets = (np.concatenate(each) for each in zip(*by_window, strict=True))
        written = text.tokenizer.decode(targets.tolist())
        assert readings[f"{name}/loss"] == pytest.approx(losses.mean())
        assert readings[f"{name}/perplexity"] == pytest.approx(exp(losses.mean()))
        assert readings[f"{name}/accuracy"] == pytest.approx(hits.mean())
        assert readings[f"{name}/bits_per_character"] == pytest.approx(losses.sum() / log(2) / len(written))
        assert readings[f"{name}/bits_per_byte"] == pytest.approx(losses.sum() / log(2) / len(written.encode()))
        assert len(written.encode()) > len(written)  # the two differ in this text
        batches = [by_window[i : i + 5] for i in range(0, len(by_window), 5)]
        assert len(batches[-1]) < 5
        padded = [np.mean([one[0].mean() for one in batch]) * sum(len(one[0]) for one in batch) / (5 * 7)
                  for batch in batches]  # fmt: skip
        assert readings[f"{name}/perplexity_padded"] == pytest.approx(exp(np.mean(padded)))
        assert readings[f"{name}/perplexity_padded"] < readings[f"{name}/perplexity"]


def test_longer_contexts_are_read_side_by_side_and_sliding_by_half(play):
    dials = play | {"model.positions": "alibi", "task.lengths": (12,)}
    settings, found = Settings.from_flat(dials), events(dials)
    saved, readings = next(event for event in found if isinstance(event, CheckpointEvent)), last_readings(found)
    part, model = load_text_dataset(settings.task).splits["val"], model_of(settings, saved.weights[0])
    side = np.concatenate([one[0] for one in token_losses(model, part.ids, consecutive_windows(part.spans, 12))])
    assert readings["val/perplexity[length=12]"] == pytest.approx(exp(side.mean()))
    start, n = int(part.spans.starts[0]), int(part.spans.lengths[0])
    ids, total = torch.from_numpy(part.ids[start : start + n].astype(np.int64)), 0.0
    for place in range(1, n):  # windows begin at multiples of 6; a token is told by the first that reaches it
        window = 6 * max(0, -(-(place - 12) // 6))
        with torch.no_grad():
            logits = model(ids[None, None, window:place])[0, 0, -1]
        total += float(F.cross_entropy(logits, ids[place]))
    assert readings["val/perplexity_sliding[length=12]"] == pytest.approx(exp(total / (n - 1)))
    assert not any(name.startswith("train/") and "length" in name for name in readings)


def test_learned_positions_are_not_read_beyond_their_table(play):
    readings = last_readings(events(play | {"model.positions": "learned", "task.lengths": (12, 3)}))
    assert "val/perplexity[length=3]" in readings
    assert not any("length=12" in name for name in readings)


def test_eval_batches_limits_what_a_record_reads(play):
    trainer = Trainer([Settings.from_flat(play | {"train.eval_batches": 2})], [0], "cpu", torch.float64)
    whole = Trainer([Settings.from_flat(play)], [0], "cpu", torch.float64)
    assert [int(part.sample_mask.sum()) for part in trainer.batches.eval_splits] == [10, 10]
    assert (
        int(whole.batches.eval_splits[0].sample_mask.sum())
        == get_dataset_info(Settings.from_flat(play).task).n_train
        > 10
    )
    assert set(compute_metrics(trainer)) == set(compute_metrics(whole))


# ---- going on ----


def comparable(found):
    out = []
    for event in found:
        if isinstance(event, EvaluationEvent):
            out.append((event.step, event.slots, event.metrics, event.values.tobytes()))
        elif isinstance(event, CheckpointEvent):
            weights = [
                (slot, name, a.tobytes()) for slot, arrays in event.weights.items() for name, a in arrays.items()
            ]
            out.append((event.step, weights, {name: a.tobytes() for name, a in event.state.items()}))
        elif isinstance(event, FinishEvent | SampleEvent):
            out.append(event)
    return out


@pytest.mark.parametrize(("sampler", "in_step"), [("documents", 4096), ("windows", 3), ("epochs", 4096)])
def test_text_goes_on_mid_epoch_as_if_never_stopped(play, sampler, in_step, monkeypatch):
    monkeypatch.setattr("seedbed.data.batch.IN_STEP", in_step)
    dials = play | {"task.sampler": sampler, "train.save_every": 5, "train.steps": 40, "train.accumulate": 2,
                    "train.ema": 0.9, "model.dropout": 0.1, "train.decay_parameters": "matrices",
                    "train.stop_after": 5, "train.sample_every": 8, "train.sample_tokens": 3}  # fmt: skip
    pack = [dials, dials | {"train.batch_size": 4, "train.schedule": "plateau"}]
    whole = events(pack, (1, 2), Placement())
    for i in [i for i, event in enumerate(whole) if isinstance(event, CheckpointEvent)][:-1:3]:
        assert comparable(events(pack, (1, 2), Placement(), resume=whole[i].state)) == comparable(whole[i + 1 :])


def test_labels_go_on_with_their_running_statistics(moods):
    whole = events(moods | {"train.save_every": 6}, (1, 2, 3), Placement())
    at, saved = next((i, event) for i, event in enumerate(whole) if isinstance(event, CheckpointEvent))
    again = events(moods | {"train.save_every": 6}, (1, 2, 3), Placement(), resume=saved.state)
    assert comparable(again) == comparable(whole[at + 1 :])
    forgetful = {name: np.zeros_like(a) if name.endswith("norm.mean") else a for name, a in saved.state.items()}
    other = events(moods | {"train.save_every": 6}, (1, 2, 3), Placement(), resume=forgetful)
    assert comparable(other) != comparable(whole[at + 1 :])


def test_a_classifier_learns_and_what_is_kept_of_it_classifies_alike(moods):
    """Its running statistics are kept beside its weights; read back, they give the accuracy that was recorded."""
    found, settings = events(moods | {"train.steps": 60}), Settings.from_flat(moods)
    step = torch.zeros(1, dtype=torch.int64)
    model, bank = build_pack([settings], [9], step, torch.float64)
    load_run_arrays(model, bank, 0, found[-2].weights[0])
    for name, part in load_labelled_dataset(settings.task).splits.items():
        with torch.no_grad():
            logits = model.eval()(torch.from_numpy(part.rows)[None])[0, :, 0]
        loss = F.cross_entropy(logits, torch.from_numpy(part.labels))
        assert last_readings(found)[f"{name}/loss"] == pytest.approx(float(loss))
        assert last_readings(found)[f"{name}/accuracy"] == np.mean(logits.argmax(-1).numpy() == part.labels)
    assert last_readings(found)["train/accuracy"] == 1.0


def test_a_batch_without_samples_leaves_running_statistics_alone(moods):
    """25 texts, 24 an update: the second update of an epoch has one text, and two of its three batches have none."""
    settings = Settings.from_flat(moods | {"train.batch_size": 8, "train.accumulate": 3})
    trainer = Trainer([settings], [0], "cpu", torch.float64)
    trainer.model.train()
    for number, is_empty in enumerate((False, False, False, False, True, True)):
        before = {name: held.clone() for name, held in running_stats(trainer.model).items()}
        trainer._backward()
        for name, held in running_stats(trainer.model).items():
            assert held.isfinite().all()
            assert torch.equal(held, before[name]) == is_empty, (number, name)


# ---- how long ----


@pytest.mark.parametrize(("budget", "steps"), [
    ({"train.epochs": 3}, 72), ({"train.epochs": 3, "train.accumulate": 2}, 36),
    ({"train.max_tokens": 1000}, 29), ({"train.max_tokens": 1000, "train.accumulate": 2}, 15),
])  # fmt: skip
def test_epochs_and_tokens_become_steps(play, budget, steps):
    """823 training tokens: 118 windows of 7, 24 batches of 5; a batch shows 35 tokens."""
    dials = {name: value for name, value in play.items() if name != "train.steps"} | budget
    settings = Settings.from_flat(dials)
    assert load_text_dataset(settings.task).splits["train"].spans.n_tokens == 823
    assert settings.n_steps(get_dataset_info(settings.task)) == steps
    assert [event.step for event in events(dials) if isinstance(event, FinishEvent)] == [steps]


def test_a_budget_of_seconds_ends_at_a_record_and_is_resumed_with_what_is_left(play):
    dials = {name: value for name, value in play.items() if name != "train.steps"} | {"train.seconds": 0.05}
    found = events(dials)
    end = next(event for event in found if isinstance(event, FinishEvent))
    assert end.step % 3 == 0
    assert [type(event) for event in found[-3:]] == [CostEvent, CheckpointEvent, CostEvent]
    assert found[-1].cost.seconds["compute"] >= 0.05
    calls = iter([False, True])
    first = events(dials, stop=lambda: next(calls))
    assert isinstance(first[-1], StopEvent)
    rest = events(dials, resume=first[-2].state, spent=Cost({"compute": 0.05, "evaluate": 0.0}))
    assert [event.step for event in rest if isinstance(event, FinishEvent)] == [3]


def test_a_run_without_progress_stops_with_its_best_and_last_weights(play):
    """A run that learns nothing after its first steps; its neighbour, unharmed, is as alone."""
    dials = play | {"train.steps": 300, "train.stop_after": 3, "train.lr": 0.3, "train.clip": 0.0}
    patient = dials | {"train.lr": 1e-4}
    found = events([dials, patient], (0, 0))
    ends = {event.slot: event.step for event in found if isinstance(event, FinishEvent)}
    curve = {
        e.step: e.values[0, e.metrics.index("val/loss")]
        for e in found
        if isinstance(e, EvaluationEvent) and 0 in e.slots
    }
    best = min(curve, key=curve.get)
    assert ends[0] == best + 9 < ends[1]
    kept = {event.step for event in found if isinstance(event, CheckpointEvent) and 0 in event.weights}
    assert {best, ends[0]} - {0} <= kept
    assert all(curve[step] == min(v for s, v in curve.items() if s <= step) for step in kept - {ends[0]})
    alone = events(patient)
    assert last_readings(found, 1)["val/loss"] == pytest.approx(last_readings(alone)["val/loss"], rel=1e-9)


@pytest.mark.parametrize(
    "more", [{"train.stop_after": 2}, {"train.schedule": "plateau", "train.plateau_metric": "val/loss"}]
)
def test_watching_a_validation_set_that_is_not_there_is_refused(play, more):
    with pytest.raises(UsageError, match="needs a validation set"):
        events(play | {"task.val_fraction": 0.0} | more)


# ---- how ----


def weights_after(dials, seed=3):
    found = events(dials, (seed,))
    return next(event for event in found if isinstance(event, CheckpointEvent)).weights[0]


@pytest.mark.parametrize("sampler", ["documents", "windows"])
def test_accumulated_gradients_are_those_of_the_large_batch(play, sampler):
    several = weights_after(play | {"task.sampler": sampler, "train.batch_size": 4, "train.accumulate": 3})
    large = weights_after(play | {"task.sampler": sampler, "train.batch_size": 12})
    for name, values in large.items():
        np.testing.assert_allclose(several[name], values, rtol=1e-9, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw"])
def test_decay_of_matrices_leaves_biases_and_norms_alone(play, optimizer):
    """Against a run with the same gradients: with learning rate tiny and decay huge only decay moves weights."""
    start = Trainer([Settings.from_flat(play)], [3], "cpu", torch.float64).parameters.get_arrays(0)
    dials = play | {"train.optimizer": optimizer, "train.lr": 1e-9, "train.weight_decay": 1e6, "train.steps": 1}
    ended = weights_after(dials | {"train.decay_parameters": "matrices"})
    unmoved = weights_after(dials | {"train.weight_decay": 0.0})
    for name, values in ended.items():
        if start[name].ndim > 1:
            assert not np.allclose(values, unmoved[name], rtol=1e-12, atol=0), name
        else:
            np.testing.assert_array_equal(values, unmoved[name], err_msg=name)


def test_the_running_mean_of_weights_is_kept_and_evaluated(play):
    """By hand: θ̄ ← 0.5 θ̄ + 0.5 θ from the initial weights on; readings and kept weights are the mean's."""
    trainer = Trainer([Settings.from_flat(play)], [3], "cpu", torch.float64)
    mean = trainer.parameters.weights.clone()
    for _ in range(6):
        trainer.train_step()
        mean = 0.5 * mean + 0.5 * trainer.parameters.weights.detach()
    found = events(play | {"train.ema": 0.5}, (3,))
    kept = next(event for event in found if isinstance(event, CheckpointEvent))
    trainer.parameters.weights.copy_(mean)
    for name, values in trainer.parameters.get_arrays(0).items():
        np.testing.assert_allclose(kept.weights[0][name], values, rtol=1e-10, atol=1e-12)
    for name, value in compute_metrics(trainer).items():
        assert last_readings(found)[name] == pytest.approx(float(value[0]), rel=1e-9), name


def test_label_smoothing_is_torchs(play):
    settings = Settings.from_flat(play | {"train.label_smoothing": 0.2, "task.sampler": "windows"})
    trainer = Trainer([settings], [0], "cpu", torch.float64)
    batch = trainer.batches.draw(trainer.n_batches_drawn)
    logits = trainer.forward_batch(batch)
    expected = F.cross_entropy(logits[0].flatten(0, 1), batch.targets[0].flatten(), label_smoothing=0.2)
    torch.testing.assert_close(trainer._batch_losses()[0], expected)


# ---- what is written ----


@pytest.mark.parametrize("tokens", ["characters", "words", "bytes"])
def test_samples_are_those_of_the_kept_weights_and_their_texts_go_on_from_the_prompt(play, tokens):
    dials = play | {"task.tokenizer": tokens, "train.sample_every": 2, "train.prompt": "to be", "train.sample_tokens": 11,
                    "train.save_every": 2, "train.ema": 0.3}  # fmt: skip
    found = events(dials, (4, 5))
    written = [event for event in found if isinstance(event, SampleEvent)]
    assert [(event.step, event.slot) for event in written] == [(s, slot) for s in (2, 4, 6) for slot in (0, 1)]
    settings, kept = Settings.from_flat(dials), [event for event in found if isinstance(event, CheckpointEvent)]
    vocabulary = load_text_dataset(settings.task).tokenizer
    prompt = torch.from_numpy(vocabulary.encode("to be").astype(np.int64))[None, None]
    for event in written:
        weights = next(saved for saved in kept if saved.step == event.step).weights[event.slot]
        expected = generate_tokens(model_of(settings, weights), 7, prompt, 11, [4 + event.slot])
        assert event.tokens == tuple(expected.tokens[0, 0].tolist())
        np.testing.assert_allclose(event.log_probabilities, expected.log_probabilities[0, 0], rtol=1e-6)
        whole = vocabulary.decode([*prompt[0, 0].tolist(), *event.tokens])
        assert tokens == "bytes" or event.prompt + event.text == whole
    assert written[0].tokens != written[-1].tokens


def test_an_empty_prompt_begins_as_the_training_text_does(play):
    found = events(play | {"train.sample_every": 6, "train.sample_tokens": 4})
    (written,) = [event for event in found if isinstance(event, SampleEvent)]
    assert written.prompt == ""
    assert len(written.tokens) == len(written.text) == 4


# ---- the real thing ----


@pytest.mark.skipif("SEEDBED_DATA" not in os.environ, reason="needs the real corpora: set SEEDBED_DATA to their folder")
def test_wikitext_has_the_reports_windows_and_its_padded_figures_bias():
    """9,205 / 958 / 1,090 windows; were all losses 1, the padded figure would be 0.99876 / 0.99709 / 0.98725."""
    from seedbed.data.batches import make_batches
    from seedbed.training.evaluate import padded_loss

    settings = Settings.from_flat({"task.kind": "text", "task.corpus": "wikitext2", "task.tokenizer": "bpe", "task.length": 256,
                            "task.sampler": "epochs", "train.batch_size": 16})  # fmt: skip
    assert get_dataset_info(settings.task).n_train == 9205
    assert settings.updates_per_epoch(get_dataset_info(settings.task)) == 576
    parts = make_batches([settings], [0], torch.device("cpu")).eval_splits
    assert {part.name: part.sample_mask.shape[1] for part in parts} == {"train": 9205, "val": 958, "test": 1090}
    tokens = {"train": 2_356_375, "val": 245_045, "test": 279_022}
    ratios = {"train": 0.99876, "val": 0.99709, "test": 0.98725}
    for part in parts:
        assert float(part.total(part.n_tokens)) == tokens[part.name]
        ones = torch.ones(part.sample_mask.shape, dtype=torch.float64)
        assert float(padded_loss(part, ones)) == pytest.approx(ratios[part.name], abs=6e-6)
