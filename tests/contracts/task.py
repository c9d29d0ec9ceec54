"""What every task must do; `test_tasks.py` has one subclass for each kind.

A subclass gives small settings whose training samples are drawn once an epoch, variations of the task's settings that
may differ within a pack, and variations that may not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from seedbed.settings import DatasetInfo, Settings
from seedbed.study.pack import shape_key
from seedbed.tasks.base import BatchLimits, Task, make_batches
from seedbed.training.evaluate import compute_metrics
from seedbed.training.trainer import Trainer
from tests.equivalence.test_stacked import determined_weights

Values = Mapping[str, Any]
CPU = torch.device("cpu")
SEEDS = 3, 42, 7
TINY_MODEL = {"model.dim": 8, "model.heads": 2, "model.layers": 1}
NO_TORCH = """
import json, sys
from seedbed.settings import Settings
from seedbed.study.pack import shape_key
settings = Settings.from_flat(json.loads(sys.argv[1]))
task, info = settings.task, settings.task.dataset_info()
task.load_tokenizer(), task.analysis_inputs(3, 5), task.label_names(), shape_key(settings), settings.n_steps(info)
task.n_eval_samples(settings.train, info), task.n_scored_positions(info), list(task.conflicts()), task.operand_pairs(3)
assert "torch" not in sys.modules
"""


class TaskContract:
    """The tests that a kind of task inherits."""

    kind: ClassVar[str]
    task: ClassVar[Values] = {}  # `task.*` of a small example
    model: ClassVar[Values] = TINY_MODEL
    packable: ClassVar[tuple[Values, ...]] = ({}, {}, {})  # per-run settings of three runs of one pack
    unpackable: ClassVar[tuple[Values, ...]]  # each makes a run that cannot join the example's pack

    def write_data(self, folder: Path) -> Values:
        """Writes what the task reads, and returns the settings that name it."""
        return {}

    @pytest.fixture
    def example(self, tmp_path: Path) -> dict[str, Any]:
        """The example as flat settings; batches of 5 that do not divide the training set."""
        values = {"task.kind": self.kind, **self.task, **self.write_data(tmp_path), **self.model}
        return values | {"train.batch_size": 5, "train.epochs": 2, "train.lr": 0.01}

    @pytest.fixture
    def settings(self, example: dict[str, Any]) -> Settings:
        return Settings.from_flat(example)

    @pytest.fixture
    def pack(self, example: dict[str, Any]) -> list[Settings]:
        rates = ({"train.lr": 0.01, "train.batch_size": 5}, {"train.lr": 0.003}, {"train.batch_size": 6})
        return [Settings.from_flat(example | rate | own) for rate, own in zip(rates, self.packable, strict=True)]

    # ---- what a task says about its data ----

    def test_the_kind_is_registered_and_has_no_conflicts(self, settings: Settings) -> None:
        assert isinstance(settings.task, Task)
        assert settings.task.kind == self.kind
        assert settings.conflicts() == []

    def test_the_info_agrees_with_the_batches(self, settings: Settings) -> None:
        info = settings.task.dataset_info()
        samples = draw_samples(settings, SEEDS[0], settings.updates_per_epoch(info))
        assert len(samples) == info.n_train
        tokens = torch.tensor([inputs for inputs, _ in samples])
        targets = torch.tensor([target for _, target in samples])
        assert tokens.shape[1] == info.context_length
        assert 0 <= tokens.min() <= tokens.max() < info.vocab_size
        assert 0 <= targets.min() <= targets.max() < (info.n_classes or info.vocab_size)
        assert targets.shape[1] <= settings.task.n_scored_positions(info) <= info.context_length
        assert (settings.task.predicts == "label") == (info.n_classes > 0) == bool(settings.task.label_names())
        assert len(settings.task.label_names()) == info.n_classes
        assert info.chance is None or 0 < info.chance < 1
        assert info.digest.startswith(f"{self.kind}/")
        assert info == Settings.from_flat(settings.flat()).task.dataset_info()

    def test_the_tokenizer_has_the_vocabulary_of_the_info(self, settings: Settings) -> None:
        info, tokenizer = settings.task.dataset_info(), settings.task.load_tokenizer()
        inputs, _ = draw_samples(settings, SEEDS[0], 1)[0]
        ids = [token for token in inputs if token not in (info.padding_id, info.eos_id)]
        assert tokenizer.size == len(tokenizer.texts) == info.vocab_size
        assert tokenizer.encode(tokenizer.decode(ids)).tolist() == ids

    def test_budgets_count_what_is_drawn(self, settings: Settings) -> None:
        """Two epochs draw every sample twice; a budget of the tokens in them lasts for as many updates."""
        info = settings.task.dataset_info()
        per_epoch = -(-info.n_train // 5)
        assert (settings.updates_per_epoch(info), settings.n_steps(info)) == (per_epoch, 2 * per_epoch)
        samples = draw_samples(settings, SEEDS[0], 2 * per_epoch)
        assert Counter(samples[: info.n_train]) == Counter(samples[info.n_train :])
        assert count_tokens(samples, info) == pytest.approx(2 * info.n_train * info.mean_sample_tokens)
        counted = settings.task.count_train_samples()
        if counted is not None:
            assert counted == info.n_train
            assert settings.task.mean_sample_tokens() == info.mean_sample_tokens

    # ---- batches ----

    def test_a_batch_depends_on_seed_and_index_alone(self, pack: list[Settings]) -> None:
        """Drawn in another order, and among other runs."""
        together = make_batches(pack, SEEDS, "cpu")
        for slot, (settings, seed) in enumerate(zip(pack, SEEDS, strict=True)):
            alone = make_batches([settings], [seed], "cpu")
            for index in (4, 0, 2, 4):
                drawn = []
                for batches, run in ((together, slot), (alone, 0)):
                    batches.prepare(index)
                    batch = batches.draw(torch.tensor([index]))
                    rows = batch.weights[run] > 0
                    drawn.append((batch.inputs[run][rows], batch.targets[run][rows], batch.weights[run][rows]))
                assert all(torch.equal(first, second) for first, second in zip(*drawn, strict=True))
                assert float(drawn[0][2].sum()) == pytest.approx(1)

    def test_seeds_draw_different_batches(self, settings: Settings) -> None:
        assert draw_samples(settings, SEEDS[0], 1) != draw_samples(settings, SEEDS[1], 1)

    def test_evaluation_chunks_hold_the_samples_of_all_splits(self, settings: Settings) -> None:
        task, info = settings.task, settings.task.dataset_info()
        batches = task.make_batches([settings], SEEDS[:1], "cpu", BatchLimits())
        small = task.make_batches([settings], SEEDS[:1], "cpu", BatchLimits(max_activations=2**8 * info.context_length))
        n_samples = sum(chunk.inputs.shape[1] for chunk in batches.eval_chunks())
        assert sum(chunk.inputs.shape[1] for chunk in small.eval_chunks()) == n_samples
        by_name = {split.name: split for split in batches.eval_splits if not split.metric_suffix}
        assert 0 < by_name["train"].sample_mask.sum() <= info.n_train
        assert "val" in by_name
        assert all(split.sample_mask[:, :n_samples].any() for split in batches.eval_splits)

    def test_runs_of_a_pack_match_runs_alone(self, pack: list[Settings]) -> None:
        together = train(pack, SEEDS)
        stacked = compute_metrics(together)
        for slot, (settings, seed) in enumerate(zip(pack, SEEDS, strict=True)):
            alone = train([settings], [seed])
            expected = determined_weights(alone, 0)
            for name, value in determined_weights(together, slot).items():
                torch.testing.assert_close(value, expected[name], rtol=1e-9, atol=1e-11, msg=name)
            for name, value in compute_metrics(alone).items():
                if name != "norm":  # it includes biases that no output depends on
                    torch.testing.assert_close(stacked[name][slot], value[0], rtol=1e-9, atol=1e-11, msg=name)

    def test_the_shape_key_separates_what_cannot_be_packed(self, example: dict[str, Any], pack: list[Settings]) -> None:
        assert len({shape_key(settings) for settings in pack}) == 1
        others = [Settings.from_flat(example | values) for values in self.unpackable]
        assert len({shape_key(settings) for settings in (pack[0], *others)}) == 1 + len(others)

    # ---- analysis and planning ----

    def test_analysis_inputs_are_held_out(self, settings: Settings) -> None:
        info, inputs = settings.task.dataset_info(), settings.task.analysis_inputs(SEEDS[0], 3)
        assert inputs.split == "val"
        assert inputs.n_inputs == 3
        assert inputs.tokens.shape == inputs.non_padding.shape == (3, info.context_length)
        assert inputs.targets.shape == inputs.scored.shape
        assert inputs.scored.any(1).all()
        assert all(mask.shape == inputs.tokens.shape and mask.any() for mask in inputs.token_kinds.values())
        train = {sample for sample, _ in draw_samples(settings, SEEDS[0], settings.updates_per_epoch(info))}
        assert not {tuple(row) for row in inputs.tokens.tolist()} & train

    def test_planning_needs_no_torch(self, example: dict[str, Any]) -> None:
        done = subprocess.run([sys.executable, "-c", NO_TORCH, json.dumps(example)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def draw_samples(settings: Settings, seed: int, n_batches: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Inputs and targets of the samples of a run's first batches, in their order."""
    batches, samples = settings.task.make_batches([settings], [seed], "cpu", BatchLimits()), []
    for index in range(n_batches):
        batches.prepare(index)
        batch = batches.draw(torch.tensor([index]))
        rows = batch.weights[0] > 0
        pairs = zip(batch.inputs[0][rows].tolist(), batch.targets[0][rows].tolist(), strict=True)
        samples += [(tuple(inputs), tuple(targets)) for inputs, targets in pairs]
    return samples


def count_tokens(samples: list[tuple[tuple[int, ...], tuple[int, ...]]], info: DatasetInfo) -> int:
    """Tokens that a model reads; padding and the EOS before it count where samples have one length only."""
    left_out = () if info.tokens_per_sample is None else (info.padding_id, info.eos_id)
    return sum(token not in left_out for inputs, _ in samples for token in inputs)


def train(pack: list[Settings], seeds: tuple[int, ...] | list[int]) -> Trainer:
    trainer = Trainer(pack, seeds, "cpu", torch.float64)
    for _ in range(7):
        trainer.train_step()
    return trainer
