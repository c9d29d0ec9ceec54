"""Result types of `LoadedRun`: plain values with readable representations for terminals and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import log

import torch
from torch import Tensor

from seedbed.data.suffix_array import MIN_COPIED_CHARACTERS, CopiedSpan
from seedbed.models.hooks import from_transformer_lens_name
from seedbed.sampling.copy_detection import span_mask
from seedbed.sampling.notebook_html import (
    FULL_COLOR_BITS,
    bar_html,
    colored_text_html,
    legend_html,
    quoted_token_html,
    table_html,
)


@dataclass(frozen=True)
class TokenProbability:
    """A candidate for the next token."""

    text: str
    token: int
    probability: float


class TokenProbabilities(list[TokenProbability]):
    """The most likely tokens, best first."""

    def __repr__(self) -> str:
        return ", ".join(f"{one.text!r} {one.probability:.1%}" for one in self)

    def _repr_html_(self) -> str:
        rows = [(quoted_token_html(one.text), f"{one.probability:.2%}", bar_html(one.probability)) for one in self]
        return table_html(("next token", "probability", ""), rows)


@dataclass(frozen=True)
class ClassProbability:
    """A class that a classifier can give, and its probability."""

    name: str
    probability: float


class ClassProbabilities(list[ClassProbability]):
    """All classes, most likely first."""

    def __repr__(self) -> str:
        return ", ".join(f"{one.name} {one.probability:.1%}" for one in self)

    def _repr_html_(self) -> str:
        rows = [(f"<bdi>{escape(one.name)}</bdi>", f"{one.probability:.2%}", bar_html(one.probability)) for one in self]
        return table_html(("class", "probability", ""), rows)


@dataclass(frozen=True)
class StreamChunk:
    """One token of one sample and the text it completes; the last chunk may hold only the remaining text."""

    sample: int
    text: str
    token: int | None = None
    log_probability: float = 0.0  # natural log, under the unfiltered model
    run: int = 0  # index among the runs sampled together


@dataclass(frozen=True, repr=False)
class Sample:
    """A generated continuation of a prompt."""

    prompt: str
    text: str
    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    pieces: tuple[str, ...] = ()  # the text that each token completed
    copied_spans: tuple[CopiedSpan, ...] | None = None  # in the text; None: not searched

    def __str__(self) -> str:
        return self.prompt + self.text

    def __repr__(self) -> str:
        return f"<sample of {len(self.tokens)} tokens, {self.bits_per_token:.2f} bits each: {str(self)!r}>"

    @property
    def bits_per_token(self) -> float:
        return -sum(self.log_probabilities) / log(2) / max(1, len(self.tokens))

    def _repr_html_(self) -> str:
        surprisals = [-one / log(2) for one in self.log_probabilities]
        pieces = [(text, bits, f"{bits:.1f} bits") for text, bits in zip(self.pieces, surprisals, strict=True)]
        remainder = self.text[len("".join(self.pieces)) :]
        underlined = () if self.copied_spans is None else span_mask(self.copied_spans, len(self.text))
        if remainder:
            pieces.append((remainder, 0.0, ""))
        sentences = [
            f"Coloured by surprisal: {self.bits_per_token:.2f} bits per token on average, "
            f"strongest from {FULL_COLOR_BITS:g}."
        ]
        if self.copied_spans is not None:
            sentences.append(
                f"Underlined: {MIN_COPIED_CHARACTERS} characters or more that occur verbatim in the training text."
            )
        return colored_text_html(pieces, self.prompt, underlined) + legend_html(*sentences)


class Samples(list[Sample]):
    """The samples of one run from one prompt."""

    def __repr__(self) -> str:
        return "\n".join(map(repr, self))

    def _repr_html_(self) -> str:
        return "".join(one._repr_html_() for one in self)


class ActivationCache(dict[str, Tensor]):
    """Activations by hook name; TransformerLens names work as keys too."""

    def __missing__(self, name: str) -> Tensor:
        hook = from_transformer_lens_name(name)
        if hook not in self:
            raise KeyError(name)
        return self[hook]

    def __repr__(self) -> str:
        return "\n".join(f"{name}  {_format_shape(value)}  {_format_mean_std(value)}" for name, value in self.items())

    def _repr_html_(self) -> str:
        rows = [
            (f"<code>{escape(name)}</code>", _format_shape(value), _format_mean_std(value))
            for name, value in self.items()
        ]
        return table_html(("hook", "shape", "mean ± std"), rows)


def _format_shape(value: Tensor) -> str:
    return " × ".join(map(str, value.shape))


def _format_mean_std(value: Tensor) -> str:
    return f"{value.mean().item():.3g} ± {value.std(correction=0).item():.3g}"


class AttentionTensor(Tensor):
    """Attention weights (L, H, T, S) with the texts of their tokens; arithmetic on it returns plain tensors."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # as torch's Parameter does
    pieces: tuple[str, ...]
    padding: tuple[bool, ...]
    _render: Callable[[], str] | None

    @staticmethod
    def from_weights(
        weights: Tensor, pieces: Sequence[str], padding: Sequence[bool], render: Callable[[], str] | None
    ) -> AttentionTensor:
        attention = weights.as_subclass(AttentionTensor)
        attention.pieces, attention.padding, attention._render = tuple(pieces), tuple(padding), render
        return attention

    def __repr__(self) -> str:  # type: ignore[override]
        layers, heads, n, _ = self.shape
        padding = f", {sum(self.padding)} of them padding" if any(self.padding) else ""
        return f"<attention of {layers} layers × {heads} heads over {n} tokens{padding}>"

    def _repr_html_(self) -> str:
        return escape(repr(self)) if self._render is None else self._render()
