"""What a loaded run answers with: values to go on with, which show themselves in a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import log

import torch
from torch import Tensor

from seedbed.data.verbatim import COPIED, Span
from seedbed.generate.copied import covered
from seedbed.generate.html import FULL, bar, coloured, isolated, legend, table
from seedbed.models.taps import place_named


@dataclass(frozen=True)
class Choice:
    """A token that may come next."""

    text: str
    token: int
    probability: float


class Choices(list[Choice]):
    """The likeliest tokens, best first."""

    def __repr__(self) -> str:
        return ", ".join(f"{choice.text!r} {choice.probability:.1%}" for choice in self)

    def _repr_html_(self) -> str:
        rows = [(isolated(one.text), f"{one.probability:.2%}", bar(one.probability)) for one in self]
        return table(("next token", "probability", ""), rows)


@dataclass(frozen=True)
class Piece:
    """One token of one sample, and the text that is whole with it; without a token: what is left at the end."""

    sample: int
    text: str
    token: int | None = None
    log_probability: float = 0.0  # natural, of the model itself before any filter
    run: int = 0  # which of the runs that write together


@dataclass(frozen=True, repr=False)
class Sample:
    """What was written after a prompt."""

    prompt: str
    text: str
    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    pieces: tuple[str, ...] = ()  # the text that each token ended
    copied: tuple[Span, ...] | None = None  # of the text; None: not looked up

    def __str__(self) -> str:
        return self.prompt + self.text

    def __repr__(self) -> str:
        return f"<sample of {len(self.tokens)} tokens, {self.bits_per_token:.2f} bits each: {str(self)!r}>"

    @property
    def bits_per_token(self) -> float:
        return -sum(self.log_probabilities) / log(2) / max(1, len(self.tokens))

    def _repr_html_(self) -> str:
        told = [-one / log(2) for one in self.log_probabilities]
        pieces = [(text, bits, f"{bits:.1f} bits") for text, bits in zip(self.pieces, told, strict=True)]
        rest = self.text[len("".join(self.pieces)) :]
        marked = () if self.copied is None else covered(self.copied, len(self.text))
        shown = coloured([*pieces, (rest, 0.0, "")] if rest else pieces, self.prompt, marked)
        words = [f"Coloured by surprise: {self.bits_per_token:.2f} bits a token on average, strongest from {FULL:g}."]
        if self.copied is not None:
            words.append(f"Underlined: {COPIED} characters or more that stand verbatim in the training text.")
        return shown + legend(*words)


class Samples(list[Sample]):
    """Texts of one run from one prompt."""

    def __repr__(self) -> str:
        return "\n".join(map(repr, self))

    def _repr_html_(self) -> str:
        return "".join(one._repr_html_() for one in self)


class Tapped(dict[str, Tensor]):
    """Values by the name of their place; also found by the name that TransformerLens has for it."""

    def __missing__(self, name: str) -> Tensor:
        place = place_named(name)
        if place not in self:
            raise KeyError(name)
        return self[place]

    def __repr__(self) -> str:
        return "\n".join(f"{name}  {_shape(value)}  {_spread(value)}" for name, value in self.items())

    def _repr_html_(self) -> str:
        rows = [(f"<code>{escape(name)}</code>", _shape(value), _spread(value)) for name, value in self.items()]
        return table(("place", "shape", "mean ± std"), rows)


def _shape(value: Tensor) -> str:
    return " × ".join(map(str, value.shape))


def _spread(value: Tensor) -> str:
    return f"{value.mean().item():.3g} ± {value.std(correction=0).item():.3g}"


class Attention(Tensor):
    """Attention weights (L, H, T, S) with the tokens they belong to; arithmetic with them gives plain tensors."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # as torch's Parameter does
    pieces: tuple[str, ...]
    padding: tuple[bool, ...]
    _draw: Callable[[], str] | None

    @staticmethod
    def of(
        weights: Tensor, pieces: Sequence[str], padding: Sequence[bool], draw: Callable[[], str] | None
    ) -> Attention:
        made = weights.as_subclass(Attention)
        made.pieces, made.padding, made._draw = tuple(pieces), tuple(padding), draw
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        layers, heads, n, _ = self.shape
        hidden = f", {sum(self.padding)} of them padding" if any(self.padding) else ""
        return f"<attention of {layers} layers × {heads} heads over {n} tokens{hidden}>"

    def _repr_html_(self) -> str:
        return escape(repr(self)) if self._draw is None else self._draw()
