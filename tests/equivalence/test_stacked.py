"""Runs stacked in one program equal the same runs alone; what breaks one never touches another."""

from __future__ import annotations

import pytest
import torch

from seedbed.data.equation_batches import EquationBatches
from seedbed.settings import Settings
from seedbed.training.evaluate import compute_metrics
from seedbed.training.trainer import Trainer

SMALL = {"task.p": 7, "model.dim": 8, "model.heads": 2, "train.batch_size": 10, "model.dropout": 0.3}
VARIED = [  # overrides that differ inside one pack
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
]


def settings(family, optimizer="adamw"):
    return [
        Settings.from_flat(
            {k: v for k, v in (SMALL | family | {"train.optimizer": optimizer} | one).items() if applies(k, family)}
        )
        for one in VARIED
    ]


def applies(name, family):
    return name != "model.heads" or family["model.kind"] == "gpt"


def train(runs, seeds, n_steps, dtype=torch.float64, meddle=None):
    trainer = Trainer(runs, seeds, "cpu", dtype)
    if meddle:
        meddle(trainer)
    for _ in range(n_steps):
        trainer.train_step()
    return trainer


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw"])
def test_stacked_runs_match_runs_alone(family, optimizer):
    runs = settings(family, optimizer)
    together = train(runs, SEEDS, 50)
    stacked = compute_metrics(together)
    for slot, (one, seed) in enumerate(zip(runs, SEEDS, strict=True)):
        alone = train([one], [seed], 50)
        expected = decided_weights(alone, 0)
        for name, values in decided_weights(together, slot).items():
            torch.testing.assert_close(values, expected[name], rtol=1e-10, atol=1e-12, msg=name)
        for name, values in compute_metrics(alone).items():
            if name != "norm":  # it counts the key biases too
                torch.testing.assert_close(stacked[name][slot], values[0], rtol=1e-10, atol=1e-12, msg=name)


def decided_weights(trainer, slot):
    """One run's weights but for key biases: softmax cancels them, so their gradient is pure rounding, which Adam scales
    up to full size; no logit depends on them."""
    state = {name: tensor.detach().numpy() for name, tensor in trainer.state().items()}
    weights = {name: torch.from_numpy(array) for name, array in trainer.weights_by_slot([slot], state)[slot].items()}
    for name, values in weights.items():
        if name.endswith("qkv.bias"):
            values.unflatten(0, (3, -1))[1] = 0
    return weights


# ---- text and labels ----

READ = {"task.length": 6, "model.dim": 8, "model.layers": 1, "train.eval_batches": 3}
READERS = {
    "gpt": {"task.sampler": "documents", "model.heads": 2, "model.attention_dropout": 0.2, "train.accumulate": 2},
    "gpt-epochs": {"task.sampler": "epochs", "model.heads": 2, "model.positions": "alibi", "model.norm": "pre",
                   "task.lengths": (9,), "train.ema": 0.5, "train.decay_parameters": "matrices"},
    "gpt-windows": {"task.sampler": "windows", "model.heads": 2, "model.tied": True, "train.label_smoothing": 0.1},
    "lstm": {"model.kind": "lstm", "task.sampler": "length", "model.projection": 5, "model.embedding_dropout": 0.2},
    "lstm-epochs": {"model.kind": "lstm", "task.sampler": "epochs", "model.gate_biases": 2, "model.layers": 2},
    "encoder": {"task.kind": "labels", "model.kind": "encoder", "model.heads": 2, "model.batch_norm": True,
                "model.classifier_dropout": 0.3, "model.classifier_hidden": 6,
                "train.optimizer": "momentum"},
}  # fmt: skip
VARIED_READERS = [
    {"train.lr": 0.01, "train.batch_size": 5, "model.dropout": 0.1},
    {"train.lr": 0.003, "train.batch_size": 7, "train.weight_decay": 0.1, "model.dropout": 0.0},
    {"train.lr": 0.02, "train.batch_size": 6, "train.schedule": "cosine", "train.warmup": 3, "train.clip": 0.1},
]


@pytest.fixture
def readers(tmp_path):
    """Packs that differ in what a pack may differ in, over a text of two documents and 40 labelled lines."""
    for i, text in enumerate(
        ("the sun also rises on the plain in spain, they say. ", "all good things come to an end; ")
    ):
        (tmp_path / f"{i}.txt").write_text(text * (5 - i), encoding="utf-8")
    lines = [f"{'dry' if i % 3 else 'wet'}\tday {i % 5} had {i % 3} drops of rain\n" for i in range(40)]
    (tmp_path / "rain.tsv").write_text("".join(lines), encoding="utf-8")

    def make(reader):
        task = {"task.kind": "text", "task.corpus": str(tmp_path)}
        if reader == "encoder":
            task = {"task.corpus": str(tmp_path / "rain.tsv")}
        return [Settings.from_flat(READ | task | READERS[reader] | one) for one in VARIED_READERS]

    return make


