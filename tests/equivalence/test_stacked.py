"""Runs stacked in one pack equal the same runs alone; a diverging run never affects another."""

from __future__ import annotations

import pytest
import torch

from seedbed.settings import OPTIMIZERS, Settings
from seedbed.tasks.base import BatchLimits
from seedbed.training.evaluate import compute_metrics
from seedbed.training.trainer import Trainer

SMALL = {"task.p": 7, "model.dim": 8, "model.heads": 2, "train.batch_size": 10, "model.dropout": 0.3}
VARIED = [  # settings that differ within the pack
    {"train.lr": 0.01, "task.operator": "-"},
    {"train.lr": 0.003, "train.weight_decay": 0.1, "train.clip": 0.5, "task.train_fraction": 0.7},
    {"train.lr": 0.02, "train.schedule": "cosine", "train.warmup": 5, "model.init_scale": 0.5, "train.batch_size": 13},
    {
        "train.lr": 0.01,
        "model.dropout": 0.0,
        "train.schedule": "step",
        "train.lr_every": 7,
        "model.init": "normal-0.02",
    },
]
SEEDS = (0, 42, 7, 42)
FAMILIES = [
    {"model.kind": "gpt"},
    {"model.kind": "gpt", "model.norm": "pre", "model.tied": True, "model.positions": "learned"},
    {"model.kind": "gpt", "task.orders": (2, 3), "task.p": 5},
    {"model.kind": "lstm"},
    {"model.kind": "lstm", "model.gate_biases": 2, "model.tied": True},
    {"model.kind": "gru"},
]


def make_settings(family, optimizer="adamw"):
    return [
        Settings.from_flat(
            {k: v for k, v in (SMALL | family | {"train.optimizer": optimizer} | one).items() if applies(k, family)}
        )
        for one in VARIED
    ]


def applies(name, family):
    return name != "model.heads" or family["model.kind"] == "gpt"


def train(runs, seeds, n_steps, dtype=torch.float64, modify=None):
    trainer = Trainer(runs, seeds, "cpu", dtype)
    if modify:
        modify(trainer)
    for _ in range(n_steps):
        trainer.train_step()
    return trainer


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_stacked_runs_match_runs_alone(family, optimizer):
    runs = make_settings(family, optimizer)
    together = train(runs, SEEDS, 50)
    stacked = compute_metrics(together)
    for slot, (one, seed) in enumerate(zip(runs, SEEDS, strict=True)):
        alone = train([one], [seed], 50)
        expected = determined_weights(alone, 0)
        for name, value in determined_weights(together, slot).items():
            torch.testing.assert_close(value, expected[name], rtol=1e-10, atol=1e-12, msg=name)
        for name, value in compute_metrics(alone).items():
            if name != "norm":  # it includes the key biases
                torch.testing.assert_close(stacked[name][slot], value[0], rtol=1e-10, atol=1e-12, msg=name)


def determined_weights(trainer, slot):
    """One run's weights with key biases set to 0: softmax cancels them, so their gradient is pure rounding error, which
    Adam scales up to full size; no logit depends on them."""
    state = {name: tensor.detach().numpy() for name, tensor in trainer.state().items()}
    weights = {name: torch.from_numpy(array) for name, array in trainer.weights_by_slot([slot], state)[slot].items()}
    for name, value in weights.items():
        if name.endswith("qkv.bias"):
            value.unflatten(0, (3, -1))[1] = 0
    return weights


# ---- text and labels ----

