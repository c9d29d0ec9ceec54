"""Training on text and labels: metrics against hand-written loops, budgets, early stopping, resuming mid-epoch."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.corpora import require_corpora

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
from seedbed.settings import OPTIMIZERS, Settings
from seedbed.tasks.labels import load_labelled_dataset
from seedbed.tasks.text import load_text_dataset
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


def events(settings, seeds=(0,), placement=DOUBLE, **options):
    """`settings`: one set for all seeds, or one for each."""
    flat = [settings] * len(seeds) if isinstance(settings, dict) else settings
    runs = [Settings.from_flat(one) for one in flat]
    return [event for event in train_pack(runs, seeds, placement, **options) if not isinstance(event, StepEvent)]


def last_metrics(history, slot=0):
    last = [event for event in history if isinstance(event, EvaluationEvent) and slot in event.slots][-1]
    return dict(zip(last.metrics, last.values[last.slots.index(slot)].tolist(), strict=True))


def load_model(settings, weights):
    """The trained model of one run, with R = 1."""
    model = build_model(settings)
    FlatParameters(model, 1, torch.device("cpu"), torch.float64).load_arrays(0, weights)
    return model.eval()


def token_losses(model, ids, windows):
    """Losses and hits of the scored targets, one window at a time with torch's cross_entropy."""
    tokens, mask = gather_windows(ids, windows)
    for row, scored in zip(torch.from_numpy(tokens), torch.from_numpy(mask), strict=True):
        with torch.no_grad():
            logits = model(row[None, None, :-1])[0, 0]
        losses = F.cross_entropy(logits, row[1:], reduction="none")
        yield losses[scored].numpy(), (logits.argmax(-1) == row[1:])[scored].numpy(), row[1:][scored].numpy()


@pytest.mark.parametrize("kind", ["gpt", "lstm"])
def test_text_metrics_are_averaged_over_tokens(play, kind):
    settings_dict = {k: v for k, v in play.items() if kind == "gpt" or k != "model.heads"} | {"model.kind": kind}
    settings, history = Settings.from_flat(settings_dict), events(settings_dict)
    saved = next(event for event in history if isinstance(event, CheckpointEvent))
    text, metrics = load_text_dataset(settings.task), last_metrics(history)
    for name in ("train", "val"):
        part = text.splits[name]
        by_window = list(
            token_losses(load_model(settings, saved.weights[0]), part.ids, consecutive_windows(part.spans, 7))
        )
        losses, hits, targets = (np.concatenate(each) for each in zip(*by_window, strict=True))
        written = text.tokenizer.decode(targets.tolist())
        assert metrics[f"{name}/loss"] == pytest.approx(losses.mean())
        assert metrics[f"{name}/perplexity"] == pytest.approx(exp(losses.mean()))
        assert metrics[f"{name}/accuracy"] == pytest.approx(hits.mean())
        assert metrics[f"{name}/bits_per_character"] == pytest.approx(losses.sum() / log(2) / len(written))
        assert metrics[f"{name}/bits_per_byte"] == pytest.approx(losses.sum() / log(2) / len(written.encode()))
        assert len(written.encode()) > len(written)  # the two differ in this text
        batches = [by_window[i : i + 5] for i in range(0, len(by_window), 5)]
        assert len(batches[-1]) < 5
        padded = [np.mean([one[0].mean() for one in batch]) * sum(len(one[0]) for one in batch) / (5 * 7)
                  for batch in batches]  # fmt: skip
        assert metrics[f"{name}/perplexity_padded"] == pytest.approx(exp(np.mean(padded)))
        assert metrics[f"{name}/perplexity_padded"] < metrics[f"{name}/perplexity"]


