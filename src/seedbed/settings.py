"""Every dial that shapes a result, with its meaning, unit and range; no torch.

A run is fully described by `Settings(task, model, train)` and a seed. The defaults are those of the modular-arithmetic
study that seedbed was first built for, so `Settings()` is a run of a two-layer GPT on a + b mod 31.

>>> Settings().model.kind
'gpt'
>>> Settings.of({"model.kind": "lstm", "train.lr": 0.003}).differences()
{'model.kind': 'lstm', 'train.lr': 0.003}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, TypeAlias, cast, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

Value: TypeAlias = Any  # what a TOML value can be: str, int, float, bool, or a tuple of them


def _tuple_of_one(value: Value) -> Value:
    """`orders = 2` means `orders = [2]`."""
    return (value,) if isinstance(value, int) and not isinstance(value, bool) else value


Orders = Annotated[tuple[Literal[2, 3], ...], BeforeValidator(_tuple_of_one), Field(min_length=1, max_length=2)]
Positive = Annotated[int, Field(ge=1, le=1_000_000_000)]
Rate = Annotated[float, Field(ge=0.0, lt=1.0)]


class Dials(BaseModel):
    """A frozen group of dials; a wrong name or type is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Arithmetic(Dials):
    """Equations modulo p, written as tokens: `BOS a + b = r EOS`."""

    kind: Literal["arithmetic"] = Field("arithmetic", description="which task")
    p: int = Field(31, ge=2, le=10_000, description="modulus; numbers 0 … p−1 are one token each")
    operator: Literal["+", "-", "*", "/"] = Field("+", description="operation between the numbers")
    orders: Orders = Field((2,), description="numbers of operands: [2], [3] or [2, 3]")
    train_fraction: float = Field(0.5, gt=0.0, le=1.0, description="share of the equations used for training (r_train)")

    def n_equations(self, order: int) -> int:
        """All ordered tuples of operands; a divisor is never 0."""
        return int(self.p * (self.p - (self.operator == "/")) ** (order - 1))

    def n_train(self, order: int) -> int:
        """Training equations of one order; the half rounds to even, and all of them leave one for validation too."""
        return round(self.n_equations(order) * self.train_fraction)


class GPT(Dials):
    """Decoder-only transformer."""

    kind: Literal["gpt"] = Field("gpt", description="which model")
    layers: int = Field(2, ge=1, le=1_000, description="number of blocks")
    dim: int = Field(128, ge=1, le=100_000, description="width of the residual stream")
    heads: Positive = Field(4, description="attention heads; must divide dim")
    mlp_multiplier: int = Field(4, ge=1, le=1_000, description="hidden width of the MLP over dim")
    activation: Literal["gelu", "relu"] = Field("gelu", description="nonlinearity of the MLP")
    norm: Literal["post", "pre"] = Field("post", description="LayerNorm after the residual sum, or before each part")
    final_norm: bool = Field(False, description="one more LayerNorm before the output")
    positions: Literal["sinusoidal", "learned", "none"] = Field("sinusoidal", description="how positions are told")
    position_exponent: Literal["k/d", "2k/d"] = Field(
        "k/d", description="sinusoidal wavelength exponent for dimensions 2k and 2k+1: the hand-out's, or the classic"
    )
    attention_bias: bool = Field(True, description="biases in the four attention maps")
    mlp_bias: bool = Field(False, description="biases in the MLP")
    output_bias: bool = Field(True, description="bias in the output layer")
    tied: bool = Field(False, description="output layer shares the token table")
    dropout: Rate = Field(0.0, description="share of MLP outputs dropped while training")
    init: Literal["library", "normal-0.02"] = Field("library", description="how weights start")
    init_scale: float = Field(1.0, gt=0.0, le=1_000.0, description="factor on all initial matrices and tables")


class LSTM(Dials):
    """Stacked LSTM written from cells."""

    kind: Literal["lstm"] = Field("lstm", description="which model")
    layers: int = Field(2, ge=1, le=1_000, description="number of stacked cells")
    dim: int = Field(128, ge=1, le=100_000, description="width of the token table")
    hidden: Positive | None = Field(None, description="width of the state; unset: as dim")
    gate_biases: Literal[0, 1, 2] = Field(1, description="bias vectors per gate: none, one, or two as the library has")
    gate_init: Literal["xavier-uniform", "library"] = Field(
        "xavier-uniform", description="how gates start: Xavier on [x; h] with zero biases, or as the library's LSTM"
    )
    output_bias: bool = Field(True, description="bias in the output layer")
    tied: bool = Field(False, description="output layer shares the token table; needs hidden = dim")
    dropout: Rate = Field(0.0, description="share of outputs dropped between layers while training")
    init: Literal["library", "normal-0.02"] = Field("library", description="how the other weights start")
    init_scale: float = Field(1.0, gt=0.0, le=1_000.0, description="factor on all initial matrices and tables")

    @property
    def width(self) -> int:
        """Width of the state."""
        return self.dim if self.hidden is None else self.hidden