SHARED_TEXT = {"task.length": 6, "model.dim": 8, "model.layers": 1, "train.eval_batches": 3}
TEXT_MODELS = {
    "gpt": {"task.sampler": "documents", "model.heads": 2, "model.attention_dropout": 0.2, "train.accumulate": 2},
    "gpt-epochs": {"task.sampler": "epochs", "model.heads": 2, "model.positions": "alibi", "model.norm": "pre",
                   "task.lengths": (9,), "train.ema": 0.5, "train.decay_parameters": "matrices"},
    "gpt-windows": {"task.sampler": "windows", "model.heads": 2, "model.tied": True, "train.label_smoothing": 0.1},
    "lstm": {"model.kind": "lstm", "task.sampler": "length", "model.projection": 5, "model.embedding_dropout": 0.2},
    "lstm-epochs": {"model.kind": "lstm", "task.sampler": "epochs", "model.gate_biases": 2, "model.layers": 2},
    "gru": {"model.kind": "gru", "task.sampler": "length", "model.layers": 2, "model.embedding_dropout": 0.2},
    "encoder": {"task.kind": "labels", "model.kind": "encoder", "model.heads": 2, "model.batch_norm": True,
                "model.classifier_dropout": 0.3, "model.classifier_hidden": 6,
                "train.optimizer": "momentum"},
}  # fmt: skip
VARIED_TEXT = [
    {"train.lr": 0.01, "train.batch_size": 5, "model.dropout": 0.1},
    {"train.lr": 0.003, "train.batch_size": 7, "train.weight_decay": 0.1, "model.dropout": 0.0},
    {"train.lr": 0.02, "train.batch_size": 6, "train.schedule": "cosine", "train.warmup": 3, "train.clip": 0.1},
]


@pytest.fixture
def text_packs(tmp_path):
    """Packs that vary every setting that may vary within one, on two documents or 40 labelled lines."""
    for i, text in enumerate(
        ("the sun also rises on the plain in spain, they say. ", "all good things come to an end; ")
    ):
        (tmp_path / f"{i}.txt").write_text(text * (5 - i), encoding="utf-8")
    lines = [f"{'dry' if i % 3 else 'wet'}\tday {i % 5} had {i % 3} drops of rain\n" for i in range(40)]
    labelled = tmp_path / "labelled" / "rain.tsv"  # beside the texts it would be the corpus of the folder
    labelled.parent.mkdir()
    labelled.write_text("".join(lines), encoding="utf-8")

    def make(model):
        task = {"task.kind": "text", "task.corpus": str(tmp_path)}
        if model == "encoder":
            task = {"task.corpus": str(labelled)}
        return [Settings.from_flat(SHARED_TEXT | task | TEXT_MODELS[model] | one) for one in VARIED_TEXT]

    return make


@pytest.mark.parametrize("model", TEXT_MODELS)
def test_stacked_text_runs_match_runs_alone(text_packs, model):
    """The encoder is trained without Adam, which would scale up the rounding error of biases that BatchNorm cancels."""
    runs, seeds = text_packs(model), (0, 42, 42)
    together = train(runs, seeds, 30)
    stacked = compute_metrics(together)
    for slot, (one, seed) in enumerate(zip(runs, seeds, strict=True)):
        alone = train([one], [seed], 30)
        expected = determined_weights(alone, 0)
        for name, value in determined_weights(together, slot).items():
            torch.testing.assert_close(value, expected[name], rtol=1e-10, atol=1e-12, msg=name)
        for name, value in compute_metrics(alone).items():
            if name != "norm":
                torch.testing.assert_close(stacked[name][slot], value[0], rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize("model", TEXT_MODELS)
def test_a_corrupted_text_run_leaves_its_neighbours_bit_identical(text_packs, model):
    runs, seeds = text_packs(model), (0, 42, 42)
    healthy = train(runs, seeds, 8, torch.float32)
    corrupted = train(runs, seeds, 8, torch.float32, lambda trainer: trainer.parameters.weights[1].fill_(torch.nan))
    assert torch.equal(healthy.parameters.weights[[0, 2]], corrupted.parameters.weights[[0, 2]])
    before, after = compute_metrics(healthy), compute_metrics(corrupted)
    for name in before:
        assert torch.equal(before[name][[0, 2]], after[name][[0, 2]])
    assert corrupted.diverged_at[1] == 0


def test_the_comparison_detects_a_shared_gradient_norm():
    """Negative control: clipping by the norm of the whole pack, the classic leak, breaks the equality."""
    runs = make_settings(FAMILIES[0])

    def leak(trainer):
        trainer.clip = trainer.clip * 0
        inner = trainer.parameters.compute_gradients

        def compute_and_clip(loss):
            return inner(loss).div_(trainer.parameters.gradients.norm().clamp(min=1.0))

        trainer.parameters.compute_gradients = compute_and_clip

    together, alone = train(runs, SEEDS, 20, modify=leak), train(runs[:1], SEEDS[:1], 20)
    assert not torch.allclose(together.parameters.weights[0], alone.parameters.weights[0], rtol=1e-6)


def corrupt_weights(value):
    def modify(trainer):
        trainer.parameters.weights[1, 3] = value

    return modify


def huge_lr(trainer):
    trainer.optimizer.lr[1] = 1e20


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "corrupt",
    [
        corrupt_weights(torch.nan),
        corrupt_weights(torch.inf),
        corrupt_weights(-torch.inf),
        corrupt_weights(1e38),
        huge_lr,
    ],
)
def test_a_corrupted_run_leaves_its_neighbours_bit_identical(family, corrupt):
    runs = make_settings(family)
    healthy, corrupted = train(runs, SEEDS, 12, torch.float32), train(runs, SEEDS, 12, torch.float32, corrupt)
    others = [0, 2, 3]
    assert torch.equal(healthy.parameters.weights[others], corrupted.parameters.weights[others])
    before, after = compute_metrics(healthy), compute_metrics(corrupted)
    for name in before:
        assert torch.equal(before[name][others], after[name][others])
    assert not torch.equal(healthy.parameters.weights[1], corrupted.parameters.weights[1])


