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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, TypeAlias, cast, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

Value: TypeAlias = Any  # what a TOML value can be: str, int, float, bool, or a tuple of them


def _as_tuple(value: Value) -> Value:
    """`orders = 2` means `orders = [2]`."""
    return (value,) if isinstance(value, int | str) and not isinstance(value, bool) else value


OperandCounts = Annotated[tuple[Literal[2, 3], ...], BeforeValidator(_as_tuple), Field(min_length=1, max_length=2)]
PositiveInt = Annotated[int, Field(ge=1, le=1_000_000_000)]
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
PositiveFraction = Annotated[float, Field(gt=0.0, le=1.0)]
ShortText = Annotated[str, Field(min_length=1, max_length=1_000)]
TextTuple = Annotated[tuple[ShortText, ...], BeforeValidator(_as_tuple)]
ContextLengths = Annotated[tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...], BeforeValidator(_as_tuple)]
TokenizerKind = Literal["characters", "words", "bytes", "bpe"]
InitScheme = Literal["library", "normal-0.02", "xavier-normal", "xavier-uniform", "orthogonal"]


@dataclass(frozen=True)
class DatasetInfo:
    """What the data of a task decides and no dial tells; `data/` makes it, plan, count and build are handed it."""

    vocab_size: int  # token ids, special ones included
    context_length: int  # tokens that a training sample shows the model
    n_train: int  # samples of one epoch; drawn without end, as many as hold the text's tokens once
    n_classes: int = 0  # labels; 0: the model tells the next token
    padding_id: int | None = None  # the id whose row in a token table starts at zero
    digest: str = ""  # names the very data; part of a run's id


