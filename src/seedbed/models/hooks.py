"""Hooks: named activations of a model that can be recorded and replaced (`blocks.0.attention.pattern`, `lstm.1.cell`).

A model calls `hooks(name, value)` at each hook and continues with the return value, so recording changes nothing and a
replacement (a tensor, or a function of the value) affects everything downstream. All names: docs/hooks.md. Where
TransformerLens has the same hook, its name works too: `blocks.0.attn.hook_pattern`.

>>> hooks = Hooks("blocks.*.out", replace={"embed": lambda value: 0 * value})
>>> hooks("blocks.0.out", 1.0), hooks("embed", 2.0), hooks.activations
(1.0, 0.0, {'blocks.0.out': 1.0})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from seedbed.errors import UsageError
from seedbed.models.sequence_model import SequenceModel, eval_mode

Replacement: TypeAlias = Tensor | Callable[[Any], Any]

TRANSFORMER_LENS_NAMES = {  # our name → TransformerLens' name
    "embed.tokens": "hook_embed",
    "final_norm": "ln_final.hook_normalized",
}
TRANSFORMER_LENS_BLOCK_NAMES = {  # the same, after the prefix `blocks.N.`
    "in": "hook_resid_pre", "attention.q": "attn.hook_q", "attention.k": "attn.hook_k", "attention.v": "attn.hook_v",
    "attention.pattern": "attn.hook_pattern", "attention.z": "attn.hook_z", "attention.out": "hook_attn_out",
    "mid": "hook_resid_mid", "mlp.pre": "mlp.hook_pre", "mlp.post": "mlp.hook_post", "mlp.out": "hook_mlp_out",
    "out": "hook_resid_post",
}  # fmt: skip
_FROM_TRANSFORMER_LENS = {lens: ours for ours, lens in TRANSFORMER_LENS_NAMES.items()}
_FROM_TRANSFORMER_LENS_BLOCK = {lens: ours for ours, lens in TRANSFORMER_LENS_BLOCK_NAMES.items()}


def to_transformer_lens_name(name: str) -> str | None:
    """TransformerLens' name of a hook, or None if it has no such hook.

    >>> to_transformer_lens_name("blocks.3.attention.pattern"), to_transformer_lens_name("lstm.0.cell")
    ('blocks.3.attn.hook_pattern', None)
    """
    return _translate_name(name, TRANSFORMER_LENS_NAMES, TRANSFORMER_LENS_BLOCK_NAMES)


def from_transformer_lens_name(name: str) -> str:
    """Our name of a hook given by its TransformerLens name; any other name is returned unchanged.

    >>> from_transformer_lens_name("blocks.0.hook_resid_post"), from_transformer_lens_name("embed")
    ('blocks.0.out', 'embed')
    """
    return _translate_name(name, _FROM_TRANSFORMER_LENS, _FROM_TRANSFORMER_LENS_BLOCK) or name


def _translate_name(name: str, model_names: Mapping[str, str], block_names: Mapping[str, str]) -> str | None:
    if not name.startswith("blocks."):
        return model_names.get(name)
    _, layer, rest = name.split(".", 2)
    return f"blocks.{layer}.{block_names[rest]}" if rest in block_names else None


def hook_matches(name: str, pattern: str) -> bool:
    """Whether a glob pattern matches a hook by our name or by TransformerLens'."""
    return fnmatchcase(name, pattern) or fnmatchcase(to_transformer_lens_name(name) or "", pattern)


class Hooks:
    """Records activations whose hook name matches a pattern, after replacing those in `replace`."""

    def __init__(self, *patterns: str, replace: Mapping[str, Replacement] | None = None) -> None:
        self.patterns = patterns
        self.replace = {from_transformer_lens_name(name): replacement for name, replacement in (replace or {}).items()}
        self.active = bool(self.patterns or self.replace)
        self.replaced: set[str] = set()  # names in `replace` that the model has
        self._activations: dict[str, Any] = {}

    @property
    def activations(self) -> dict[str, Any]:
        """Recorded values by hook name in forward order; those recorded position by position are stacked along time."""
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
            replacement = self.replace[name]
            value = replacement(value) if callable(replacement) else replacement
            self.replaced.add(name)
        if self._is_recorded(name):
            self._activations[name] = value
        return value

    def call_at_position(self, name: str, time: int, value: Any) -> Any:
        """Like calling the hook, for the value at one position of a model that steps through time.

        A tensor replacement covers all positions; a function is called once per position.
        """
        if not self.active:
            return value
        if name in self.replace:
            replacement = self.replace[name]
            value = replacement(value) if callable(replacement) else replacement.select(-2, time)
            self.replaced.add(name)
        if self._is_recorded(name):
            self._activations.setdefault(name, []).append(value)
        return value


NO_HOOKS = Hooks()


def list_hook_names(model: nn.Module) -> list[str]:
    """Every hook of this model, in the order of a forward pass."""
    tokens = torch.zeros(len(next(model.parameters())), 1, 1, dtype=torch.int64)
    return list(get_activations(model, tokens, "*"))


def get_activations(
    model: nn.Module, tokens: Tensor, *patterns: str, replace: Mapping[str, Replacement] | None = None
) -> dict[str, Tensor]:
    """Activations at the matching hooks for these tokens, without dropout or gradients."""
    hooks = Hooks(*patterns, replace=replace)
    with eval_mode(model, torch.no_grad):  # unlike inference tensors, these may be used in computations with gradients
        model(tokens, hooks=hooks)
    activations = hooks.activations
    unknown = [pattern for pattern in patterns if not any(hook_matches(name, pattern) for name in activations)]
    unknown += [name for name in hooks.replace if name not in hooks.replaced]
    if unknown:
        raise UsageError(f"this model has no hook {unknown[0]!r}; `seedbed hooks RUN` lists them")
    return activations


def attention_patterns(model: SequenceModel, tokens: Tensor) -> list[Tensor]:
    """Attention weights of each block, (R, B, H, T, T) each; an empty list for models without attention."""
    if not model.family.has_attention:
        return []
    return list(get_activations(model, tokens, "blocks.*.attention.pattern").values())