class Train(Dials):
    """How a run is optimised, evaluated and saved."""

    steps: Positive = Field(10_001, description="updates T; rounded up to whole epochs")
    batch_size: Positive = Field(512, description="samples per update; capped at the training set")
    optimizer: Literal["sgd", "momentum", "adam", "adamw"] = Field(
        "adamw", description="update rule; weight decay is L2 in all but adamw, which decouples it"
    )
    lr: float = Field(1e-3, gt=0.0, description="learning rate")
    weight_decay: float = Field(1.0, ge=0.0, description="weight decay, on every parameter")
    momentum: Rate = Field(0.9, description="of the momentum optimizer")
    betas: tuple[Rate, Rate] = Field((0.9, 0.999), description="decay of the first and second moment (adam, adamw)")
    eps: float = Field(1e-8, gt=0.0, description="floor of the second moment's root (adam, adamw)")
    clip: float = Field(1.0, ge=0.0, description="largest global gradient norm of a run; 0 leaves gradients alone")
    schedule: Literal["constant", "linear", "cosine", "step", "plateau"] = Field(
        "constant", description="how the learning rate changes after the warm-up"
    )
    warmup: int = Field(0, ge=0, le=1_000_000_000, description="steps over which the learning rate grows linearly")
    lr_floor: float = Field(0.0, ge=0.0, le=1.0, description="where linear and cosine end, as a share of lr")
    lr_every: Positive = Field(1_000, description="steps between drops (step schedule)")
    lr_factor: float = Field(0.5, gt=0.0, lt=1.0, description="factor of a drop (step and plateau schedules)")
    patience: int = Field(0, ge=0, le=1_000_000, description="evaluations without progress before a drop (plateau)")
    threshold: float = Field(0.1, ge=0.0, lt=1.0, description="relative gain that counts as progress (plateau)")
    watch: Literal["train/loss", "val/loss"] = Field("train/loss", description="reading that plateau looks at")
    eval_first: int = Field(100, ge=0, le=1_000_000, description="every step up to this one is recorded")
    eval_every: Positive = Field(100, description="steps between records afterwards")
    closing_record: bool = Field(True, description="one more record of the final weights, labelled last step + 1")
    save_every: Positive = Field(1_000, description="steps between kept checkpoints; the last is always kept")


Task: TypeAlias = Arithmetic
Model: TypeAlias = GPT | LSTM
TASKS: dict[str, type[Arithmetic]] = {"arithmetic": Arithmetic}
MODELS: dict[str, type[GPT] | type[LSTM]] = {"gpt": GPT, "lstm": LSTM}

# Dials that do nothing unless another dial asks for them: name → (that dial, the values that use it).
NEEDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "train.momentum": ("train.optimizer", ("momentum",)),
    "train.betas": ("train.optimizer", ("adam", "adamw")),
    "train.eps": ("train.optimizer", ("adam", "adamw")),
    "train.lr_floor": ("train.schedule", ("linear", "cosine")),
    "train.lr_every": ("train.schedule", ("step",)),
    "train.lr_factor": ("train.schedule", ("step", "plateau")),
    "train.patience": ("train.schedule", ("plateau",)),
    "train.threshold": ("train.schedule", ("plateau",)),
    "train.watch": ("train.schedule", ("plateau",)),
    "model.position_exponent": ("model.positions", ("sinusoidal",)),
    "model.gate_init": ("model.init", ("library",)),
}