class SettingsGroup(BaseModel):
    """A frozen group of dials; a wrong name or type is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ArithmeticSettings(SettingsGroup):
    """Equations modulo p, written as tokens: `BOS a + b = r EOS`."""

    kind: Literal["arithmetic"] = Field("arithmetic", description="which task")
    p: int = Field(31, ge=2, le=10_000, description="modulus; numbers 0 … p−1 are one token each")
    operator: Literal["+", "-", "*", "/"] = Field("+", description="operation between the numbers")
    orders: OperandCounts = Field((2,), description="numbers of operands: [2], [3] or [2, 3]")
    train_fraction: float = Field(0.5, gt=0.0, le=1.0, description="share of the equations used for training (r_train)")

    def n_equations(self, order: int) -> int:
        """All ordered tuples of operands; a divisor is never 0."""
        return int(self.p * (self.p - (self.operator == "/")) ** (order - 1))

    def n_train(self, order: int) -> int:
        """Training equations of one order; the half rounds to even, and all of them leave one for validation too."""
        return round(self.n_equations(order) * self.train_fraction)


class TextSettings(SettingsGroup):
    """Predict the next token of a text."""

    kind: Literal["text"] = Field("text", description="which task")
    corpus: ShortText = Field(
        "python-docs", description="a named corpus, or the path of a text file or a folder of *.txt"
    )
    tokenizer: TokenizerKind = Field("characters", description="what a token is")
    vocabulary: int | None = Field(
        None, ge=300, le=60_000, description="tokens of a BPE trained on the corpus; unset: GPT-1's vocabulary (bpe)"
    )
    length: int = Field(128, ge=1, le=1_000_000, description="tokens of context of a sample")
    split: Literal["contiguous", "documents"] = Field(
        "contiguous", description="how parts are held out: the end of the text, or whole documents, alike for all seeds"
    )
    val_fraction: Fraction = Field(0.1, description="share held out for validation, unless the corpus has its own")
    test_fraction: Fraction = Field(0.0, description="share held out for testing, unless the corpus has its own")
    data_fraction: PositiveFraction = Field(1.0, description="share of the training part that is used")
    sampler: Literal["documents", "length", "windows", "epochs"] = Field(
        "length",
        description="training samples: a random place of a random document (each document alike, or by its length), "
        "every window once an epoch (stride 1), or windows one after the other (stride length)",
    )
    tests: TextTuple = Field((), description="named test sets of the corpus that are read; unset: all that it has")
    lengths: ContextLengths = Field((), description="contexts at which perplexity is read besides length, in tokens")


class LabelsSettings(SettingsGroup):
    """Tell the label of a text."""

    kind: Literal["labels"] = Field("labels", description="which task")
    corpus: ShortText = Field("speeches", description="a named corpus with labels, or a TSV or CSV file: label, text")
    tokenizer: TokenizerKind = Field("words", description="what a token is")
    vocabulary: int | None = Field(
        None, ge=300, le=60_000, description="tokens of a BPE trained on the corpus; unset: GPT-1's vocabulary (bpe)"
    )
    length: int = Field(32, ge=1, le=1_000_000, description="tokens of a sample; longer texts are cut, shorter padded")
    val_fraction: Fraction = Field(0.1, description="share of the labelled training texts held out for validation")
    data_fraction: PositiveFraction = Field(1.0, description="share of the training part that is used")


class TransformerSettings(SettingsGroup):
    """What decoder and encoder have in common."""

    kind: Literal["gpt", "encoder"]
    layers: int = Field(2, ge=1, le=1_000, description="number of blocks")
    dim: int = Field(128, ge=1, le=100_000, description="width of the residual stream")
    heads: PositiveInt = Field(4, description="attention heads; must divide dim")
    mlp_multiplier: int = Field(4, ge=1, le=1_000, description="hidden width of the MLP over dim")
    hidden: PositiveInt | None = Field(None, description="hidden width of the MLP; unset: mlp_multiplier times dim")
    activation: Literal["gelu", "relu"] = Field("gelu", description="nonlinearity of the MLP")
    norm: Literal["post", "pre"] = Field("post", description="LayerNorm after the residual sum, or before each part")
    final_norm: bool = Field(False, description="one more LayerNorm before the output")
    positions: Literal["sinusoidal", "learned", "alibi", "rotary", "none"] = Field(
        "sinusoidal", description="how positions are told; alibi, rotary and none have no table"
    )
    position_exponent: Literal["k/d", "2k/d"] = Field(
        "k/d", description="sinusoidal wavelength exponent for dimensions 2k and 2k+1: the hand-out's, or the classic"
    )
    attention_bias: bool = Field(True, description="biases in the attention maps")
    qkv_bias: bool | None = Field(None, description="biases of queries, keys and values; unset: as attention_bias")
    mlp_bias: bool = Field(False, description="biases in the MLP")
    output_bias: bool = Field(True, description="bias in the output layer")
    embeddings: ShortText | None = Field(
        None, description="an .npz file with tables that stay as they are: tokens, and positions where learned"
    )
    dropout: Fraction = Field(0.0, description="share of MLP outputs dropped while training")
    embedding_dropout: Fraction = Field(0.0, description="share of the first block's inputs dropped")
    attention_dropout: Fraction = Field(0.0, description="share of attention weights dropped")
    mlp_dropout: Fraction = Field(0.0, description="share of the MLP's hidden units dropped")
    residual_dropout: Fraction = Field(0.0, description="share dropped of what attention and MLP add to the stream")
    init: InitScheme = Field("library", description="how weights start; all but library have zero biases")
    init_scale: float = Field(1.0, gt=0.0, le=1_000.0, description="factor on all initial matrices and tables")

    @property
    def mlp_width(self) -> int:
        """Hidden width of the MLP."""
        return self.mlp_multiplier * self.dim if self.hidden is None else self.hidden

    @property
    def has_qkv_bias(self) -> bool:
        return self.attention_bias if self.qkv_bias is None else self.qkv_bias


class GPTSettings(TransformerSettings):
    """Decoder-only transformer."""

    kind: Literal["gpt"] = Field("gpt", description="which model")
    tied: bool = Field(False, description="output layer shares the token table")


class EncoderSettings(TransformerSettings):
    """Transformer without a mask, averaged over positions (padding too), and a two-layer classifier."""

    kind: Literal["encoder"] = Field("encoder", description="which model")
    activation: Literal["gelu", "relu"] = Field("gelu", description="nonlinearity of the MLP and of the classifier")
    classifier_hidden: PositiveInt = Field(100, description="width of the classifier's hidden layer")
    classifier_dropout: Fraction = Field(0.0, description="share of the classifier's hidden units dropped")
    batch_norm: bool = Field(False, description="BatchNorm over the classifier's hidden layer")


class LSTMSettings(SettingsGroup):
    """Stacked LSTM written from cells."""

    kind: Literal["lstm"] = Field("lstm", description="which model")
    layers: int = Field(2, ge=1, le=1_000, description="number of stacked cells")
    dim: int = Field(128, ge=1, le=100_000, description="width of the token table")
    hidden: PositiveInt | None = Field(None, description="width of the state; unset: as dim")
    gate_biases: Literal[0, 1, 2] = Field(1, description="bias vectors per gate: none, one, or two as the library has")
    gate_init: Literal["xavier-uniform", "library"] = Field(
        "xavier-uniform", description="how gates start: Xavier on [x; h] with zero biases, or as the library's LSTM"
    )
    projection: PositiveInt | None = Field(
        None, description="width of one more layer between state and output; unset: none"
    )
    activation: Literal["gelu", "relu"] = Field("gelu", description="nonlinearity of the projection")
    output_bias: bool = Field(True, description="bias in the output layer")
    tied: bool = Field(False, description="output layer shares the token table; needs hidden (or projection) = dim")
    embeddings: ShortText | None = Field(None, description="an .npz file with a table that stays as it is: tokens")
    dropout: Fraction = Field(0.0, description="share of outputs dropped between layers while training")
    embedding_dropout: Fraction = Field(0.0, description="share of the first cell's inputs dropped")
    init: InitScheme = Field("library", description="how the other weights start; all but library have zero biases")
    init_scale: float = Field(1.0, gt=0.0, le=1_000.0, description="factor on all initial matrices and tables")

    @property
    def hidden_width(self) -> int:
        """Width of the state."""
        return self.dim if self.hidden is None else self.hidden

    @property
    def output_width(self) -> int:
        """Width of what the output layer sees."""
        return self.hidden_width if self.projection is None else self.projection


class TrainSettings(SettingsGroup):
    """How a run is optimised, evaluated and saved."""

    steps: PositiveInt = Field(10_001, description="updates T; of arithmetic, rounded up to whole epochs")
    epochs: PositiveInt | None = Field(None, description="passes over the training set, instead of steps")
    max_tokens: int | None = Field(
        None, ge=1, le=10**15, description="training tokens, instead of steps; the last update may pass them"
    )
    seconds: float | None = Field(
        None,
        gt=0.0,
        le=1e9,
        description="seconds of computing, instead of steps; where packs share a GPU, by the clock",
    )
    batch_size: PositiveInt = Field(512, description="samples per batch; capped at the training set")
    accumulate: int = Field(1, ge=1, le=1_000_000, description="batches whose gradients make one update")
    optimizer: Literal["sgd", "momentum", "adam", "adamw"] = Field(
        "adamw", description="update rule; weight decay is L2 in all but adamw, which decouples it"
    )
    lr: float = Field(1e-3, gt=0.0, description="learning rate")
    weight_decay: float = Field(1.0, ge=0.0, description="weight decay")
    decay_parameters: Literal["all", "matrices"] = Field(
        "all", description="what decays: every parameter, or all but biases and norms"
    )
    momentum: Fraction = Field(0.9, description="of the momentum optimizer")
    betas: tuple[Fraction, Fraction] = Field(
        (0.9, 0.999), description="decay of the first and second moment (adam, adamw)"
    )
    eps: float = Field(1e-8, gt=0.0, description="floor of the second moment's root (adam, adamw)")
    clip: float = Field(1.0, ge=0.0, description="largest global gradient norm of a run; 0 leaves gradients alone")
    label_smoothing: Fraction = Field(0.0, description="share of the target that is spread over all tokens or labels")
    ema: Fraction = Field(0.0, description="decay of a running mean of the weights, which is evaluated; 0: none")
    schedule: Literal["constant", "linear", "cosine", "step", "plateau"] = Field(
        "constant", description="how the learning rate changes after the warm-up"
    )
    warmup: int = Field(0, ge=0, le=1_000_000_000, description="steps over which the learning rate grows linearly")
    lr_floor: float = Field(0.0, ge=0.0, le=1.0, description="where linear and cosine end, as a share of lr")
    lr_every: PositiveInt = Field(1_000, description="steps between drops (step schedule)")
    lr_factor: float = Field(0.5, gt=0.0, lt=1.0, description="factor of a drop (step and plateau schedules)")
    patience: int = Field(0, ge=0, le=1_000_000, description="evaluations without progress before a drop (plateau)")
    threshold: float = Field(0.1, ge=0.0, lt=1.0, description="relative gain that counts as progress (plateau)")
    plateau_metric: Literal["train/loss", "val/loss"] = Field("train/loss", description="reading that plateau looks at")
    eval_first: int = Field(100, ge=0, le=1_000_000, description="every step up to this one is recorded")
    eval_every: PositiveInt = Field(100, description="steps between records afterwards")
    eval_batches: int = Field(
        0, ge=0, le=1_000_000_000, description="batches of each set that a record reads; 0: the whole set"
    )
    stop_after: int = Field(
        0, ge=0, le=1_000_000, description="records without progress after which a run stops; 0: never"
    )
    stop_metric: Literal["val/loss", "val/accuracy"] = Field("val/loss", description="reading that stopping looks at")
    sample_every: int = Field(0, ge=0, le=1_000_000_000, description="steps between texts the model writes; 0: none")
    prompt: str = Field("", max_length=10_000, description="what a sample begins with")
    sample_tokens: int = Field(500, ge=1, le=1_000_000, description="tokens of a sample after the prompt")
    final_evaluation: bool = Field(True, description="one more record of the final weights, labelled last step + 1")
    precision: Literal["fp32", "tf32", "bf16"] = Field(
        "fp32", description="of matrix products on a GPU: strict, 19-bit, or 16-bit with 32-bit weights"
    )
    save_every: PositiveInt = Field(1_000, description="steps between kept checkpoints; the last is always kept")
    exclusive: bool = Field(False, description="never stacked, and nothing else trains meanwhile: for fair clocks")


TaskSettings: TypeAlias = ArithmeticSettings | TextSettings | LabelsSettings
ModelSettings: TypeAlias = GPTSettings | LSTMSettings | EncoderSettings
TASK_SETTINGS: dict[str, type[ArithmeticSettings] | type[TextSettings] | type[LabelsSettings]] = {
    "arithmetic": ArithmeticSettings, "text": TextSettings, "labels": LabelsSettings
}  # fmt: skip
MODEL_SETTINGS: dict[str, type[GPTSettings] | type[LSTMSettings] | type[EncoderSettings]] = {
    "gpt": GPTSettings,
    "lstm": LSTMSettings,
    "encoder": EncoderSettings,
}
TRAINING_BUDGETS = (
    "train.steps",
    "train.epochs",
    "train.max_tokens",
    "train.seconds",
)  # ways to say how long; one of them counts


def _is_any_of(*values: Value) -> Callable[[Value], bool]:
    return lambda value: value in values


def _is_unset(value: Value) -> bool:
    return value is None


def _is_set(value: Value) -> bool:
    return value is not None


# Dials that do nothing unless another dial asks for them: name → (that dial, whether its value does). A need of a dial
# that the kind of model does not have is none: only the LSTM's activation waits for a projection.
ACTIVE_WHEN: dict[str, tuple[str, Callable[[Value], bool]]] = {
    "task.vocabulary": ("task.tokenizer", _is_any_of("bpe")),
    "train.momentum": ("train.optimizer", _is_any_of("momentum")),
    "train.betas": ("train.optimizer", _is_any_of("adam", "adamw")),
    "train.eps": ("train.optimizer", _is_any_of("adam", "adamw")),
    "train.decay_parameters": ("train.weight_decay", bool),
    "train.lr_floor": ("train.schedule", _is_any_of("linear", "cosine")),
    "train.lr_every": ("train.schedule", _is_any_of("step")),
    "train.lr_factor": ("train.schedule", _is_any_of("step", "plateau")),
    "train.patience": ("train.schedule", _is_any_of("plateau")),
    "train.threshold": ("train.schedule", _is_any_of("plateau")),
    "train.plateau_metric": ("train.schedule", _is_any_of("plateau")),
    "train.eval_batches": ("task.kind", _is_any_of("text", "labels")),
    "train.stop_metric": ("train.stop_after", bool),
    "train.sample_every": ("task.kind", _is_any_of("text")),
    "train.prompt": ("train.sample_every", bool),
    "train.sample_tokens": ("train.sample_every", bool),
    "model.embeddings": ("task.kind", _is_any_of("text", "labels")),
    "model.position_exponent": ("model.positions", _is_any_of("sinusoidal")),
    "model.mlp_multiplier": ("model.hidden", _is_unset),
    "model.activation": ("model.projection", _is_set),
    "model.gate_init": ("model.init", _is_any_of("library")),
}


class Settings(SettingsGroup):
    """Everything that decides a run, but its seed."""

    task: TaskSettings = Field(ArithmeticSettings(), discriminator="kind")
    model: ModelSettings = Field(GPTSettings(), discriminator="kind")
    train: TrainSettings = TrainSettings()

    @classmethod
    def from_flat(cls, values: Mapping[str, Value]) -> Settings:
        """The settings with these dials (`{"model.layers": 3}`) set and all others at their defaults."""
        tree: dict[str, dict[str, Value]] = {"task": {"kind": "arithmetic"}, "model": {"kind": "gpt"}, "train": {}}
        for name, value in values.items():
            part, _, field = name.partition(".")
            tree[part][field] = tuple(value) if isinstance(value, list) else value
        return cls.model_validate(tree)

    def flat(self) -> dict[str, Value]:
        """Every dial of this run by its dotted name."""
        parts = {"task": self.task, "model": self.model, "train": self.train}
        return {f"{part}.{name}": value for part, group in parts.items() for name, value in group}

    def non_default(self) -> dict[str, Value]:
        """The dials that are not at their defaults (the kind of task and model: only when not the first kind)."""
        kinds = {"task.kind": "arithmetic", "model.kind": "gpt"}
        plain = Settings.from_flat({"task.kind": self.task.kind, "model.kind": self.model.kind}).flat() | kinds
        return {name: value for name, value in self.flat().items() if value != plain[name]}

    def n_steps(self, info: DatasetInfo | None = None) -> int:
        """Updates in all; epochs of a text task need the facts of its data.

        Steps of arithmetic are rounded up to whole epochs, as in the course's code; a budget of seconds has no number
        of updates, so it gives the largest there is.
        """
        train = self.train
        if train.seconds is not None:
            return 10**9
        if train.max_tokens is not None:
            return -(-train.max_tokens // (self._samples_per_update(info) * self._context_length(info)))
        if train.epochs is None and not isinstance(self.task, ArithmeticSettings):
            return train.steps
        per_epoch = self.updates_per_epoch(info)
        return per_epoch * (-(-train.steps // per_epoch) if train.epochs is None else train.epochs)

    def updates_per_epoch(self, info: DatasetInfo | None = None) -> int:
        """Updates in one pass over the training set, the last one possibly smaller."""
        if (n_train := self._n_train(info)) is None:
            raise ValueError(f"an epoch of task.kind = {self.task.kind} is known only with the facts of its data")
        return -(-n_train // self._samples_per_update(info))

    def _samples_per_update(self, info: DatasetInfo | None) -> int:
        samples, n_train = self.train.batch_size * self.train.accumulate, self._n_train(info)
        return samples if n_train is None else min(samples, n_train)

    def _n_train(self, info: DatasetInfo | None) -> int | None:
        if isinstance(self.task, ArithmeticSettings):
            return sum(self.task.n_train(order) for order in self.task.orders)
        return None if info is None else info.n_train

    def _context_length(self, info: DatasetInfo | None) -> int:
        if isinstance(self.task, ArithmeticSettings):
            return 2 * max(self.task.orders) + 2
        return self.task.length if info is None else info.context_length

    def conflicts(self) -> list[tuple[str, str]]:
        """What cannot be together: (the dial to change, why)."""
        return [
            *self._task_conflicts(),
            *self._model_conflicts(),
            *self._task_model_conflicts(),
            *self._train_conflicts(),
        ]

    def _task_model_conflicts(self) -> Iterator[tuple[str, str]]:
        """A task and a model that do not go together."""
        task, model = self.task.kind, self.model.kind
        if task == "labels" and model != "encoder":
            yield "model.kind", f"model.kind = {model} cannot tell labels; task.kind = labels needs encoder"
        if model == "encoder" and task != "labels":
            yield "model.kind", f"model.kind = encoder tells labels only; task.kind = {task} needs gpt or lstm"

    def _model_conflicts(self) -> Iterator[tuple[str, str]]:
        model = self.model
        if isinstance(model, LSTMSettings):
            if model.tied and model.output_width != model.dim:
                wide = "hidden" if model.projection is None else "projection"
                yield (
                    "model.tied",
                    f"model.tied needs model.{wide} = model.dim, not {model.output_width} and {model.dim}",
                )
            return
        if model.dim % model.heads:
            yield "model.heads", f"model.heads = {model.heads} does not divide model.dim = {model.dim}"
        elif model.positions == "rotary" and model.dim // model.heads % 2:
            width = f"model.dim / model.heads = {model.dim // model.heads}"
            yield "model.heads", f"{width} is odd; rotary positions turn pairs and need an even one"
        if model.positions == "sinusoidal" and model.dim % 2:
            yield "model.dim", f"model.dim = {model.dim} is odd; sinusoidal positions need an even one"

    def _task_conflicts(self) -> Iterator[tuple[str, str]]:
        task = self.task
        if isinstance(task, ArithmeticSettings):
            yield from _arithmetic_conflicts(task)
        elif isinstance(task, TextSettings) and task.val_fraction + task.test_fraction >= 1:
            held = f"task.val_fraction = {task.val_fraction} and task.test_fraction = {task.test_fraction}"
            yield "task.val_fraction", f"{held} leave nothing to train on"

    def _train_conflicts(self) -> Iterator[tuple[str, str]]:
        train = self.train
        given = [name for name in TRAINING_BUDGETS if name.removeprefix("train.") in train.model_fields_set]
        given = [name for name in given if getattr(train, name.removeprefix("train.")) is not None]
        if len(given) > 1:
            values = " and ".join(f"{name} = {getattr(train, name.removeprefix('train.'))}" for name in given)
            yield given[-1], f"{values} both say how long to train; give one"
        elif given in ([], ["train.steps"]) and train.warmup > train.steps:
            yield "train.warmup", f"train.warmup = {train.warmup} is longer than train.steps = {train.steps}"


def _arithmetic_conflicts(task: ArithmeticSettings) -> Iterator[tuple[str, str]]:
    if task.operator == "/" and any(task.p % divisor == 0 for divisor in range(2, task.p)):
        yield "task.p", f"task.p = {task.p} is not prime; division by its factors has several answers"
    if len(set(task.orders)) != len(task.orders):
        yield "task.orders", f"task.orders = {list(task.orders)} names an order twice"
    for order in task.orders:
        n, n_train = task.n_equations(order), task.n_train(order)
        if n > 50_000_000:
            yield "task.p", f"task.p = {task.p} makes {n:,} equations of order {order}; at most 50,000,000"
        if n_train == 0 or (n_train == n and task.train_fraction < 1):
            empty = "training" if n_train == 0 else "validation"
            why = f"task.train_fraction = {task.train_fraction} of {n} equations leaves no {empty} sample"
            yield "task.train_fraction", why


def setting_fields(task_kind: str, model_kind: str) -> dict[str, FieldInfo]:
    """The dials that a run of this task and model has, by dotted name."""
    groups: dict[str, type[SettingsGroup]] = {
        "task": TASK_SETTINGS[task_kind],
        "model": MODEL_SETTINGS[model_kind],
        "train": TrainSettings,
    }
    return {f"{part}.{name}": field for part, group in groups.items() for name, field in group.model_fields.items()}


@cache
def all_settings() -> dict[str, tuple[FieldInfo, ...]]:
    """Every dial of every kind: one field, or several where kinds differ in it."""
    found: dict[str, tuple[FieldInfo, ...]] = {}
    for task_kind in TASK_SETTINGS:
        for model_kind in MODEL_SETTINGS:
            for name, field in setting_fields(task_kind, model_kind).items():
                found[name] = (*found.get(name, ()), field)
    kinds = {"task.kind": tuple(TASK_SETTINGS), "model.kind": tuple(MODEL_SETTINGS)}
    for name, choices in kinds.items():
        found[name] = (FieldInfo(annotation=cast(Any, Literal[choices]), default=choices[0]),)
    return found


@cache
def _type_adapter(name: str) -> TypeAdapter[Value]:
    """Accepts what any kind's dial of this name accepts."""
    kinds: list[Any] = [Annotated[field.annotation, field] for field in all_settings()[name]]
    accepted: Any = kinds[0]
    for kind in kinds[1:]:
        accepted = accepted | kind
    return TypeAdapter(accepted, config=ConfigDict(strict=True, allow_inf_nan=False))


