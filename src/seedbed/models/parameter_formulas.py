"""Parameters by module as formulas in the sizes of a model, such as 4d² + 4d for attention; no torch.

The formulas come from the shapes that the family states: a size that is three times as large where `model.dim` is three
times as large is a multiple of d. So they hold for any family, registered ones included.

>>> from seedbed.settings import Settings
>>> [(part.module, part.copies, str(part.formula)) for part in parameter_formulas(Settings())[1:3]]
[('blocks.*.attention', 2, '4d² + 4d'), ('blocks.*.mlp', 2, '8d²')]
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from math import prod
from typing import Final

from seedbed.settings import DatasetInfo, Settings

SYMBOLS: Final = {"dim": "d", "hidden": "h", "projection": "r", "classifier_hidden": "c"}  # settings of the model
DATA_SYMBOLS: Final = {"vocab_size": "V", "context_length": "S", "n_classes": "C"}
_FACTOR: Final = 3  # by which a size is multiplied to see what grows with it


class Formula(Counter[tuple[str, ...]]):
    """A polynomial with whole coefficients by monomial: {("d", "d"): 4, ("d",): 4} is 4d² + 4d."""

    def __str__(self) -> str:
        terms = sorted((term for term in self.items() if term[1]), key=lambda term: (-len(term[0]), term[0]))
        return " + ".join(_format_monomial(symbols, factor) for symbols, factor in terms) or "0"


@dataclass
class ModuleFormula:
    """The parameters of a module, which occurs `copies` times: all of them, and those that are biases."""

    module: str
    copies: int = 0
    formula: Formula = field(default_factory=Formula)
    count: int = 0  # of one copy
    biases: Formula = field(default_factory=Formula)
    n_biases: int = 0  # of one copy


def parameter_formulas(settings: Settings, info: DatasetInfo | None = None) -> list[ModuleFormula]:
    """A line for each module, in order; modules of several layers are one line where they have the same formula."""
    info = info or settings.task.dataset_info()
    by_layer: dict[tuple[str, str], ModuleFormula] = {}
    for name, monomial in _monomials(settings, info).items():
        module, layer = _module_and_layer(name)
        part = by_layer.setdefault((module, layer), ModuleFormula(module, 1))
        size = prod(_shapes(settings, info)[name])
        part.count += size
        part.formula.update(monomial)
        if name.endswith(".bias"):
            part.n_biases += size
            part.biases.update(monomial)
    merged: dict[tuple[str, str, str], ModuleFormula] = {}
    for part in by_layer.values():
        key = (part.module, str(part.formula), str(part.biases))
        merged[key] = replace(part, copies=merged[key].copies + 1) if key in merged else part
    return list(merged.values())


def symbols_of(settings: Settings, info: DatasetInfo) -> dict[str, int]:
    """The sizes that formulas refer to: `{"d": 128, "V": 36, …}`."""
    model = {SYMBOLS[name]: getattr(settings.model, name, None) for name in SYMBOLS}
    data = {symbol: getattr(info, name) for name, symbol in DATA_SYMBOLS.items()}
    return {symbol: size for symbol, size in (model | data).items() if size}


def total_formula(parts: list[ModuleFormula], with_biases: bool = True) -> Formula:
    """The sum over modules and their copies."""
    total = Formula()
    for part in parts:
        for monomial, factor in part.formula.items():
            total[monomial] += part.copies * (factor - (0 if with_biases else part.biases[monomial]))
    return total


def _monomials(settings: Settings, info: DatasetInfo) -> dict[str, Formula]:
    """Each tensor's number of parameters as a monomial in the sizes."""
    shapes = _shapes(settings, info)
    sizes = {name: [Formula({(): size}) for size in shape] for name, shape in shapes.items()}
    for name, symbol in (SYMBOLS | DATA_SYMBOLS).items():
        value = getattr(settings.model if name in SYMBOLS else info, name, None)
        if not value:
            continue
        if name in SYMBOLS:
            model = settings.model.model_copy(update={name: _FACTOR * value})
            larger = model.parameter_shapes(info)
        else:
            larger = _shapes(settings, replace(info, **{name: _FACTOR * value}))
        for tensor, shape in shapes.items():
            for axis, (size, grown) in enumerate(zip(shape, larger[tensor], strict=True)):
                if grown == _FACTOR * size and size % value == 0:
                    sizes[tensor][axis] = Formula({(symbol,): size // value})
    return {name: _multiply(factors) for name, factors in sizes.items()}


def _shapes(settings: Settings, info: DatasetInfo) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = settings.model.parameter_shapes(info)
    return shapes


def _multiply(factors: list[Formula]) -> Formula:
    symbols, coefficient = list[str](), 1
    for [(names, factor)] in (list(formula.items()) for formula in factors):
        symbols += names
        coefficient *= factor
    return Formula({tuple(sorted(symbols)): coefficient})


def _module_and_layer(name: str) -> tuple[str, str]:
    """`blocks.3.attention.qkv.weight` → `blocks.*.attention`, `3`."""
    module = name.rpartition(".")[0]
    match = re.fullmatch(r"(.*?)\.(\d+)\.(.*)", module)
    if match is None:
        return module, ""
    return f"{match[1]}.*.{match[3].partition('.')[0]}", match[2]


def _format_monomial(symbols: tuple[str, ...], factor: int) -> str:
    powers = {1: "", 2: "²", 3: "³"}
    text = "".join(f"{symbol}{powers[n]}" for symbol, n in Counter(symbols).items())
    return f"{factor:,}{text}" if factor != 1 or not text else text