@pytest.mark.parametrize("reader", READERS)
def test_stacked_runs_that_read_match_runs_alone(readers, reader):
    """The encoder without Adam: BatchNorm cancels biases before it, and Adam would scale up their rounding."""
    runs, seeds = readers(reader), (0, 42, 42)
    together = train(runs, seeds, 30)
    stacked = compute_metrics(together)
    for slot, (one, seed) in enumerate(zip(runs, seeds, strict=True)):
        alone = train([one], [seed], 30)
        expected = decided_weights(alone, 0)
        for name, values in decided_weights(together, slot).items():
            torch.testing.assert_close(values, expected[name], rtol=1e-10, atol=1e-12, msg=name)
        for name, values in compute_metrics(alone).items():
            if name != "norm":
                torch.testing.assert_close(stacked[name][slot], values[0], rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize("reader", READERS)
def test_a_broken_reader_leaves_its_neighbours_byte_identical(readers, reader):
    runs, seeds = readers(reader), (0, 42, 42)
    healthy = train(runs, seeds, 8, torch.float32)
    harmed = train(runs, seeds, 8, torch.float32, lambda trainer: trainer.parameters.weights[1].fill_(torch.nan))
    assert torch.equal(healthy.parameters.weights[[0, 2]], harmed.parameters.weights[[0, 2]])
    before, after = compute_metrics(healthy), compute_metrics(harmed)
    for name in before:
        assert torch.equal(before[name][[0, 2]], after[name][[0, 2]])
    assert harmed.diverged_at[1] == 0


def test_the_comparison_sees_a_shared_gradient_norm():
    """Negative control: clipping by the norm of the whole pack, the classic leak, breaks the equality."""
    runs = settings(FAMILIES[0])

    def leak(trainer):
        trainer.optimizer.clip = trainer.optimizer.clip * 0
        inner = trainer.parameters.compute_gradients

        def take_and_clip(loss):
            return inner(loss).div_(trainer.parameters.gradients.norm().clamp(min=1.0))

        trainer.parameters.compute_gradients = take_and_clip

    together, alone = train(runs, SEEDS, 20, meddle=leak), train(runs[:1], SEEDS[:1], 20)
    assert not torch.allclose(together.parameters.weights[0], alone.parameters.weights[0], rtol=1e-6)


def poison_weights(value):
    def meddle(trainer):
        trainer.parameters.weights[1, 3] = value

    return meddle


def huge_rate(trainer):
    trainer.optimizer.lr[1] = 1e20


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "harm",
    [poison_weights(torch.nan), poison_weights(torch.inf), poison_weights(-torch.inf), poison_weights(1e38), huge_rate],
)
def test_a_broken_run_leaves_its_neighbours_byte_identical(family, harm):
    runs = settings(family)
    healthy, harmed = train(runs, SEEDS, 12, torch.float32), train(runs, SEEDS, 12, torch.float32, harm)
    others = [0, 2, 3]
    assert torch.equal(healthy.parameters.weights[others], harmed.parameters.weights[others])
    before, after = compute_metrics(healthy), compute_metrics(harmed)
    for name in before:
        assert torch.equal(before[name][others], after[name][others])
    assert not torch.equal(healthy.parameters.weights[1], harmed.parameters.weights[1])


@pytest.mark.parametrize(("harm", "last_step"), [(poison_weights(torch.nan), 0), (huge_rate, 2)])
def test_a_broken_run_is_noted_with_its_step_and_frozen(harm, last_step):
    harmed = train(settings(FAMILIES[0]), SEEDS, 12, torch.float32, harm)
    assert [step >= 0 for step in harmed.diverged_at.tolist()] == [False, True, False, False]
    assert 0 <= harmed.diverged_at[1] <= last_step
    assert harmed.divergence_cause[1] > 0
    frozen = harmed.parameters.weights[1].clone()
    harmed.train_step()
    assert torch.equal(frozen.nan_to_num(), harmed.parameters.weights[1].nan_to_num())


@pytest.mark.parametrize("kind", ["gpt", "lstm"])
@pytest.mark.parametrize("more", [{}, {"task.orders": (3,)}, {"task.orders": (2, 3)}, {"task.operator": "/"}])
def test_sharing_the_beginnings_of_equations_changes_no_number(kind, more):
    """The first tokens, of which there are few kinds, are computed once each; the same function, fewer operations."""
    runs = [
        Settings.from_flat({"task.p": 5, "model.dim": 8, "model.kind": kind, "train.lr": lr} | more)
        for lr in (0.01, 0.02)
    ]

    def unshare(trainer):
        tasks, sizes = [one.task for one in runs], [one.train.batch_size for one in runs]
        assert trainer.batches.prefix_length > 0
        trainer.batches = EquationBatches(tasks, (1, 2), sizes, trainer.step.device, share_prefixes=False)

    shared, whole = train(runs, (1, 2), 30), train(runs, (1, 2), 30, meddle=unshare)
    for slot in range(2):
        expected = decided_weights(whole, slot)
        for name, values in decided_weights(shared, slot).items():
            torch.testing.assert_close(values, expected[name], rtol=1e-9, atol=1e-11, msg=name)


def test_order_and_neighbours_change_no_draw():
    """Initial weights and batches of a run are the same bytes wherever it stands."""
    runs = settings(FAMILIES[0])
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


def test_equal_seeds_pair_across_points():
    """Runs that differ in a name only start from the same weights."""
    small, large = Settings.from_flat(SMALL), Settings.from_flat(SMALL | {"train.lr": 0.5, "train.weight_decay": 0.0})
    trainer = Trainer([small, large], [9, 9], "cpu", torch.float32)
    assert torch.equal(trainer.parameters.weights[0], trainer.parameters.weights[1])
