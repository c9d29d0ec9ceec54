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

from seedbed.inside.maps import Maps

Floats = NDArray[np.float64]
ATTENTION, CIRCLE = "attention_", "circle_"  # how the names of such readings begin


@dataclass(frozen=True)
class Seen:
    """A number of one run: its mean over the inputs, and their population std; None where it needs no inputs."""

    mean: float
    std: float | None = None


@dataclass(frozen=True)
class Plane:
    """The vectors of the numbers 0 … p − 1 in the plane of one frequency."""

    frequency: int
    share: float  # of the table's power at this frequency
    places: Floats  # (p, 2)


@dataclass(frozen=True)
class Look:
    """One run at one kept step; `of` says what was asked of which weights, so that an outdated look is told."""

    run: str
    step: int
    of: str
    part: str  # that the inputs come from; empty and 0 where none were looked at
    n_inputs: int
    readings: Mapping[str, Seen]
    maps: tuple[Maps, ...] = ()
    planes: tuple[Plane, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)  # text → why it has no maps

    def maps_of(self, text: str, by: str) -> Maps | None:
        """The maps of this text, if they were asked for and could be made."""
        return next((maps for maps in self.maps if (maps.text, maps.by) == (text, by)), None)

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.run, "step": self.step, "of": self.of, "part": self.part, "n_inputs": self.n_inputs,
            "readings": {name: [seen.mean, seen.std] for name, seen in self.readings.items()},
            "maps": [maps.as_json() for maps in self.maps],
            "planes": [[one.frequency, one.share, np.round(one.places, 6).tolist()] for one in self.planes],
            "refused": dict(self.refused),
        }  # fmt: skip

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Look:
        kept = {name: document[name] for name in ("run", "step", "of", "part", "n_inputs", "refused")}
        return cls(
            **kept,
            readings={name: Seen(*pair) for name, pair in document["readings"].items()},
            maps=tuple(Maps.from_json(maps) for maps in document["maps"]),
            planes=tuple(Plane(k, share, np.array(places)) for k, share, places in document["planes"]),
        )


def is_inside(metric: str) -> bool:
    """Whether a reading of this name is seen inside a model, not recorded in training.

    >>> is_inside("attention_distance[layer=1]"), is_inside("val/loss")
    (True, False)
    """
    return metric.startswith((ATTENTION, CIRCLE))