class Settings(Dials):
    """Everything that decides a run, but its seed."""

    task: Task = Arithmetic()
    model: Model = Field(GPT(), discriminator="kind")
    train: Train = Train()

    @classmethod
    def of(cls, dials: Mapping[str, Value]) -> Settings:
        """The settings with these dials (`{"model.layers": 3}`) set and all others at their defaults."""
        tree: dict[str, dict[str, Value]] = {"task": {}, "model": {"kind": "gpt"}, "train": {}}
        for name, value in dials.items():
            part, _, field = name.partition(".")
            tree[part][field] = tuple(value) if isinstance(value, list) else value
        return cls.model_validate(tree)

    def dials(self) -> dict[str, Value]:
        """Every dial of this run by its dotted name."""
        parts = {"task": self.task, "model": self.model, "train": self.train}
        return {f"{part}.{name}": value for part, group in parts.items() for name, value in group}

    def differences(self) -> dict[str, Value]:
        """The dials that are not at their defaults (the kind of task and model: only when not the first kind)."""
        kinds = {"task.kind": "arithmetic", "model.kind": "gpt"}
        plain = Settings.of({"task.kind": self.task.kind, "model.kind": self.model.kind}).dials() | kinds
        return {name: value for name, value in self.dials().items() if value != plain[name]}

    def n_steps(self) -> int:
        """Updates in all: `train.steps` rounded up to whole epochs of the training set."""
        n_train = sum(self.task.n_train(order) for order in self.task.orders)
        per_epoch = -(-n_train // min(self.train.batch_size, n_train))
        return -(-self.train.steps // per_epoch) * per_epoch

    def conflicts(self) -> list[tuple[str, str]]:
        """What cannot be together: (the dial to change, why)."""
        task, model, train = self.task, self.model, self.train
        found = []
        if isinstance(model, GPT) and model.dim % model.heads:
            found.append(("model.heads", f"model.heads = {model.heads} does not divide model.dim = {model.dim}"))
        if isinstance(model, GPT) and model.positions == "sinusoidal" and model.dim % 2:
            found.append(("model.dim", f"model.dim = {model.dim} is odd; sinusoidal positions need an even one"))
        if isinstance(model, LSTM) and model.tied and model.width != model.dim:
            found.append(
                ("model.tied", f"model.tied needs model.hidden = model.dim, not {model.width} and {model.dim}")
            )
        if task.operator == "/" and any(task.p % divisor == 0 for divisor in range(2, task.p)):
            found.append(("task.p", f"task.p = {task.p} is not prime; division by its factors has several answers"))
        if len(set(task.orders)) != len(task.orders):
            found.append(("task.orders", f"task.orders = {list(task.orders)} names an order twice"))
        for order in task.orders:
            n, n_train = task.n_equations(order), task.n_train(order)
            if n > 50_000_000:
                found.append(
                    ("task.p", f"task.p = {task.p} makes {n:,} equations of order {order}; at most 50,000,000")
                )
            if n_train == 0 or (n_train == n and task.train_fraction < 1):
                empty = "training" if n_train == 0 else "validation"
                why = f"task.train_fraction = {task.train_fraction} of {n} equations leaves no {empty} sample"
                found.append(("task.train_fraction", why))
        if train.warmup > train.steps:
            found.append(("train.warmup", f"train.warmup = {train.warmup} is longer than train.steps = {train.steps}"))
        return found


def fields_of(task_kind: str, model_kind: str) -> dict[str, FieldInfo]:
    """The dials that a run of this task and model has, by dotted name."""
    groups: dict[str, type[Dials]] = {"task": TASKS[task_kind], "model": MODELS[model_kind], "train": Train}
    return {f"{part}.{name}": field for part, group in groups.items() for name, field in group.model_fields.items()}


@cache
def all_dials() -> dict[str, tuple[FieldInfo, ...]]:
    """Every dial of every kind: one field, or several where kinds differ in it."""
    found: dict[str, tuple[FieldInfo, ...]] = {}
    for task_kind in TASKS:
        for model_kind in MODELS:
            for name, field in fields_of(task_kind, model_kind).items():
                found[name] = (*found.get(name, ()), field)
    kinds = {"task.kind": tuple(TASKS), "model.kind": tuple(MODELS)}
    for name, choices in kinds.items():
        found[name] = (FieldInfo(annotation=cast(Any, Literal[choices]), default=choices[0]),)
    return found


@cache
def _adapter(name: str) -> TypeAdapter[Value]:
    """Accepts what any kind's dial of this name accepts."""
    kinds: list[Any] = [Annotated[field.annotation, field] for field in all_dials()[name]]
    accepted: Any = kinds[0]
    for kind in kinds[1:]:
        accepted = accepted | kind
    return TypeAdapter(accepted, config=ConfigDict(strict=True, allow_inf_nan=False))


def check_value(name: str, value: Value) -> str | None:
    """What is wrong with this value of this dial, in words; None when it is fine."""
    try:
        _adapter(name).validate_python(tuple(value) if isinstance(value, list) else value)
    except ValidationError:
        return accepted_values(name)
    return None


@cache
def accepted_values(name: str) -> str:
    """What a dial accepts, in words: `a whole number from 1 to 1000`."""
    said = dict.fromkeys(_in_words(field.annotation, field.metadata) for field in all_dials()[name])
    return " or ".join(said)


def _in_words(annotation: Any, metadata: list[Any]) -> str:
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return _in_words(inner, [entry for item in more for entry in getattr(item, "metadata", [item])] + metadata)
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(json.dumps(choice) for choice in get_args(annotation))
    if get_origin(annotation) is tuple:
        inner, *rest = get_args(annotation)
        return f"a list of {'' if rest == [...] else str(len(rest) + 1) + ' times '}{_in_words(inner, [])}"
    if NoneType in get_args(annotation):
        return _in_words(get_args(annotation)[0], metadata)
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[annotation]
    return (words + _range_in_words(metadata)).strip()


def _range_in_words(metadata: list[Any]) -> str:
    signs = {"ge": "from", "gt": "above", "lt": "below", "le": "to"}
    bounds: dict[str, Any] = {}
    for entry in metadata:
        for sign in signs:
            if getattr(entry, sign, None) is not None:
                bounds[sign] = getattr(entry, sign)
    return "".join(f" {word} {_bound_in_words(bounds[sign])}" for sign, word in signs.items() if sign in bounds)


def _bound_in_words(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"
