"""Batches hold every sample once per epoch, or random positions with the sampler's probabilities, for any pack."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from seedbed.data import batch
from seedbed.data.windows import uniform_document_sampler, uniform_position_sampler
from seedbed.settings import Settings
from seedbed.tasks.base import make_batches
from seedbed.tasks.labels import load_labelled_dataset
from seedbed.tasks.text import load_text_dataset

CPU = torch.device("cpu")
LENGTH = 5


@pytest.fixture
def corpus(tmp_path):
    """Three documents of 40, 25 and 9 letters; the first two overlap."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789äöüß"
    for i, text in enumerate((letters[:40], letters[20:45], letters[50:59])):
        (tmp_path / f"{i}.txt").write_text(text, encoding="utf-8")
    return str(tmp_path)


def settings(corpus, sampler, batch_size=4, **overrides):
    values = {"task.kind": "text", "task.corpus": corpus, "task.length": LENGTH, "task.sampler": sampler,
             "task.val_fraction": 0.0, "train.batch_size": batch_size, "model.dim": 4, "model.heads": 2}  # fmt: skip
    return Settings.from_flat(values | overrides)


def draw_samples(batches, batch_indices, slot, accumulate=1):
    """Returns the samples of these batches with nonzero weight for a run: (*inputs, last target), and their weights."""
    rows, weights = [], []
    for batch_index in batch_indices:
        batches.prepare(batch_index // accumulate)
        batch = batches.draw(torch.tensor([batch_index]))
        for row in torch.nonzero(batch.weights[slot] > 0)[:, 0].tolist():
            rows.append((*batch.inputs[slot, row].tolist(), int(batch.targets[slot, row, -1])))
            weights.append(float(batch.weights[slot, row]))
    return rows, weights


@pytest.mark.parametrize("in_step", [False, True], ids=["shuffled on the host", "shuffled in the update"])
@pytest.mark.parametrize("sampler", ["windows", "epochs"])
def test_an_epoch_holds_every_window_once(corpus, sampler, in_step, monkeypatch):
    """74 letters in one span: 69 windows with stride 1, or 15 consecutive ones, the last of which is short."""
    runs = [settings(corpus, sampler, 4), settings(corpus, sampler, 7)]
    batches = make_batches(runs, [3, 4], "cpu")
    if in_step:
        monkeypatch.setattr(batches._training._epoch_sampler, "_order", None)
    row = load_text_dataset(runs[0].task).splits["train"].ids.tolist()
    starts = range(69) if sampler == "windows" else range(0, 73, 5)
    padded = row + [0] * LENGTH
    expected = Counter(tuple(padded[start : start + LENGTH + 1]) for start in starts)
    for slot, size in enumerate((4, 7)):
        per_epoch = -(-len(starts) // size)
        assert per_epoch == runs[slot].updates_per_epoch(runs[slot].task.dataset_info())
        orders = []
        for epoch in range(2):
            found = []
            for step in range(epoch * per_epoch, (epoch + 1) * per_epoch):
                rows, weights = draw_samples(batches, [step], slot)
                assert sum(weights) == pytest.approx(1.0)
                found += rows
            assert Counter(found) == expected
            orders.append(found)
        assert orders[0] != orders[1]


def test_the_shuffled_order_is_the_same_on_the_host_and_in_the_update(corpus, monkeypatch):
    run = [settings(corpus, "windows")] * 2
    in_step, stored = make_batches(run, [0, 9], "cpu"), make_batches(run, [0, 9], "cpu")
    monkeypatch.setattr(in_step._training._epoch_sampler, "_order", None)  # as on a GPU
    for step in (0, 5, 20, 3):  # a restored checkpoint may lie in an earlier epoch
        stored.prepare(step)
        assert torch.equal(stored.draw(torch.tensor([step])).inputs, in_step.draw(torch.tensor([step])).inputs)


def test_padding_of_a_short_window_is_not_scored(corpus):
    batches = make_batches([settings(corpus, "epochs", 15)], [0], "cpu")
    batch = batches.draw(torch.tensor([0]))
    assert sorted(batch.target_mask.sum(-1)[0].tolist()) == [3] + [5] * 14
    assert (batch.targets[~batch.target_mask] == 0).all()
    assert (batch.targets[batch.target_mask] > 0).all()


@pytest.mark.parametrize("sampler", ["documents", "length"])
def test_random_positions_follow_the_samplers_distribution(corpus, sampler):
    """4,000 draws: the count of every window is within five standard deviations of its expectation."""
    run = settings(corpus, sampler, 14)
    split = load_text_dataset(run.task).splits["train"]
    oracle = (uniform_document_sampler if sampler == "documents" else uniform_position_sampler)(split.spans, LENGTH)
    expected = Counter()
    probabilities = np.diff(oracle.cumulative_weights, prepend=0) / oracle.cumulative_weights[-1]
    for start, n, probability in zip(oracle.starts, oracle.n_starts, probabilities, strict=True):
        for offset in range(n):
            expected[tuple(split.ids[start + offset : start + offset + LENGTH + 1].tolist())] += probability / n
    rows, _ = draw_samples(make_batches([run], [5], "cpu"), range(286), 0)
    counts = Counter(rows)
    assert set(counts) == set(expected)
    for row, probability in expected.items():
        deviation = np.sqrt(len(rows) * probability * (1 - probability))
        assert abs(counts[row] - len(rows) * probability) < 5 * deviation


@pytest.mark.parametrize("sampler", ["documents", "windows", "epochs"])
def test_accumulated_batches_equal_one_large_batch(corpus, sampler):
    """12 samples as 3 × 4 and as 1 × 12; the last update of an epoch is short in both."""
    small = make_batches([settings(corpus, sampler, 4, **{"train.accumulate": 3})], [2], "cpu")
    large = make_batches([settings(corpus, sampler, 12)], [2], "cpu")
    for step in range(7):
        rows, weights = draw_samples(small, range(3 * step, 3 * step + 3), 0, accumulate=3)
        whole, whole_weights = draw_samples(large, [step], 0)
        assert Counter(rows) == Counter(whole)
        assert weights == pytest.approx(whole_weights)
        assert sum(weights) == pytest.approx(1.0)


@pytest.mark.parametrize("sampler", ["documents", "length", "windows", "epochs"])
def test_a_run_draws_the_same_samples_in_any_pack(corpus, sampler):
    small, large = settings(corpus, sampler, 3), settings(corpus, sampler, 8)
    together, alone = make_batches([large, small], [1, 7], "cpu"), make_batches([small], [7], "cpu")
    for step in range(6):
        assert draw_samples(together, [step], 1) == draw_samples(alone, [step], 0)


def test_ids_are_stored_once_in_the_smallest_dtype(corpus):
    batches = make_batches([settings(corpus, "epochs")] * 50, range(50), "cpu")
    (ids,) = batches._device_ids.values()
    assert ids.dtype == torch.uint8
    assert ids.shape == (74,)


def test_an_epoch_holds_every_labelled_text_once_with_its_label(tmp_path):
    path = tmp_path / "moods.tsv"
    path.write_text("".join(f"{'glad' if i % 3 else 'sad'}\tday {i} was so\n" for i in range(11)), encoding="utf-8")
    values = {"task.kind": "labels", "task.corpus": str(path), "task.length": 6, "model.kind": "encoder",
              "task.val_fraction": 0.2, "train.batch_size": 4}  # fmt: skip
    run = Settings.from_flat(values)
    batches, train = make_batches([run], [0], "cpu"), load_labelled_dataset(run.task).splits["train"]
    expected = Counter((*row, label) for row, label in zip(train.rows.tolist(), train.labels.tolist(), strict=True))
    rows, _ = draw_samples(batches, range(3), 0)
    assert len(train.labels) == 9
    assert Counter(rows) == expected
    assert [split.name for split in batches.eval_splits] == ["train", "val"]


def test_evaluated_samples_are_evenly_spaced_and_distinct():
    rows, sample_mask = batch.evenly_spaced_rows(100, [7, 0, 100, 1000])
    assert sample_mask.sum(1).tolist() == [7, 100, 100, 100]
    for row, mask in zip(rows, sample_mask, strict=True):
        assert len(set(row[mask].tolist())) == mask.sum()
        gaps = np.diff(row[mask])
        assert gaps.max() - gaps.min() <= 1


@pytest.mark.parametrize(("n", "max_rows"), [(1, 5), (10, 3), (2560, 1481), (2092, 700), (97, 10), (12, 4), (5, 0)])
def test_chunks_cover_every_row_once_within_the_limits(n, max_rows):
    rows = torch.arange(n)[None].repeat(2, 1)
    chunks = list(batch.split_into_chunks(rows, max_rows))
    assert torch.equal(torch.cat(chunks, dim=1), rows)
    assert max(chunk.shape[1] for chunk in chunks) <= max(1, max_rows)
    assert len(chunks) < 2 * -(-n // max(1, max_rows))


def test_chunks_have_one_shape_if_the_number_of_rows_divides():
    assert {chunk.shape for chunk in batch.split_into_chunks(torch.zeros(1, 2560), 1481)} == {(1, 1280)}
    assert {chunk.shape for chunk in batch.split_into_chunks(torch.zeros(1, 12), 5)} == {(1, 4)}


@pytest.mark.parametrize("accumulate", [1, 3])
def test_precomputed_batches_match_those_computed_on_the_fly(accumulate):
    """Three runs whose epochs have 5, 1 and 4 updates, over several epochs."""
    runs = [Settings.from_flat({"train.batch_size": n, "train.accumulate": accumulate}) for n in (10, 30, 11)]
    arguments = (batch.MicroBatchLayout([50, 8, 37], runs, CPU), [1, 2, 3])
    on_the_fly, precomputed = batch.EpochSampler(*arguments), batch.EpochSampler(*arguments)
    precomputed.precompute_batches()
    for batch_index in range(30):
        for sampler in (on_the_fly, precomputed):
            sampler.prepare(batch_index // accumulate)
        for actual, expected in zip(
            *(sampler.draw(torch.tensor([batch_index])) for sampler in (precomputed, on_the_fly)), strict=True
        ):
            assert torch.equal(actual, expected)
