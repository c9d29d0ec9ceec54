"""From logits to metrics: scores of samples against NumPy, one sample at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from seedbed.data.batch import EvalSplit, SampleScores
from seedbed.training.loss import score_samples, score_tokens

N_RUNS, N_SAMPLES, N_TARGETS, N_TOKENS = 2, 5, 3, 7
LOGITS = torch.randn(N_RUNS, N_SAMPLES, N_TARGETS, N_TOKENS, generator=torch.Generator().manual_seed(1)).double()
TARGETS = LOGITS.argmax(-1)
TARGETS[0, 1, 2] = (TARGETS[0, 1, 2] + 1) % N_TOKENS  # one of the first run's tokens is wrong
TARGETS[1, :2] = (TARGETS[1, :2] + 2) % N_TOKENS  # and all of two samples of the second one
MASK = torch.ones(N_RUNS, N_SAMPLES, N_TARGETS, dtype=torch.bool)
MASK[:, :, 2] = False


def scores_by_hand(run: int, sample: int, targets: list[int]) -> tuple[float, int]:
    """Mean loss and number of right tokens of one sample."""
    losses, n_right = [], 0
    for k in targets:
        logits: NDArray[np.float64] = LOGITS[run, sample, k].numpy()
        right = int(TARGETS[run, sample, k])
        losses.append(np.log(np.exp(logits).sum()) - logits[right])
        n_right += int(np.argmax(logits)) == right
    return float(np.mean(losses)), n_right


@pytest.mark.parametrize("mask", [None, MASK], ids=["all targets", "without padding"])
def test_scores_are_those_of_every_sample_by_itself(mask: torch.Tensor | None) -> None:
    scores = score_samples(score_tokens(LOGITS, TARGETS), mask)
    targets = [0, 1, 2] if mask is None else [0, 1]
    for run in range(N_RUNS):
        for sample in range(N_SAMPLES):
            loss, n_right = scores_by_hand(run, sample, targets)
            assert float(scores.losses[run, sample]) == pytest.approx(loss, rel=1e-12)
            assert int(scores.correct[run, sample]) == n_right


def test_a_split_averages_the_samples_of_its_slice_and_mask() -> None:
    scores = score_samples(score_tokens(LOGITS, TARGETS))
    in_split = torch.tensor([[True, True, False], [True, True, True]])
    split = EvalSplit("val", "[order=2]", slice(1, 4), in_split, n_scored=N_TARGETS, has_token_metric=True)
    metrics = split.metrics(scores.select(split.sample_slice))
    assert list(metrics) == ["val/loss[order=2]", "val/accuracy[order=2]", "val/token_accuracy[order=2]"]
    by_hand = [[scores_by_hand(run, sample, [0, 1, 2]) for sample in (1, 2, 3)] for run in range(N_RUNS)]
    expected = [np.mean([loss for loss, _ in by_hand[0][:2]]), np.mean([loss for loss, _ in by_hand[1]])]
    torch.testing.assert_close(metrics["val/loss[order=2]"], torch.tensor(expected, dtype=torch.float64))
    assert metrics["val/accuracy[order=2]"].tolist() == [1 / 2, 2 / 3]
    assert metrics["val/token_accuracy[order=2]"].tolist() == [5 / 6, 6 / 9]


def test_chunks_are_joined_in_order() -> None:
    whole = score_samples(score_tokens(LOGITS, TARGETS))
    joined = SampleScores.join([whole.select(slice(0, 2)), whole.select(slice(2, 5))])
    assert all(torch.equal(one, other) for one, other in zip(joined, whole, strict=True))
