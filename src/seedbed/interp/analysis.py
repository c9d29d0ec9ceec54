"""Record of everything computed inside a run at one checkpoint: metrics, attention, planes, predictions; no torch.

    analysis = Analysis.from_json(document)
    analysis.metrics["attention_distance[layer=1]"].mean

Values are named like training metrics, so figures and questions treat both alike. Computing and storing analyses is
left to others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.interp.text_attention import TextAttention

Floats = NDArray[np.float64]
ATTENTION_METRIC_PREFIX, CIRCLE_METRIC_PREFIX = "attention_", "circle_"
N_ERRORS = 20  # wrong predictions of a split that are kept with their text, the most confident ones


@dataclass(frozen=True)
class AnalysisValue:
    """Mean and population std of a metric over the inputs; std is None for a metric that needs no inputs."""

    mean: float
    std: float | None = None


@dataclass(frozen=True)
class FrequencyPlane:
    """Embeddings of the numbers, in their cyclic order, projected onto the plane of one Fourier frequency."""

    frequency: int
    power_share: float  # share of the embedding table's power at this frequency
    coordinates: Floats  # (n, 2)
    numbers: tuple[int, ...] = ()  # the number of each row; empty: 0 … n − 1

    def as_json(self) -> list[Any]:
        plain = [self.frequency, self.power_share, np.round(self.coordinates, 6).tolist()]
        return [*plain, list(self.numbers)] if self.numbers else plain


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
    """The predictions of a classifier on one split."""

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


@dataclass(frozen=True)
class Analysis:
    """All analyses of one run at one checkpoint.

    `fingerprint` identifies the request and the weights, so that an outdated analysis can be recognised.
    """

    run: str
    step: int
    fingerprint: str
    split: str  # of the inputs; empty, with n_inputs = 0, if none were used
    n_inputs: int
    metrics: Mapping[str, AnalysisValue]
    attention: tuple[TextAttention, ...] = ()
    planes: tuple[FrequencyPlane, ...] = ()
    attention_errors: Mapping[str, str] = field(default_factory=dict)  # text → why its attention is missing
    predictions: tuple[SplitPredictions, ...] = ()  # of a classifier, on its validation and test texts
    inputs_error: str = ""  # why there were no held-out inputs, though statistics on them were requested
    weights_error: str = ""  # why the weights cannot be read; what is here is from before, or nothing

    def find_attention(self, text: str, granularity: str) -> TextAttention | None:
        """Attention of this text, or None if it was not requested or could not be computed."""
        return next((one for one in self.attention if (one.text, one.granularity) == (text, granularity)), None)

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.run, "step": self.step, "fingerprint": self.fingerprint, "split": self.split,
            "n_inputs": self.n_inputs,
            "metrics": {name: [value.mean, value.std] for name, value in self.metrics.items()},
            "attention": [one.as_json() for one in self.attention],
            "planes": [one.as_json() for one in self.planes],
            "attention_errors": dict(self.attention_errors), "inputs_error": self.inputs_error,
            "weights_error": self.weights_error,
            "predictions": [one.as_json() for one in self.predictions],
        }  # fmt: skip

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Analysis:
        plain = ("run", "step", "fingerprint", "split", "n_inputs", "attention_errors")
        return cls(
            **{name: document[name] for name in plain},
            inputs_error=document.get("inputs_error", ""),
            weights_error=document.get("weights_error", ""),
            predictions=tuple(SplitPredictions.from_json(one) for one in document.get("predictions", ())),
            metrics={name: AnalysisValue(*pair) for name, pair in document["metrics"].items()},
            attention=tuple(TextAttention.from_json(one) for one in document["attention"]),
            planes=tuple(
                FrequencyPlane(k, share, np.array(xy), *map(tuple, numbers))
                for k, share, xy, *numbers in document["planes"]
            ),
        )


def is_analysis_metric(metric: str) -> bool:
    """Is this metric computed by an analysis, rather than recorded in training?

    >>> is_analysis_metric("attention_distance[layer=1]"), is_analysis_metric("val/loss")
    (True, False)
    """
    return metric.startswith((ATTENTION_METRIC_PREFIX, CIRCLE_METRIC_PREFIX))
