"""Named places inside a model that can be read and replaced: `blocks.0.attention.pattern`, `lstm.1.cell`, `embed`.

A model calls `taps(name, value)` at each place and goes on with what it gets back, so reading changes nothing and a
replacement (a value, or a function of the value) reaches all that follows. All names: docs/taps.md.

>>> taps = Taps("blocks.*.out", replace={"embed": lambda value: 0 * value})
>>> taps("blocks.0.out", 1.0), taps("embed", 2.0), taps.read
(1.0, 0.0, {'blocks.0.out': 1.0})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from seedbed.errors import UsageError

Replacement: TypeAlias = Tensor | Callable[[Any], Any]


class Taps:
    """Keeps the values of the places whose names match one of the patterns, as the model goes on with them."""

    def __init__(self, *patterns: str, replace: Mapping[str, Replacement] | None = None) -> None:
        self.patterns, self.replace = patterns, dict(replace or {})
        self.active = bool(self.patterns or self.replace)
        self.replaced: set[str] = set()  # names that a model came by
        self._read: dict[str, Any] = {}

    @property
    def read(self) -> dict[str, Any]:
        """What was read, by name and in the order of the model; places of single positions stacked along time."""
        return {
            name: torch.stack(value, dim=-2) if isinstance(value, list) else value for name, value in self._read.items()
        }

    def wants(self, name: str) -> bool:
        return self.active and (name in self.replace or self._reads(name))

    def _reads(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.patterns)

    def __call__(self, name: str, value: Any) -> Any:
        if not self.active:
            return value
        if name in self.replace:
            given = self.replace[name]
            value = given(value) if callable(given) else given
            self.replaced.add(name)
        if self._reads(name):
            self._read[name] = value
        return value

    def each(self, name: str, time: int, value: Any) -> Any:
        """As a call, for the value of one position in a model that goes position by position.

        A replacement by value holds all positions; one by function gets them one by one.
        """
        if not self.active:
            return value
        if name in self.replace:
            given = self.replace[name]
            value = given(value) if callable(given) else given.select(-2, time)
            self.replaced.add(name)
        if self._reads(name):
            self._read.setdefault(name, []).append(value)
        return value


NO_TAPS = Taps()


def tap_names(model: nn.Module) -> list[str]:
    """Every place of this model, in the order in which a forward pass comes by."""
    return list(tap_values(model, torch.zeros(len(next(model.parameters())), 1, 1, dtype=torch.int64), "*"))


def tap_values(
    model: nn.Module, tokens: Tensor, *patterns: str, replace: Mapping[str, Replacement] | None = None
) -> dict[str, Tensor]:
    """The values at the places that match, on these tokens, without dropout or gradients; some places replaced."""
    taps = Taps(*patterns, replace=replace)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            model(tokens, taps=taps)
    finally:
        model.train(was_training)
    found = taps.read
    missed = [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in found)]
    missed += [name for name in taps.replace if name not in taps.replaced]
    if missed:
        raise UsageError(f"tap {missed[0]!r} is no place of this model; `seedbed taps RUN` lists them")
    return found


def attention_patterns(model: nn.Module, tokens: Tensor) -> list[Tensor]:
    """The attention weights of every block in order, (…, heads, T, T) each; none where there are no blocks."""
    if not hasattr(model, "blocks"):
        return []
    return list(tap_values(model, tokens, "blocks.*.attention.pattern").values())
