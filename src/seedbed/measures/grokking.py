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

from seedbed.measures.curves import first_reaching, up_to
from seedbed.records import Curve

Label: TypeAlias = Literal["not learned", "memorised", "grokked", "generalised"]
LABELS: tuple[Label, ...] = ("not learned", "memorised", "grokked", "generalised")

MEMORISED = 0.99
GENERALISED = 0.9
NOT_UNDERSTOOD = 0.5

DEFINITION = (
    f"grokked: validation accuracy is at most {NOT_UNDERSTOOD} when training accuracy first reaches {MEMORISED}, and "
    f"reaches {GENERALISED} later; generalised: it reaches {GENERALISED} without that delay; memorised: training "
    f"accuracy reaches {MEMORISED} and validation accuracy never {GENERALISED}; not learned: neither does"
)


@dataclass(frozen=True)
class Grokking:
    """A run's label and the first steps of its two thresholds; NaN where one is never reached."""

    label: Label
    memorised_at: float
    generalised_at: float

    @property
    def delay(self) -> float:
        """Steps between memorising and generalising; NaN unless both happened."""
        return self.generalised_at - self.memorised_at


def grokking(train: Curve, val: Curve, t_max: float | None = None) -> Grokking:
    """The label of a run from its two accuracies up to t_max; see DEFINITION."""
    memorised = first_reaching(train, MEMORISED, "max", t_max)
    generalised = first_reaching(val, GENERALISED, "max", t_max)
    return Grokking(_label(val, memorised, generalised), memorised, generalised)


def _label(val: Curve, memorised: float, generalised: float) -> Label:
    if isnan(generalised):
        return "not learned" if isnan(memorised) else "memorised"
    if isnan(memorised) or generalised <= memorised:
        return "generalised"
    seen = up_to(val, memorised).values
    return "grokked" if seen.size and seen[-1] <= NOT_UNDERSTOOD else "generalised"
