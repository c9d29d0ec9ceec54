"""Whether a run memorised, grokked or generalised: one label per run, with the definition in words.

The thresholds are report D's: training accuracy ≈ 1 is memorised, validation accuracy ≥ 0.9 is generalisation, and at
most 0.5 is not understood.

>>> import numpy as np
>>> steps = np.array([0, 100, 5000])
>>> grokking(Curve(steps, np.array([0.0, 1.0, 1.0])), Curve(steps, np.array([0.0, 0.1, 1.0])))
Grokking(label='grokked', memorised_at=100.0, generalised_at=5000.0)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan
from typing import Literal, TypeAlias

from seedbed.records import Curve
from seedbed.stats.curve_statistics import first_step_reaching, truncate_curve

GrokkingLabel: TypeAlias = Literal["not learned", "memorised", "grokked", "generalised"]
GROKKING_LABELS: tuple[GrokkingLabel, ...] = ("not learned", "memorised", "grokked", "generalised")

MEMORISED_TRAIN_ACCURACY = 0.99
GENERALISED_VAL_ACCURACY = 0.9
MAX_EARLY_VAL_ACCURACY = 0.5

LABEL_DEFINITIONS = (
    f"grokked: validation accuracy is at most {MAX_EARLY_VAL_ACCURACY} when training accuracy first reaches {MEMORISED_TRAIN_ACCURACY}, and "
    f"reaches {GENERALISED_VAL_ACCURACY} later; generalised: it reaches {GENERALISED_VAL_ACCURACY} without that delay; memorised: training "
    f"accuracy reaches {MEMORISED_TRAIN_ACCURACY} and validation accuracy never {GENERALISED_VAL_ACCURACY}; not learned: neither does"
)


@dataclass(frozen=True)
class GrokkingResult:
    """A run's label and the first steps of its two thresholds; NaN where one is never reached."""

    label: GrokkingLabel
    memorised_at: float
    generalised_at: float

    @property
    def delay(self) -> float:
        """Steps between memorising and generalising; NaN unless both happened."""
        return self.generalised_at - self.memorised_at


def classify_grokking(train: Curve, val: Curve, t_max: float | None = None) -> GrokkingResult:
    """The label of a run from its two accuracies up to t_max; see DEFINITION."""
    memorised = first_step_reaching(train, MEMORISED_TRAIN_ACCURACY, "max", t_max)
    generalised = first_step_reaching(val, GENERALISED_VAL_ACCURACY, "max", t_max)
    return GrokkingResult(_choose_label(val, memorised, generalised), memorised, generalised)


def _choose_label(val: Curve, memorised: float, generalised: float) -> GrokkingLabel:
    if isnan(generalised):
        return "not learned" if isnan(memorised) else "memorised"
    if isnan(memorised) or generalised <= memorised:
        return "generalised"
    seen = truncate_curve(val, memorised).values
    return "grokked" if seen.size and seen[-1] <= MAX_EARLY_VAL_ACCURACY else "generalised"