def check_value(name: str, value: Value) -> str | None:
    """What is wrong with this value of this dial, in words; None when it is fine."""
    try:
        _type_adapter(name).validate_python(tuple(value) if isinstance(value, list) else value)
    except ValidationError:
        return describe_accepted_values(name)
    return None


@cache
def describe_accepted_values(name: str) -> str:
    """What a dial accepts, in words: `a whole number from 1 to 1000`."""
    said = dict.fromkeys(_describe_type(field.annotation, field.metadata) for field in all_settings()[name])
    return " or ".join(said)


def _describe_type(annotation: Any, metadata: list[Any]) -> str:
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return _describe_type(inner, [entry for item in more for entry in getattr(item, "metadata", [item])] + metadata)
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(json.dumps(choice) for choice in get_args(annotation))
    if get_origin(annotation) is tuple:
        inner, *rest = get_args(annotation)
        return f"a list of {'' if rest == [...] else str(len(rest) + 1) + ' times '}{_describe_type(inner, [])}"
    if NoneType in get_args(annotation):
        return _describe_type(get_args(annotation)[0], metadata)
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[annotation]
    return (words + _describe_range(metadata)).strip()


def _describe_range(metadata: list[Any]) -> str:
    signs = {"ge": "from", "gt": "above", "lt": "below", "le": "to"}
    bounds: dict[str, Any] = {}
    for entry in metadata:
        for sign in signs:
            if getattr(entry, sign, None) is not None:
                bounds[sign] = getattr(entry, sign)
    return "".join(f" {word} {_format_bound(bounds[sign])}" for sign, word in signs.items() if sign in bounds)


def _format_bound(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"
