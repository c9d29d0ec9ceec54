"""What was seen inside a run at one kept step, as a record: numbers by name, maps and planes for pictures; no torch.

    look = Look.from_json(document)
    look.readings["attention_distance[layer=1]"].mean

Numbers are named as readings are, so figures and questions take them alike. Who makes a look and where it is kept is
left to others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.interp.text_attention import TextAttention

Floats = NDArray[np.float64]
ATTENTION_METRIC_PREFIX, CIRCLE_METRIC_PREFIX = "attention_", "circle_"  # how the names of such readings begin


@dataclass(frozen=True)
class AnalysisValue:
    """A number of one run: its mean over the inputs, and their population std; None where it needs no inputs."""

    mean: float
    std: float | None = None


@dataclass(frozen=True)
class FrequencyPlane:
    """The vectors of the numbers 0 … p − 1 in the plane of one frequency."""

    frequency: int
    power_share: float  # of the table's power at this frequency
    coordinates: Floats  # (p, 2)


@dataclass(frozen=True)
class Analysis:
    """One run at one kept step; `of` says what was asked of which weights, so that an outdated look is told."""

    run: str
    step: int
    fingerprint: str
    split: str  # that the inputs come from; empty and 0 where none were looked at
    n_inputs: int
    metrics: Mapping[str, AnalysisValue]
    attention: tuple[TextAttention, ...] = ()
    planes: tuple[FrequencyPlane, ...] = ()
    attention_errors: Mapping[str, str] = field(default_factory=dict)  # text → why it has no maps

    def find_attention(self, text: str, granularity: str) -> TextAttention | None:
        """The maps of this text, if they were asked for and could be made."""
        return next((maps for maps in self.attention if (maps.text, maps.granularity) == (text, granularity)), None)

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.run, "step": self.step, "fingerprint": self.fingerprint, "split": self.split,
            "n_inputs": self.n_inputs, "metrics": {name: [seen.mean, seen.std] for name, seen in self.metrics.items()},
            "attention": [maps.as_json() for maps in self.attention],
            "planes": [[one.frequency, one.power_share, np.round(one.coordinates, 6).tolist()] for one in self.planes],
            "attention_errors": dict(self.attention_errors),
        }  # fmt: skip

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Analysis:
        kept = {name: document[name] for name in ("run", "step", "fingerprint", "split", "n_inputs", "attention_errors")}
        return cls(
            **kept,
            metrics={name: AnalysisValue(*pair) for name, pair in document["metrics"].items()},
            attention=tuple(TextAttention.from_json(maps) for maps in document["attention"]),
            planes=tuple(FrequencyPlane(k, share, np.array(places)) for k, share, places in document["planes"]),
        )


def is_analysis_metric(metric: str) -> bool:
    """Whether a reading of this name is seen inside a model, not recorded in training.

    >>> is_inside("attention_distance[layer=1]"), is_inside("val/loss")
    (True, False)
    """
    return metric.startswith((ATTENTION_METRIC_PREFIX, CIRCLE_METRIC_PREFIX))
