"""Record of a classifier's predictions on a held-out split: confusion counts and its most confident errors; no torch.

SplitPredictions.from_json(document).confusion      # rows: the true class, columns: the predicted one
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

N_ERRORS = 20  # kept with their text, the most confident ones


@dataclass(frozen=True)
class PredictionError:
    """A sample with a wrong prediction."""

    index: int  # in its split
    text: str
    label: str
    predicted: str
    probability: float  # of the predicted class


@dataclass(frozen=True)
class SplitPredictions:
    """The predictions of one run on one split."""

    split: str
    names: tuple[str, ...]  # of the classes
    confusion: tuple[tuple[int, ...], ...]  # (C, C) samples by true and predicted class
    wrong: tuple[int, ...]  # indices of all samples with a wrong prediction
    errors: tuple[PredictionError, ...]  # the most confident of them first, at most N_ERRORS

    @classmethod
    def from_probabilities(
        cls,
        split: str,
        names: Sequence[str],
        labels: NDArray[np.int64],
        probabilities: NDArray[np.float64],
        texts: Sequence[str],
    ) -> SplitPredictions:
        """The record of (N, C) probabilities of samples with these labels."""
        predicted = probabilities.argmax(1)
        counts = np.zeros((len(names), len(names)), dtype=np.int64)
        np.add.at(counts, (labels, predicted), 1)
        wrong = np.flatnonzero(predicted != labels)
        confidence = probabilities.max(1)
        most_confident = wrong[np.argsort(-confidence[wrong], kind="stable")][:N_ERRORS]
        errors = tuple(
            PredictionError(int(i), texts[i], names[labels[i]], names[predicted[i]], round(float(confidence[i]), 6))
            for i in most_confident
        )
        return cls(split, tuple(names), tuple(map(tuple, counts.tolist())), tuple(wrong.tolist()), errors)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SplitPredictions:
        return cls(
            split=document["split"],
            names=tuple(document["names"]),
            confusion=tuple(map(tuple, document["confusion"])),
            wrong=tuple(document["wrong"]),
            errors=tuple(PredictionError(**error) for error in document["errors"]),
        )