def test_longer_contexts_are_evaluated_in_consecutive_and_in_sliding_windows(play):
    settings_dict = play | {"model.positions": "alibi", "task.lengths": (12,)}
    settings, history = Settings.from_flat(settings_dict), events(settings_dict)
    saved, metrics = next(event for event in history if isinstance(event, CheckpointEvent)), last_metrics(history)
    part, model = load_text_dataset(settings.task).splits["val"], load_model(settings, saved.weights[0])
    side = np.concatenate([one[0] for one in token_losses(model, part.ids, consecutive_windows(part.spans, 12))])
    assert metrics["val/perplexity[length=12]"] == pytest.approx(exp(side.mean()))
    start, n = int(part.spans.starts[0]), int(part.spans.lengths[0])
    ids, total = torch.from_numpy(part.ids[start : start + n].astype(np.int64)), 0.0
    for position in range(1, n):  # windows begin at multiples of 6; the first that reaches a token scores it
        window = 6 * max(0, -(-(position - 12) // 6))
        with torch.no_grad():
            logits = model(ids[None, None, window:position])[0, 0, -1]
        total += float(F.cross_entropy(logits, ids[position]))
    assert metrics["val/perplexity_sliding[length=12]"] == pytest.approx(exp(total / (n - 1)))
    assert not any(name.startswith("train/") and "length" in name for name in metrics)


def test_learned_positions_are_not_evaluated_beyond_their_table(play):
    metrics = last_metrics(events(play | {"model.positions": "learned", "task.lengths": (12, 3)}))
    assert "val/perplexity[length=3]" in metrics
    assert not any("length=12" in name for name in metrics)


def test_eval_batches_limits_the_evaluated_samples(play):
    trainer = Trainer([Settings.from_flat(play | {"train.eval_batches": 2})], [0], "cpu", torch.float64)
    whole = Trainer([Settings.from_flat(play)], [0], "cpu", torch.float64)
    assert [int(part.sample_mask.sum()) for part in trainer.batches.eval_splits] == [10, 10]
    assert (
        int(whole.batches.eval_splits[0].sample_mask.sum()) == Settings.from_flat(play).task.dataset_info().n_train > 10
    )
    assert set(compute_metrics(trainer)) == set(compute_metrics(whole))


# ---- resuming ----


def comparable(history):
    out = []
    for event in history:
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


@pytest.mark.parametrize(("sampler", "max_in_step"), [("documents", 4096), ("windows", 3), ("epochs", 4096)])
def test_text_resumes_mid_epoch_as_if_never_stopped(play, sampler, max_in_step, monkeypatch):
    monkeypatch.setattr("seedbed.data.batch.MAX_IN_STEP_SHUFFLE_SAMPLES", max_in_step)
    settings_dict = play | {"task.sampler": sampler, "train.save_every": 5, "train.steps": 40, "train.accumulate": 2,
                    "train.ema": 0.9, "model.dropout": 0.1, "train.decay_parameters": "matrices",
                    "train.stop_after": 5, "train.sample_every": 8, "train.sample_tokens": 3}  # fmt: skip
    pack = [settings_dict, settings_dict | {"train.batch_size": 4, "train.schedule": "plateau"}]
    whole = events(pack, (1, 2), Placement())
    for i in [i for i, event in enumerate(whole) if isinstance(event, CheckpointEvent)][:-1:3]:
        assert comparable(events(pack, (1, 2), Placement(), resume_state=whole[i].state)) == comparable(whole[i + 1 :])


def test_label_runs_resume_with_their_running_statistics(moods):
    whole = events(moods | {"train.save_every": 6}, (1, 2, 3), Placement())
    at, saved = next((i, event) for i, event in enumerate(whole) if isinstance(event, CheckpointEvent))
    again = events(moods | {"train.save_every": 6}, (1, 2, 3), Placement(), resume_state=saved.state)
    assert comparable(again) == comparable(whole[at + 1 :])
    forgetful = {name: np.zeros_like(a) if name.endswith("norm.mean") else a for name, a in saved.state.items()}
    other = events(moods | {"train.save_every": 6}, (1, 2, 3), Placement(), resume_state=forgetful)
    assert comparable(other) != comparable(whole[at + 1 :])


def test_a_classifier_learns_and_its_saved_arrays_classify_alike(moods):
    """Running statistics are saved beside the weights; loaded again, both give the recorded accuracy."""
    history, settings = events(moods | {"train.steps": 60}), Settings.from_flat(moods)
    step = torch.zeros(1, dtype=torch.int64)
    model, parameters = build_pack([settings], [9], step, torch.float64)
    load_run_arrays(model, parameters, 0, history[-2].weights[0])
    for name, part in load_labelled_dataset(settings.task).splits.items():
        with torch.no_grad():
            logits = model.eval()(torch.from_numpy(part.rows)[None])[0, :, 0]
        loss = F.cross_entropy(logits, torch.from_numpy(part.labels))
        assert last_metrics(history)[f"{name}/loss"] == pytest.approx(float(loss))
        assert last_metrics(history)[f"{name}/accuracy"] == np.mean(logits.argmax(-1).numpy() == part.labels)
    assert last_metrics(history)["train/accuracy"] == 1.0


def test_a_batch_without_samples_does_not_change_running_statistics(moods):
    """25 texts, 24 per update: the second update of an epoch has one text, and two of its three batches have none."""
    settings = Settings.from_flat(moods | {"train.batch_size": 8, "train.accumulate": 3})
    trainer = Trainer([settings], [0], "cpu", torch.float64)
    trainer.model.train()
    for i, is_empty in enumerate((False, False, False, False, True, True)):
        before = {name: tensor.clone() for name, tensor in running_stats(trainer.model).items()}
        trainer._backward()
        for name, tensor in running_stats(trainer.model).items():
            assert tensor.isfinite().all()
            assert torch.equal(tensor, before[name]) == is_empty, (i, name)


# ---- training length ----


@pytest.mark.parametrize(("budget", "steps"), [
    ({"train.epochs": 3}, 72), ({"train.epochs": 3, "train.accumulate": 2}, 36),
    ({"train.max_tokens": 1000}, 29), ({"train.max_tokens": 1000, "train.accumulate": 2}, 15),
])  # fmt: skip
def test_epochs_and_tokens_become_steps(play, budget, steps):
    """823 training tokens: 118 windows of 7, 24 batches of 5; a batch has 35 tokens."""
    settings_dict = {name: value for name, value in play.items() if name != "train.steps"} | budget
    settings = Settings.from_flat(settings_dict)
    assert load_text_dataset(settings.task).splits["train"].spans.n_tokens == 823
    assert settings.n_steps(settings.task.dataset_info()) == steps
    assert [event.step for event in events(settings_dict) if isinstance(event, FinishEvent)] == [steps]


def test_a_time_budget_ends_at_an_evaluation_and_what_is_left_is_used_on_resume(play):
    settings_dict = {name: value for name, value in play.items() if name != "train.steps"} | {"train.seconds": 0.05}
    history = events(settings_dict)
    end = next(event for event in history if isinstance(event, FinishEvent))
    assert end.step % 3 == 0
    assert [type(event) for event in history[-3:]] == [CostEvent, CheckpointEvent, CostEvent]
    assert history[-1].cost.seconds["compute"] >= 0.05
    calls = iter([False, True])
    first = events(settings_dict, should_stop=lambda: next(calls))
    assert isinstance(first[-1], StopEvent)
    rest = events(settings_dict, resume_state=first[-2].state, previous_cost=Cost({"compute": 0.05, "evaluate": 0.0}))
    assert [event.step for event in rest if isinstance(event, FinishEvent)] == [3]


def test_early_stopping_saves_the_best_and_last_weights(play):
    """A run that learns nothing after its first steps; the other run of the pack trains as if alone."""
    settings_dict = play | {"train.steps": 300, "train.stop_after": 3, "train.lr": 0.3, "train.clip": 0.0}
    patient = settings_dict | {"train.lr": 1e-4}
    history = events([settings_dict, patient], (0, 0))
    ends = {event.slot: event.step for event in history if isinstance(event, FinishEvent)}
    curve = {
        e.step: e.values[0, e.metrics.index("val/loss")]
        for e in history
        if isinstance(e, EvaluationEvent) and 0 in e.slots
    }
    best = min(curve, key=curve.get)
    assert ends[0] == best + 9 < ends[1]
    saved_steps = {event.step for event in history if isinstance(event, CheckpointEvent) and 0 in event.weights}
    assert {best, ends[0]} - {0} <= saved_steps
    assert all(curve[step] == min(v for s, v in curve.items() if s <= step) for step in saved_steps - {ends[0]})
    alone = events(patient)
    assert last_metrics(history, 1)["val/loss"] == pytest.approx(last_metrics(alone)["val/loss"], rel=1e-9)


@pytest.mark.parametrize(
    "more", [{"train.stop_after": 2}, {"train.schedule": "plateau", "train.plateau_metric": "val/loss"}]
)
def test_a_validation_metric_without_a_validation_set_is_rejected(play, more):
    with pytest.raises(UsageError, match="needs a validation set"):
        events(play | {"task.val_fraction": 0.0} | more)


# ---- updates ----


def weights_after(settings_dict, seed=3):
    history = events(settings_dict, (seed,))
    return next(event for event in history if isinstance(event, CheckpointEvent)).weights[0]


@pytest.mark.parametrize("sampler", ["documents", "windows"])
def test_accumulated_gradients_equal_those_of_the_large_batch(play, sampler):
    several = weights_after(play | {"task.sampler": sampler, "train.batch_size": 4, "train.accumulate": 3})
    large = weights_after(play | {"task.sampler": sampler, "train.batch_size": 12})
    for name, values in large.items():
        np.testing.assert_allclose(several[name], values, rtol=1e-9, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weight_decay_of_matrices_spares_biases_and_norms(play, optimizer):
    """Against a run with the same gradients: with a tiny learning rate and huge decay only decay changes weights."""
    start = Trainer([Settings.from_flat(play)], [3], "cpu", torch.float64).parameters.get_arrays(0)
    settings_dict = play | {"train.optimizer": optimizer, "train.lr": 1e-9, "train.weight_decay": 1e6, "train.steps": 1}
    ended = weights_after(settings_dict | {"train.decay_parameters": "matrices"})
    unmoved = weights_after(settings_dict | {"train.weight_decay": 0.0})
    for name, values in ended.items():
        if start[name].ndim > 1:
            assert not np.allclose(values, unmoved[name], rtol=1e-12, atol=0), name
        else:
            np.testing.assert_array_equal(values, unmoved[name], err_msg=name)


def test_the_moving_average_of_weights_is_saved_and_evaluated(play):
    """By hand: θ̄ ← 0.5 θ̄ + 0.5 θ from the initial weights; metrics and saved weights are those of θ̄."""
    trainer = Trainer([Settings.from_flat(play)], [3], "cpu", torch.float64)
    mean = trainer.parameters.weights.clone()
    for _ in range(6):
        trainer.train_step()
        mean = 0.5 * mean + 0.5 * trainer.parameters.weights.detach()
    history = events(play | {"train.ema": 0.5}, (3,))
    checkpoint = next(event for event in history if isinstance(event, CheckpointEvent))
    trainer.parameters.weights.copy_(mean)
    for name, values in trainer.parameters.get_arrays(0).items():
        np.testing.assert_allclose(checkpoint.weights[0][name], values, rtol=1e-10, atol=1e-12)
    for name, value in compute_metrics(trainer).items():
        assert last_metrics(history)[name] == pytest.approx(float(value[0]), rel=1e-9), name


def test_label_smoothing_equals_torchs(play):
    settings = Settings.from_flat(play | {"train.label_smoothing": 0.2, "task.sampler": "windows"})
    trainer = Trainer([settings], [0], "cpu", torch.float64)
    batch = trainer.batches.draw(trainer.n_batches_drawn)
    logits = trainer.forward_batch(batch)
    expected = F.cross_entropy(logits[0].flatten(0, 1), batch.targets[0].flatten(), label_smoothing=0.2)
    torch.testing.assert_close(trainer._batch_losses()[0], expected)


# ---- samples ----


@pytest.mark.parametrize("tokens", ["characters", "words", "bytes"])
def test_samples_come_from_the_saved_weights_and_their_texts_continue_the_prompt(play, tokens):
    settings_dict = play | {
        "task.tokenizer": tokens, "train.sample_every": 2, "train.prompt": "to be", "train.sample_tokens": 11,
        "train.save_every": 2, "train.ema": 0.3,
    }  # fmt: skip
    history = events(settings_dict, (4, 5))
    written = [event for event in history if isinstance(event, SampleEvent)]
    assert [(event.step, event.slot) for event in written] == [(s, slot) for s in (2, 4, 6) for slot in (0, 1)]
    settings, checkpoints = (
        Settings.from_flat(settings_dict),
        [event for event in history if isinstance(event, CheckpointEvent)],
    )
    vocabulary = load_text_dataset(settings.task).tokenizer
    prompt = torch.from_numpy(vocabulary.encode("to be").astype(np.int64))[None, None]
    for event in written:
        weights = next(saved for saved in checkpoints if saved.step == event.step).weights[event.slot]
        expected = generate_tokens(load_model(settings, weights), 7, prompt, 11, [4 + event.slot])
        assert event.tokens == tuple(expected.tokens[0, 0].tolist())
        np.testing.assert_allclose(event.log_probabilities, expected.log_probabilities[0, 0], rtol=1e-6)
        whole = vocabulary.decode([*prompt[0, 0].tolist(), *event.tokens])
        assert tokens == "bytes" or event.prompt + event.text == whole
    assert written[0].tokens != written[-1].tokens


def test_an_empty_prompt_stands_for_the_first_training_token(play):
    history = events(play | {"train.sample_every": 6, "train.sample_tokens": 4})
    (written,) = [event for event in history if isinstance(event, SampleEvent)]
    assert written.prompt == ""
    assert len(written.tokens) == len(written.text) == 4


# ---- real corpora ----


def test_wikitext_has_the_reports_windows_and_the_bias_of_its_padded_loss():
    """9,205 / 958 / 1,090 windows; if all losses were 1, the padded loss would be 0.99876 / 0.99709 / 0.98725."""
    require_corpora("wikitext2")
    from seedbed.tasks.base import make_batches

    settings = Settings.from_flat({
        "task.kind": "text", "task.corpus": "wikitext2", "task.tokenizer": "bpe", "task.vocabulary": "gpt1",
        "task.length": 256, "task.sampler": "epochs", "train.batch_size": 16,
    })  # fmt: skip
    assert settings.task.dataset_info().n_train == 9205
    assert settings.updates_per_epoch(settings.task.dataset_info()) == 576
    splits = make_batches([settings], [0], "cpu").eval_splits
    assert {split.name: split.sample_mask.shape[1] for split in splits} == {"train": 9205, "val": 958, "test": 1090}
    tokens = {"train": 2_356_375, "val": 245_045, "test": 279_022}
    ratios = {"train": 0.99876, "val": 0.99709, "test": 0.98725}
    for split in splits:
        assert float(split.masked_sum(split.n_tokens)) == tokens[split.name]
        ones = torch.ones(split.sample_mask.shape, dtype=torch.float64)
        assert float(split.padded_loss(ones)) == pytest.approx(ratios[split.name], abs=6e-6)