@pytest.mark.parametrize(("corrupt", "last_step"), [(corrupt_weights(torch.nan), 0), (huge_lr, 2)])
def test_a_diverged_run_is_recorded_with_its_step_and_frozen(corrupt, last_step):
    corrupted = train(make_settings(FAMILIES[0]), SEEDS, 12, torch.float32, corrupt)
    assert [step >= 0 for step in corrupted.diverged_at.tolist()] == [False, True, False, False]
    assert 0 <= corrupted.diverged_at[1] <= last_step
    assert corrupted.divergence_cause[1] > 0
    frozen = corrupted.parameters.weights[1].clone()
    corrupted.train_step()
    assert torch.equal(frozen.nan_to_num(), corrupted.parameters.weights[1].nan_to_num())


@pytest.mark.parametrize("kind", ["gpt", "lstm"])
@pytest.mark.parametrize("overrides", [{}, {"task.orders": (3,)}, {"task.orders": (2, 3)}, {"task.operator": "/"}])
def test_shared_prefixes_change_no_result(kind, overrides):
    """Each distinct prefix is computed once per batch: the same function with fewer operations."""
    runs = [
        Settings.from_flat({"task.p": 5, "model.dim": 8, "model.kind": kind, "train.lr": lr} | overrides)
        for lr in (0.01, 0.02)
    ]

    def unshare(trainer):
        assert trainer.batches.prefix_length > 0
        trainer.batches = runs[0].task.make_batches(runs, (1, 2), "cpu", BatchLimits(can_share_prefixes=False))

    shared, unshared = train(runs, (1, 2), 30), train(runs, (1, 2), 30, modify=unshare)
    for slot in range(2):
        expected = determined_weights(unshared, slot)
        for name, value in determined_weights(shared, slot).items():
            torch.testing.assert_close(value, expected[name], rtol=1e-9, atol=1e-11, msg=name)


def test_randomness_does_not_depend_on_order_or_neighbours():
    """A run has the same initial weights and batches in every slot."""
    runs = make_settings(FAMILIES[0])
    forward, backward = (
        Trainer(runs, SEEDS, "cpu", torch.float32),
        Trainer(runs[::-1], SEEDS[::-1], "cpu", torch.float32),
    )
    assert torch.equal(forward.parameters.weights, backward.parameters.weights.flip(0))
    for step in (0, 1, 5):
        for trainer in (forward, backward):
            trainer.batches.prepare(step)
        one, other = (t.batches.draw(torch.tensor([step])) for t in (forward, backward))
        assert torch.equal(one.inputs, other.inputs.flip(0))
        assert torch.equal(one.weights, other.weights.flip(0))


def test_equal_seeds_pair_across_configs():
    """Runs with equal seeds that differ only in training settings start from the same weights."""
    small, large = Settings.from_flat(SMALL), Settings.from_flat(SMALL | {"train.lr": 0.5, "train.weight_decay": 0.0})
    trainer = Trainer([small, large], [9, 9], "cpu", torch.float32)
    assert torch.equal(trainer.parameters.weights[0], trainer.parameters.weights[1])
