"""Named places inside a model that can be read and replaced: `blocks.0.attention.pattern`, `lstm.1.cell`, `embed`.

A model calls `taps(name, value)` at each place and goes on with what it gets back, so reading changes nothing and a
replacement (a value, or a function of the value) reaches all that follows. All names: docs/hooks.md. Where
TransformerLens has the same place, its name is taken as well: `blocks.0.attn.hook_pattern`.

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

TRANSFORMER_LENS_NAMES = {  # our place → the same one in TransformerLens
    "embed.tokens": "hook_embed",
    "final_norm": "ln_final.hook_normalized",
}
TRANSFORMER_LENS_BLOCK_NAMES = {  # both after `blocks.0.`
    "in": "hook_resid_pre", "attention.q": "attn.hook_q", "attention.k": "attn.hook_k", "attention.v": "attn.hook_v",
    "attention.pattern": "attn.hook_pattern", "attention.z": "attn.hook_z", "attention.out": "hook_attn_out",
    "mid": "hook_resid_mid", "mlp.pre": "mlp.hook_pre", "mlp.post": "mlp.hook_post", "mlp.out": "hook_mlp_out",
    "out": "hook_resid_post",
}  # fmt: skip
_FROM_TRANSFORMER_LENS = {lens: ours for ours, lens in TRANSFORMER_LENS_NAMES.items()}
_FROM_TRANSFORMER_LENS_BLOCK = {lens: ours for ours, lens in TRANSFORMER_LENS_BLOCK_NAMES.items()}


def to_transformer_lens_name(name: str) -> str | None:
    """What TransformerLens calls a place, if it has it.

    >>> lens_name("blocks.3.attention.pattern"), lens_name("lstm.0.cell")
    ('blocks.3.attn.hook_pattern', None)
    """
    return _translate_name(name, TRANSFORMER_LENS_NAMES, TRANSFORMER_LENS_BLOCK_NAMES)


def from_transformer_lens_name(name: str) -> str:
    """Our name of a place that is called as in TransformerLens; other names as they are.

    >>> place_named("blocks.0.hook_resid_post"), place_named("embed")
    ('blocks.0.out', 'embed')
    """
    return _translate_name(name, _FROM_TRANSFORMER_LENS, _FROM_TRANSFORMER_LENS_BLOCK) or name


def _translate_name(name: str, whole: Mapping[str, str], in_block: Mapping[str, str]) -> str | None:
    if not name.startswith("blocks."):
        return whole.get(name)
    _, number, rest = name.split(".", 2)
    return f"blocks.{number}.{in_block[rest]}" if rest in in_block else None


def hook_matches(name: str, pattern: str) -> bool:
    """Whether a pattern means a place, by our name or by that of TransformerLens."""
    return fnmatchcase(name, pattern) or fnmatchcase(to_transformer_lens_name(name) or "", pattern)


class Hooks:
    """Keeps the values of the places whose names match one of the patterns, as the model goes on with them."""

    def __init__(self, *patterns: str, replace: Mapping[str, Replacement] | None = None) -> None:
        self.patterns = patterns
        self.replace = {from_transformer_lens_name(name): given for name, given in (replace or {}).items()}
        self.active = bool(self.patterns or self.replace)
        self.replaced: set[str] = set()  # names that a model came by
        self._activations: dict[str, Any] = {}

    @property
    def activations(self) -> dict[str, Any]:
        """What was read, by name and in the order of the model; places of single positions stacked along time."""
        return {
            name: torch.stack(value, dim=-2) if isinstance(value, list) else value
            for name, value in self._activations.items()
        }

    def is_requested(self, name: str) -> bool:
        return self.active and (name in self.replace or self._is_recorded(name))

    def _is_recorded(self, name: str) -> bool:
        return any(hook_matches(name, pattern) for pattern in self.patterns)

    def __call__(self, name: str, value: Any) -> Any:
        if not self.active:
            return value
        if name in self.replace:
            given = self.replace[name]
            value = given(value) if callable(given) else given
            self.replaced.add(name)
        if self._is_recorded(name):
            self._activations[name] = value
        return value

    def call_at_position(self, name: str, time: int, value: Any) -> Any:
        """As a call, for the value of one position in a model that goes position by position.

        A replacement by value holds all positions; one by function gets them one by one.
        """
        if not self.active:
            return value
        if name in self.replace:
            given = self.replace[name]
            value = given(value) if callable(given) else given.select(-2, time)
            self.replaced.add(name)
        if self._is_recorded(name):
            self._activations.setdefault(name, []).append(value)
        return value


NO_HOOKS = Hooks()


def list_hook_names(model: nn.Module) -> list[str]:
    """Every place of this model, in the order in which a forward pass comes by."""
    return list(get_activations(model, torch.zeros(len(next(model.parameters())), 1, 1, dtype=torch.int64), "*"))


def get_activations(
    model: nn.Module, tokens: Tensor, *patterns: str, replace: Mapping[str, Replacement] | None = None
) -> dict[str, Tensor]:
    """The values at the places that match, on these tokens, without dropout or gradients; some places replaced."""
    taps = Hooks(*patterns, replace=replace)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            model(tokens, taps=taps)
    finally:
        model.train(was_training)
    found = taps.activations
    missed = [pattern for pattern in patterns if not any(hook_matches(name, pattern) for name in found)]
    missed += [name for name in taps.replace if name not in taps.replaced]
    if missed:
        raise UsageError(f"tap {missed[0]!r} is no place of this model; `seedbed taps RUN` lists them")
    return found


def attention_patterns(model: nn.Module, tokens: Tensor) -> list[Tensor]:
    """The attention weights of every block in order, (…, heads, T, T) each; none where there are no blocks."""
    if not hasattr(model, "blocks"):
        return []
    return list(get_activations(model, tokens, "blocks.*.attention.pattern").values())
