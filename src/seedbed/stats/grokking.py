"""Did a run memorise, grok or generalise? One label per run, and the definitions as text.

The thresholds are report D's: training accuracy ≈ 1 is memorisation, validation accuracy ≥ 0.9 is generalisation, and
validation accuracy ≤ 0.5 at memorisation means that generalisation was delayed.

>>> import numpy as np
>>> steps = np.array([0, 100, 5000])
>>> classify_grokking(Curve(steps, np.array([0.0, 1.0, 1.0])), Curve(steps, np.array([0.0, 0.1, 1.0])))
GrokkingResult(label='grokked', memorised_at=100.0, generalised_at=5000.0)
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
    f"grokked: validation accuracy is at most {MAX_EARLY_VAL_ACCURACY} when training accuracy first reaches "
    f"{MEMORISED_TRAIN_ACCURACY}, and reaches {GENERALISED_VAL_ACCURACY} later; generalised: it reaches "
    f"{GENERALISED_VAL_ACCURACY} without that delay; memorised: training accuracy reaches {MEMORISED_TRAIN_ACCURACY}, "
    f"validation accuracy never {GENERALISED_VAL_ACCURACY}; not learned: neither is reached"
)


@dataclass(frozen=True)
class GrokkingResult:
    """A run's label and the first steps at which the two thresholds are reached; NaN if never."""

    label: GrokkingLabel
    memorised_at: float
    generalised_at: float

    @property
    def delay(self) -> float:
        """Steps between memorisation and generalisation; NaN unless both were reached."""
        return self.generalised_at - self.memorised_at


def classify_grokking(train: Curve, val: Curve, t_max: float | None = None) -> GrokkingResult:
    """The label of a run from its accuracy curves up to t_max; see LABEL_DEFINITIONS."""
    memorised = first_step_reaching(train, MEMORISED_TRAIN_ACCURACY, "max", t_max)
    generalised = first_step_reaching(val, GENERALISED_VAL_ACCURACY, "max", t_max)
    return GrokkingResult(_choose_label(val, memorised, generalised), memorised, generalised)


def _choose_label(val: Curve, memorised: float, generalised: float) -> GrokkingLabel:
    if isnan(generalised):
        return "not learned" if isnan(memorised) else "memorised"
    if isnan(memorised) or generalised <= memorised:
        return "generalised"
    early = truncate_curve(val, memorised).values
    return "grokked" if early.size and early[-1] <= MAX_EARLY_VAL_ACCURACY else "generalised"
