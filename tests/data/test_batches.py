"""Which samples batches hold: every one once an epoch, or places drawn as the sampler says; whatever the neighbours."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from seedbed.data import batch
from seedbed.data.batches import make_batches
from seedbed.data.dataset_info import get_dataset_info
from seedbed.data.datasets import load_labelled_dataset, load_text_dataset
from seedbed.data.windows import uniform_document_sampler, uniform_position_sampler
from seedbed.settings import Settings

CPU = torch.device("cpu")
LENGTH = 5


@pytest.fixture
def corpus(tmp_path):
    """Three documents of 40, 25 and 9 letters; some pieces are in two of them."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789äöüß"
    for i, text in enumerate((letters[:40], letters[20:45], letters[50:59])):
        (tmp_path / f"{i}.txt").write_text(text, encoding="utf-8")
    return str(tmp_path)


def settings(corpus, sampler, batch_size=4, **more):
    dials = {"task.kind": "text", "task.corpus": corpus, "task.length": LENGTH, "task.sampler": sampler,
             "task.val_fraction": 0.0, "train.batch_size": batch_size, "model.dim": 4, "model.heads": 2}  # fmt: skip
    return Settings.from_flat(dials | more)


def drawn(batches, numbers, slot, accumulate=1):
    """The samples of these batches that count for a run: inputs and last target as one tuple, with their weights."""
    rows, weights = [], []
    for number in numbers:
        batches.prepare(number // accumulate)
        batch = batches.draw(torch.tensor([number]))
        for row in torch.nonzero(batch.weights[slot] > 0)[:, 0].tolist():
            rows.append((*batch.inputs[slot, row].tolist(), int(batch.targets[slot, row, -1])))
            weights.append(float(batch.weights[slot, row]))
    return rows, weights


@pytest.mark.parametrize("in_step", [False, True], ids=["order made by the host", "in the update, as on a GPU"])
@pytest.mark.parametrize("sampler", ["windows", "epochs"])
def test_an_epoch_shows_every_window_once(corpus, sampler, in_step, monkeypatch):
    """74 letters as one row: 69 windows with stride 1, or 15 side by side of which the last is short."""
    runs = [settings(corpus, sampler, 4), settings(corpus, sampler, 7)]
    batches = make_batches(runs, [3, 4], CPU)
    if in_step:
        monkeypatch.setattr(batches._training._epochs, "_order", None)
    row = load_text_dataset(runs[0].task).splits["train"].ids.tolist()
    starts = range(69) if sampler == "windows" else range(0, 73, 5)
    padded = row + [0] * LENGTH
    expected = Counter(tuple(padded[start : start + LENGTH + 1]) for start in starts)
    for slot, size in enumerate((4, 7)):
        per_epoch = -(-len(starts) // size)
        assert per_epoch == runs[slot].updates_per_epoch(get_dataset_info(runs[slot].task))
        orders = []
        for epoch in range(2):
            found = []
            for step in range(epoch * per_epoch, (epoch + 1) * per_epoch):
                rows, weights = drawn(batches, [step], slot)
                assert sum(weights) == pytest.approx(1.0)
                found += rows
            assert Counter(found) == expected
            orders.append(found)
        assert orders[0] != orders[1]


def test_the_order_of_an_epoch_is_the_same_kept_or_made_in_the_update(corpus, monkeypatch):
    run = [settings(corpus, "windows")] * 2
    in_step, kept = make_batches(run, [0, 9], CPU), make_batches(run, [0, 9], CPU)
    monkeypatch.setattr(in_step._training._epochs, "_order", None)  # as on a GPU
    for step in (0, 5, 20, 3):  # a state restored may lie in an earlier epoch
        kept.prepare(step)
        assert torch.equal(kept.draw(torch.tensor([step])).inputs, in_step.draw(torch.tensor([step])).inputs)


def test_of_a_short_window_only_its_own_tokens_are_scored(corpus):
    batches = make_batches([settings(corpus, "epochs", 15)], [0], CPU)
    batch = batches.draw(torch.tensor([0]))
    assert sorted(batch.target_mask.sum(-1)[0].tolist()) == [3] + [5] * 14
    assert (batch.targets[~batch.target_mask] == 0).all()
    assert (batch.targets[batch.target_mask] > 0).all()


@pytest.mark.parametrize("sampler", ["documents", "length"])
def test_random_places_come_as_often_as_the_sampler_says(corpus, sampler):
    """4,000 draws: every piece of a document within five standard deviations of its expected count, and no other."""
    run = settings(corpus, sampler, 14)
    part = load_text_dataset(run.task).splits["train"]
    oracle = (uniform_document_sampler if sampler == "documents" else uniform_position_sampler)(part.spans, LENGTH)
    expected = Counter()
    for start, n, share in zip(oracle.starts, oracle.n_starts, oracle.span_probabilities(), strict=True):
        for place in range(n):
            expected[tuple(part.ids[start + place : start + place + LENGTH + 1].tolist())] += share / n
    rows, _ = drawn(make_batches([run], [5], CPU), range(286), 0)
    counts = Counter(rows)
    assert set(counts) == set(expected)
    for row, share in expected.items():
        deviation = np.sqrt(len(rows) * share * (1 - share))
        assert abs(counts[row] - len(rows) * share) < 5 * deviation


@pytest.mark.parametrize("sampler", ["documents", "windows", "epochs"])
def test_several_batches_of_an_update_are_one_large_batch(corpus, sampler):
    """12 samples as 3 × 4 and as 12 × 1; where an epoch ends the last update is short in both."""
    small = make_batches([settings(corpus, sampler, 4, **{"train.accumulate": 3})], [2], CPU)
    large = make_batches([settings(corpus, sampler, 12)], [2], CPU)
    for step in range(7):
        rows, weights = drawn(small, range(3 * step, 3 * step + 3), 0, accumulate=3)
        whole, whole_weights = drawn(large, [step], 0)
        assert Counter(rows) == Counter(whole)
        assert weights == pytest.approx(whole_weights)
        assert sum(weights) == pytest.approx(1.0)


@pytest.mark.parametrize("sampler", ["documents", "length", "windows", "epochs"])
def test_a_run_draws_the_same_whatever_its_neighbours(corpus, sampler):
    small, large = settings(corpus, sampler, 3), settings(corpus, sampler, 8)
    together, alone = make_batches([large, small], [1, 7], CPU), make_batches([small], [7], CPU)
    for step in range(6):
        assert drawn(together, [step], 1) == drawn(alone, [step], 0)


def test_ids_are_held_once_and_small(corpus):
    batches = make_batches([settings(corpus, "epochs")] * 50, range(50), CPU)
    (ids,) = batches._rows.values()
    assert ids.dtype == torch.uint8
    assert ids.shape == (74,)


def test_labelled_texts_come_once_an_epoch_with_their_labels(tmp_path):
    path = tmp_path / "moods.tsv"
    path.write_text("".join(f"{'glad' if i % 3 else 'sad'}\tday {i} was so\n" for i in range(11)), encoding="utf-8")
    run = Settings.from_flat({"task.kind": "labels", "task.corpus": str(path), "task.length": 6, "model.kind": "encoder",
                       "task.val_fraction": 0.2, "train.batch_size": 4})  # fmt: skip
    batches, train = make_batches([run], [0], CPU), load_labelled_dataset(run.task).splits["train"]
    expected = Counter((*row, label) for row, label in zip(train.rows.tolist(), train.labels.tolist(), strict=True))
    rows, _ = drawn(batches, range(3), 0)
    assert len(train.labels) == 9
    assert Counter(rows) == expected
    assert [part.name for part in batches.eval_splits] == ["train", "val"]


def test_evaluated_samples_are_spread_evenly_and_never_twice():
    rows, counted = batch.evenly_spaced_rows(100, [7, 0, 100, 1000])
    assert counted.sum(1).tolist() == [7, 100, 100, 100]
    for row, inside in zip(rows, counted, strict=True):
        assert len(set(row[inside].tolist())) == inside.sum()
        gaps = np.diff(row[inside])
        assert gaps.max() - gaps.min() <= 1


@pytest.mark.parametrize(("n", "most"), [(1, 5), (10, 3), (2560, 1481), (2092, 700), (97, 10), (12, 4), (5, 0)])
def test_chunks_cover_every_row_once_and_are_alike_where_that_costs_little(n, most):
    rows = torch.arange(n)[None].repeat(2, 1)
    chunks = list(batch.split_into_chunks(rows, most))
    assert torch.equal(torch.cat(chunks, dim=1), rows)
    assert max(chunk.shape[1] for chunk in chunks) <= max(1, most)
    assert len(chunks) < 2 * -(-n // max(1, most))


def test_chunks_of_a_number_that_divides_have_one_shape():
    assert {chunk.shape for chunk in batch.split_into_chunks(torch.zeros(1, 2560), 1481)} == {(1, 1280)}
    assert {chunk.shape for chunk in batch.split_into_chunks(torch.zeros(1, 12), 5)} == {(1, 4)}


@pytest.mark.parametrize("accumulate", [1, 3])
def test_batches_from_a_table_are_those_worked_out_on_the_way(accumulate):
    """Three runs whose epochs have 5, 1 and 4 updates, over several epochs."""
    made = ([50, 8, 37], [10, 30, 11], accumulate, [1, 2, 3], CPU)
    plain, looked_up = batch.EpochSampler(*made), batch.EpochSampler(*made)
    looked_up.precompute_batches()
    for number in range(30):
        for epochs in (plain, looked_up):
            epochs.prepare(number // accumulate)
        for ours, expected in zip(*(one.draw(torch.tensor([number])) for one in (looked_up, plain)), strict=True):
            assert torch.equal(ours, expected)
