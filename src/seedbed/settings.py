"""Every setting that shapes a result, with its meaning, unit, range and traits; no torch.

A run is fully described by `Settings(task, model, train)` and a seed. The defaults are those of the modular-arithmetic
study that seedbed was first built for, so `Settings()` is a run of a two-layer GPT on a + b mod 31.

>>> Settings().model.kind
'gpt'
>>> Settings.from_flat({"model.kind": "lstm", "train.lr": 0.003}).non_default()
{'model.kind': 'lstm', 'train.lr': 0.003}

What a setting is like stands on its field: `setting(default, meaning, …)` carries the `Traits` that packing, planning,
charts, cost estimates and the page read. A run's identity is made of the names and defaults that settings were *born*
with, so that renaming a setting (`former_names`), changing its default (`born`) or adding one changes no stored run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cache
from math import ceil
from types import NoneType
from typing import Annotated, Any, Final, Literal, TypeAlias, cast, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

Value: TypeAlias = Any  # what a TOML value can be: str, int, float, bool, or a tuple of them


# ---- what a setting is like ----


@dataclass(frozen=True)
class Condition:
    """One condition under which a setting has an effect: what the value of another setting must be."""

    setting: str
    test: Literal["one of", "set", "unset", "nonzero"]
    values: tuple[Value, ...] = ()

    def holds(self, value: Value) -> bool:
        """Whether the other setting's value meets the condition."""
        match self.test:
            case "one of":
                return value in self.values
            case "set":
                return value is not None
            case "unset":
                return value is None
            case "nonzero":
                return bool(value)

    def __str__(self) -> str:
        if self.test == "one of":
            return f"{self.setting} is {' or '.join(map(str, self.values))}"
        return f"{self.setting} is {'above 0' if self.test == 'nonzero' else self.test}"


def when(setting: str, *values: Value) -> Condition:
    """The other setting has one of these values."""
    return Condition(setting, "one of", values)


def when_set(setting: str) -> Condition:
    return Condition(setting, "set")


def when_unset(setting: str) -> Condition:
    return Condition(setting, "unset")


def when_nonzero(setting: str) -> Condition:
    return Condition(setting, "nonzero")


@dataclass(frozen=True)
class Traits:
    """What is true of a setting whatever its value; `setting()` attaches it to the field."""

    born: Value  # the default of the first version that had this setting
    former_names: tuple[str, ...] = ()  # dotted, the one it was born with first
    label: str = ""  # on axes and in legends; empty: the last part of the name
    unit: str = ""
    value_labels: Mapping[str, str] = dataclass_field(
        default_factory=dict
    )  # how charts write values, such as gpt as GPT
    per_run: bool = False  # runs of one pack may differ in it
    nonzero_adds_work: bool = False  # per run, but a pack in which it is above 0 somewhere does more work
    affects_step_time: bool = True  # False: decides when something is done, not how long an update or evaluation takes
    active_when: tuple[Condition, ...] = ()  # all must hold; a condition on a setting that the kind lacks holds
    names_local_file: bool = False  # the page does not let a visitor choose it


def setting(
    default: Value,
    meaning: str,
    *,
    born: Value = ...,
    former_names: tuple[str, ...] = (),
    label: str = "",
    unit: str = "",
    value_labels: Mapping[str, str] | None = None,
    per_run: bool = False,
    nonzero_adds_work: bool = False,
    affects_step_time: bool = True,
    active_when: Condition | tuple[Condition, ...] = (),
    names_local_file: bool = False,
    **bounds: Any,
) -> Any:
    """A field of a settings group.

    To change a default, give the old one as `born`; to rename a setting, add the old dotted name to `former_names`. Run
    ids are made of the birth name and the birth default, so neither changes the id of any run.
    """
    traits = Traits(
        born=default if born is ... else born,
        former_names=former_names,
        label=label,
        unit=unit,
        value_labels=value_labels or {},
        per_run=per_run,
        nonzero_adds_work=nonzero_adds_work,
        affects_step_time=affects_step_time,
        active_when=active_when if isinstance(active_when, tuple) else (active_when,),
        names_local_file=names_local_file,
    )
    return Field(default, description=meaning, json_schema_extra=cast(Any, {"traits": traits}), **bounds)


def traits_of(field: FieldInfo) -> Traits:
    """The traits of a field made by `setting`."""
    return cast(Traits, cast(Any, field.json_schema_extra)["traits"])


# ---- types of values ----


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
    """What the data of a task determines; made by `data/`, read by planning, counting and building."""

    vocab_size: int  # token ids, special ones included
    context_length: int  # tokens that a training sample shows the model
    n_train: int  # samples in one epoch; with random sampling, as many as hold the text's tokens once
    n_classes: int = 0  # labels; 0: the model predicts the next token
    padding_id: int | None = None  # the id whose row in a token table starts at zero
    digest: str = ""  # identifies the data itself; part of a run's id
    tokens_per_sample: float | None = None  # mean number of tokens the model reads; None: context_length

    @property
    def mean_sample_tokens(self) -> float:
        """Tokens of a training sample that the model reads, on average; padding is not counted."""
        return float(self.context_length) if self.tokens_per_sample is None else self.tokens_per_sample


# ---- tasks ----


class SettingsGroup(BaseModel):
    """A frozen group of settings; a wrong name or type is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ArithmeticSettings(SettingsGroup):
    """Equations modulo p, written as tokens: `BOS a + b = r EOS`."""

    kind: Literal["arithmetic"] = setting("arithmetic", "which task", label="task")
    p: int = setting(31, "modulus; numbers 0 … p−1 are one token each", label="modulus p", ge=2, le=10_000)
    operator: Literal["+", "-", "*", "/"] = setting("+", "operation between the numbers", per_run=True)
    orders: OperandCounts = setting((2,), "numbers of operands: [2], [3] or [2, 3]", label="operands per equation")
    train_fraction: float = setting(
        0.5,
        "share of the equations used for training (r_train)",
        label="share of equations in training, r_train",
        per_run=True,
        gt=0.0,
        le=1.0,
    )

    def n_equations(self, order: int) -> int:
        """All ordered tuples of operands; a divisor is never 0."""
        return int(self.p * (self.p - (self.operator == "/")) ** (order - 1))

    def n_train(self, order: int) -> int:
        """Training equations of one order, halves rounded to even; at train_fraction = 1 all of them also validate."""
        return round(self.n_equations(order) * self.train_fraction)

    def n_tokens(self, order: int) -> int:
        """Tokens of an equation that the model reads: BOS, operands, operators, = and the result, but not EOS."""
        return 2 * order + 2


class TextSettings(SettingsGroup):
    """Predict the next token of a text."""

    kind: Literal["text"] = setting("text", "which task", born="arithmetic", label="task")
    corpus: ShortText = setting("python-docs", "a named corpus, or the path of a text file or a folder of *.txt")
    tokenizer: TokenizerKind = setting("characters", "what a token is", former_names=("task.tokens",))
    vocabulary: int | None = setting(
        None,
        "tokens of a BPE trained on the corpus; unset: GPT-1's vocabulary",
        unit="tokens",
        active_when=when("task.tokenizer", "bpe"),
        ge=300,
        le=60_000,
    )
    length: int = setting(128, "context length of a sample", unit="tokens", label="context length", ge=1, le=1_000_000)
    split: Literal["contiguous", "documents"] = setting(
        "contiguous", "how parts are held out: the end of the text, or whole documents, the same for all seeds"
    )
    val_fraction: Fraction = setting(0.1, "share held out for validation, unless the corpus has its own")
    test_fraction: Fraction = setting(0.0, "share held out for testing, unless the corpus has its own")
    data_fraction: PositiveFraction = setting(1.0, "share of the training part that is used")
    sampler: Literal["documents", "length", "windows", "epochs"] = setting(
        "length",
        "training samples: a random position of a random document (documents equally likely, or by their length), "
        "every window once an epoch (stride 1), or windows one after the other (stride length)",
    )
    tests: TextTuple = setting((), "named test sets of the corpus to evaluate; unset: all that it has")
    lengths: ContextLengths = setting(
        (), "context lengths at which perplexity is evaluated besides length", unit="tokens"
    )


class LabelsSettings(SettingsGroup):
    """Predict the label of a text."""

    kind: Literal["labels"] = setting("labels", "which task", born="arithmetic", label="task")
    corpus: ShortText = setting("speeches", "a named corpus with labels, or a TSV or CSV file: label, text")
    tokenizer: TokenizerKind = setting("words", "what a token is", former_names=("task.tokens",))
    vocabulary: int | None = setting(
        None,
        "tokens of a BPE trained on the corpus; unset: GPT-1's vocabulary",
        unit="tokens",
        active_when=when("task.tokenizer", "bpe"),
        ge=300,
        le=60_000,
    )
    length: int = setting(
        32, "length of a sample; longer texts are cut, shorter ones padded", unit="tokens", ge=1, le=1_000_000
    )
    val_fraction: Fraction = setting(0.1, "share of the labelled training texts held out for validation")
    data_fraction: PositiveFraction = setting(1.0, "share of the training part that is used")


# ---- models ----

MODEL_LABELS: Final = {"gpt": "GPT", "lstm": "LSTM"}


def _dropout(meaning: str) -> Any:
    return setting(0.0, meaning, per_run=True, nonzero_adds_work=True)


class TransformerSettings(SettingsGroup):
    """What decoder and encoder have in common."""

    kind: Literal["gpt", "encoder"]
    layers: int = setting(2, "number of blocks", label="layers L", ge=1, le=1_000)
    dim: int = setting(128, "width of the residual stream", label="width d", ge=1, le=100_000)
    heads: PositiveInt = setting(4, "attention heads; must divide dim", label="attention heads")
    mlp_multiplier: int = setting(
        4, "hidden width of the MLP over dim", active_when=when_unset("model.hidden"), ge=1, le=1_000
    )
    hidden: PositiveInt | None = setting(None, "hidden width of the MLP; unset: mlp_multiplier times dim")
    activation: Literal["gelu", "relu"] = setting("gelu", "nonlinearity of the MLP")
    norm: Literal["post", "pre"] = setting("post", "LayerNorm after the residual sum, or before attention and MLP")
    final_norm: bool = setting(False, "one more LayerNorm before the output")
    positions: Literal["sinusoidal", "learned", "alibi", "rotary", "none"] = setting(
        "sinusoidal", "position encoding; alibi, rotary and none have no table"
    )
    position_exponent: Literal["k/d", "2k/d"] = setting(
        "k/d",
        "sinusoidal wavelength exponent for dimensions 2k and 2k+1: the hand-out's, or the classic",
        active_when=when("model.positions", "sinusoidal"),
    )
    attention_bias: bool = setting(True, "biases in the attention projections")
    qkv_bias: bool | None = setting(None, "biases of queries, keys and values; unset: as attention_bias")
    mlp_bias: bool = setting(False, "biases in the MLP")
    output_bias: bool = setting(True, "bias in the output layer")
    embeddings: ShortText | None = setting(
        None,
        "an .npz file with frozen tables: tokens, and positions where learned",
        active_when=when("task.kind", "text", "labels"),
        names_local_file=True,
    )
    dropout: Fraction = _dropout("share of MLP outputs dropped while training")
    embedding_dropout: Fraction = _dropout("share of the first block's inputs dropped")
    attention_dropout: Fraction = _dropout("share of attention weights dropped")
    mlp_dropout: Fraction = _dropout("share of the MLP's hidden units dropped")
    residual_dropout: Fraction = _dropout("share dropped of what attention and MLP add to the residual stream")
    init: InitScheme = setting("library", "how weights are initialised; all but library have zero biases", per_run=True)
    init_scale: float = setting(1.0, "factor on all initial matrices and tables", per_run=True, gt=0.0, le=1_000.0)

    @property
    def mlp_width(self) -> int:
        """Hidden width of the MLP."""
        return self.mlp_multiplier * self.dim if self.hidden is None else self.hidden

    @property
    def has_qkv_bias(self) -> bool:
        return self.attention_bias if self.qkv_bias is None else self.qkv_bias


class GPTSettings(TransformerSettings):
    """Decoder-only transformer."""

    kind: Literal["gpt"] = setting("gpt", "which model", label="model", value_labels=MODEL_LABELS)
    tied: bool = setting(False, "output layer shares the token table")


class EncoderSettings(TransformerSettings):
    """Transformer without a mask, averaged over positions (padding included), and a two-layer classifier."""

    kind: Literal["encoder"] = setting("encoder", "which model", born="gpt", label="model", value_labels=MODEL_LABELS)
    activation: Literal["gelu", "relu"] = setting("gelu", "nonlinearity of the MLP and of the classifier")
    classifier_hidden: PositiveInt = setting(100, "width of the classifier's hidden layer")
    classifier_dropout: Fraction = _dropout("share of the classifier's hidden units dropped")
    batch_norm: bool = setting(False, "BatchNorm over the classifier's hidden layer")


class LSTMSettings(SettingsGroup):
    """Stacked LSTM written from cells."""

    kind: Literal["lstm"] = setting("lstm", "which model", born="gpt", label="model", value_labels=MODEL_LABELS)
    layers: int = setting(2, "number of stacked cells", label="layers L", ge=1, le=1_000)
    dim: int = setting(128, "width of the token table", label="width d", ge=1, le=100_000)
    hidden: PositiveInt | None = setting(None, "width of the state; unset: as dim")
    gate_biases: Literal[0, 1, 2] = setting(1, "bias vectors per gate: none, one, or two as in nn.LSTM")
    gate_init: Literal["xavier-uniform", "library"] = setting(
        "xavier-uniform",
        "how gates are initialised: Xavier on [x; h] with zero biases, or as nn.LSTM does",
        per_run=True,
        active_when=when("model.init", "library"),
    )
    projection: PositiveInt | None = setting(None, "width of one more layer between state and output; unset: none")
    activation: Literal["gelu", "relu"] = setting(
        "gelu", "nonlinearity of the projection", active_when=when_set("model.projection")
    )
    output_bias: bool = setting(True, "bias in the output layer")
    tied: bool = setting(False, "output layer shares the token table; needs hidden (or projection) = dim")
    embeddings: ShortText | None = setting(
        None,
        "an .npz file with a frozen table: tokens",
        active_when=when("task.kind", "text", "labels"),
        names_local_file=True,
    )
    dropout: Fraction = _dropout("share of outputs dropped between layers while training")
    embedding_dropout: Fraction = _dropout("share of the first cell's inputs dropped")
    init: InitScheme = setting(
        "library", "how the other weights are initialised; all but library have zero biases", per_run=True
    )
    init_scale: float = setting(1.0, "factor on all initial matrices and tables", per_run=True, gt=0.0, le=1_000.0)

    @property
    def hidden_width(self) -> int:
        """Width of the state."""
        return self.dim if self.hidden is None else self.hidden

    @property
    def output_width(self) -> int:
        """Width of the output layer's input."""
        return self.hidden_width if self.projection is None else self.projection


# ---- training ----

TRAINING_BUDGETS: Final = ("train.steps", "train.epochs", "train.max_tokens", "train.seconds")  # one of them counts
_ADAM: Final = when("train.optimizer", "adam", "adamw")
_PLATEAU: Final = when("train.schedule", "plateau")
_SAMPLES: Final = when_nonzero("train.sample_every")


class TrainSettings(SettingsGroup):
    """How a run is optimised, evaluated and saved."""

    steps: PositiveInt = setting(
        10_001,
        "updates T; for arithmetic, rounded up to whole epochs",
        label="steps T",
        affects_step_time=False,
        active_when=tuple(map(when_unset, TRAINING_BUDGETS[1:])),
    )
    epochs: PositiveInt | None = setting(
        None, "passes over the training set, instead of steps", affects_step_time=False
    )
    max_tokens: int | None = setting(
        None,
        "training tokens, instead of steps; the last update may exceed them",
        former_names=("train.tokens",),
        unit="tokens",
        affects_step_time=False,
        ge=1,
        le=10**15,
    )
    seconds: float | None = setting(
        None,
        "seconds of computing, instead of steps; where packs share a GPU, of wall-clock time",
        unit="s",
        affects_step_time=False,
        gt=0.0,
        le=1e9,
    )
    batch_size: PositiveInt = setting(
        512, "samples per batch; at most the training set", label="batch size B", unit="samples", per_run=True
    )
    accumulate: int = setting(1, "batches whose gradients make one update", unit="batches", ge=1, le=1_000_000)
    optimizer: Literal["sgd", "momentum", "adam", "adamw"] = setting(
        "adamw",
        "update rule; weight decay is L2 in all but adamw, which decouples it",
        value_labels={"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"},
    )
    lr: float = setting(1e-3, "learning rate", label="learning rate", per_run=True, gt=0.0)
    weight_decay: float = setting(1.0, "weight decay", label="weight decay", per_run=True, ge=0.0)
    decay_parameters: Literal["all", "matrices"] = setting(
        "all",
        "what decays: every parameter, or all but biases and norms",
        former_names=("train.decay",),
        active_when=when_nonzero("train.weight_decay"),
    )
    momentum: Fraction = setting(
        0.9, "momentum of the momentum optimizer", per_run=True, active_when=when("train.optimizer", "momentum")
    )
    betas: tuple[Fraction, Fraction] = setting(
        (0.9, 0.999), "decay of the first and second moment", per_run=True, active_when=_ADAM
    )
    eps: float = setting(1e-8, "added to the root of the second moment", per_run=True, active_when=_ADAM, gt=0.0)
    clip: float = setting(
        1.0, "largest global gradient norm of a run; 0 leaves gradients unclipped", per_run=True, ge=0.0
    )
    label_smoothing: Fraction = setting(0.0, "share of the target that is spread over all tokens or labels")
    ema: Fraction = setting(0.0, "decay of a running mean of the weights, which is evaluated; 0: none")
    schedule: Literal["constant", "linear", "cosine", "step", "plateau"] = setting(
        "constant", "how the learning rate changes after the warm-up", per_run=True
    )
    warmup: int = setting(
        0, "steps over which the learning rate grows linearly", unit="steps", per_run=True, ge=0, le=1_000_000_000
    )
    lr_floor: float = setting(
        0.0,
        "where linear and cosine end, as a share of lr",
        per_run=True,
        active_when=when("train.schedule", "linear", "cosine"),
        ge=0.0,
        le=1.0,
    )
    lr_every: PositiveInt = setting(
        1_000, "steps between drops", unit="steps", per_run=True, active_when=when("train.schedule", "step")
    )
    lr_factor: float = setting(
        0.5, "factor of a drop", per_run=True, active_when=when("train.schedule", "step", "plateau"), gt=0.0, lt=1.0
    )
    patience: int = setting(
        0,
        "evaluations without progress before a drop",
        unit="evaluations",
        per_run=True,
        active_when=_PLATEAU,
        ge=0,
        le=1_000_000,
    )
    threshold: float = setting(
        0.1, "relative gain that counts as progress", per_run=True, active_when=_PLATEAU, ge=0.0, lt=1.0
    )
    plateau_metric: Literal["train/loss", "val/loss"] = setting(
        "train/loss",
        "metric that the plateau schedule monitors",
        former_names=("train.watch",),
        per_run=True,
        active_when=_PLATEAU,
    )
    eval_first: int = setting(
        100,
        "every step up to this one is evaluated",
        unit="steps",
        affects_step_time=False,
        ge=0,
        le=1_000_000,
    )
    eval_every: PositiveInt = setting(
        100, "steps between evaluations afterwards", unit="steps", affects_step_time=False
    )
    eval_batches: int = setting(
        0,
        "batches of each set in one evaluation; 0: the whole set",
        unit="batches",
        active_when=when("task.kind", "text", "labels"),
        ge=0,
        le=1_000_000_000,
    )
    stop_after: int = setting(
        0,
        "evaluations without progress after which a run stops early; 0: never",
        unit="evaluations",
        affects_step_time=False,
        ge=0,
        le=1_000_000,
    )
    stop_metric: Literal["val/loss", "val/accuracy"] = setting(
        "val/loss",
        "metric that early stopping monitors",
        affects_step_time=False,
        active_when=when_nonzero("train.stop_after"),
    )
    sample_every: int = setting(
        0,
        "steps between samples that the model generates; 0: none",
        unit="steps",
        affects_step_time=False,
        active_when=when("task.kind", "text"),
        ge=0,
        le=1_000_000_000,
    )
    prompt: str = setting(
        "", "what a sample begins with", affects_step_time=False, active_when=_SAMPLES, max_length=10_000
    )
    sample_tokens: int = setting(
        500, "tokens of a sample after the prompt", unit="tokens", active_when=_SAMPLES, ge=1, le=1_000_000
    )
    final_evaluation: bool = setting(
        True,
        "one more evaluation of the final weights, labelled last step + 1",
        former_names=("train.closing_record",),
        affects_step_time=False,
    )
    precision: Literal["fp32", "tf32", "bf16"] = setting(
        "fp32", "of matrix products on a GPU: strict, 19-bit, or 16-bit with 32-bit weights"
    )
    save_every: PositiveInt = setting(
        1_000, "steps between kept checkpoints; the last is always kept", unit="steps", affects_step_time=False
    )
    exclusive: bool = setting(
        False,
        "never packed with other runs, and nothing else trains meanwhile: for fair timings",
        former_names=("train.alone",),
        affects_step_time=False,
    )


TaskSettings: TypeAlias = ArithmeticSettings | TextSettings | LabelsSettings
ModelSettings: TypeAlias = GPTSettings | LSTMSettings | EncoderSettings
TASK_SETTINGS: dict[str, type[ArithmeticSettings] | type[TextSettings] | type[LabelsSettings]] = {
    "arithmetic": ArithmeticSettings,
    "text": TextSettings,
    "labels": LabelsSettings,
}
MODEL_SETTINGS: dict[str, type[GPTSettings] | type[LSTMSettings] | type[EncoderSettings]] = {
    "gpt": GPTSettings,
    "lstm": LSTMSettings,
    "encoder": EncoderSettings,
}

# Settings that are gone: name → (the value that means what every run does today, the last version that had it). A
# stored run with that value is still read; any other value is reported in one sentence.
RETIRED_SETTINGS: Final[dict[str, tuple[Value, str]]] = {}


BORN_KINDS: Final = {"task.kind": "arithmetic", "model.kind": "gpt"}  # those of the first version


class UnreadableSettings(ValueError):
    """Stored settings that this version does not know; says which."""


class Settings(SettingsGroup):
    """Everything that determines a run, except its seed."""

    task: TaskSettings = Field(ArithmeticSettings(), discriminator="kind")
    model: ModelSettings = Field(GPTSettings(), discriminator="kind")
    train: TrainSettings = TrainSettings()

    @classmethod
    def from_flat(cls, values: Mapping[str, Value]) -> Settings:
        """The settings with these values (`{"model.layers": 3}`) and all others at their defaults."""
        tree: dict[str, dict[str, Value]] = {"task": {"kind": "arithmetic"}, "model": {"kind": "gpt"}, "train": {}}
        for name, value in values.items():
            part, _, field = name.partition(".")
            tree[part][field] = tuple(value) if isinstance(value, list) else value
        return cls.model_validate(tree)

    @classmethod
    def from_stored(cls, values: Mapping[str, Value]) -> Settings:
        """The settings of a stored run, whichever version wrote them; UnreadableSettings where that is impossible.

        Former names are translated. A setting that the writer did not have yet gets the default it was born with, which
        is how every run behaved before it existed, and not today's default. Settings without effect get today's
        default, so that runs which differ in nothing that matters compare as equal.
        """
        renamed = former_setting_names()
        current: dict[str, Value] = {}
        for name, value in values.items():
            if name in RETIRED_SETTINGS:
                neutral, version = RETIRED_SETTINGS[name]
                if _tuples(value) != neutral:
                    raise UnreadableSettings(
                        f"it was trained with {name} = {json.dumps(value)}, a setting that only seedbed up to "
                        f"{version} has"
                    )
            else:
                current[renamed.get(name, name)] = _tuples(value)
        kinds = [current.get(kind, born) for kind, born in BORN_KINDS.items()]
        if kinds[0] not in TASK_SETTINGS or kinds[1] not in MODEL_SETTINGS:
            raise UnreadableSettings(
                f"it is a {kinds[1]} on task {kinds[0]}, which this version of seedbed does not know"
            )
        fields = setting_fields(*kinds)
        if unknown := [name for name in current if name not in fields]:
            raise UnreadableSettings(f"this version of seedbed does not know its settings {', '.join(unknown)}")
        born = {name: traits_of(field).born for name, field in fields.items() if name not in BORN_KINDS}
        try:
            whole = cls.from_flat(born | current)
            return cls.from_flat({name: value for name, value in whole.flat().items() if whole.is_active(name)})
        except ValidationError as error:
            wrong = ", ".join(".".join(map(str, one["loc"])) for one in error.errors())
            raise UnreadableSettings(f"this version of seedbed does not accept its values of {wrong}") from error

    def flat(self) -> dict[str, Value]:
        """Every setting of this run by its dotted name."""
        parts = {"task": self.task, "model": self.model, "train": self.train}
        return {f"{part}.{name}": value for part, group in parts.items() for name, value in group}

    def non_default(self) -> dict[str, Value]:
        """The settings that are not at today's defaults (the kinds of task and model: unless the first kind)."""
        fields = setting_fields(self.task.kind, self.model.kind)
        defaults = {name: field.default for name, field in fields.items()} | BORN_KINDS
        return {name: value for name, value in self.flat().items() if value != defaults[name]}

    def identity(self) -> dict[str, Value]:
        """What a run's id is made of: the settings with an effect that are not at the default they were born with.

        Names are those that the settings were born with too. So a later default, a new name, another order of the
        settings, or a setting that is added with its old behaviour as the birth default, leaves this as it is.
        """
        found = {}
        for name, field in setting_fields(self.task.kind, self.model.kind).items():
            traits, value = traits_of(field), self.get(name)
            if value != traits.born and self.is_active(name):
                found[traits.former_names[0] if traits.former_names else name] = value
        return found

    def get(self, name: str) -> Value:
        """The value of a setting by its dotted name; None where this kind of task or model does not have it."""
        part, _, field = name.partition(".")
        return getattr(getattr(self, part, None), field, None)

    def is_active(self, name: str) -> bool:
        """Whether this kind of task and model has the setting, and the other settings let it have an effect."""
        fields = setting_fields(self.task.kind, self.model.kind)
        if name not in fields:
            return False
        conditions = traits_of(fields[name]).active_when
        return all(one.setting not in fields or one.holds(self.get(one.setting)) for one in conditions)

    # ---- how much one update sees: the only counts of samples and tokens ----

    def samples_per_update(self, info: DatasetInfo | None = None) -> int:
        """B: samples whose gradients make one update, over all accumulated batches; at most the training set.

        Without the dataset's info, the training set of a text is taken to be larger than that.
        """
        requested, n_train = self.train.batch_size * self.train.accumulate, self._n_train(info)
        return requested if n_train is None else min(requested, n_train)

    def tokens_per_update(self, info: DatasetInfo | None = None) -> float:
        """Tokens that the model reads in one update, on average over an epoch; padding is not counted."""
        return self.samples_per_update(info) * self._tokens_per_sample(info)

    def n_steps(self, info: DatasetInfo | None = None) -> int:
        """Total number of updates; epochs of a text need its dataset's info.

        Steps of arithmetic are rounded up to whole epochs, as in the course's code. A budget of seconds has no number
        of updates, so it returns the upper limit of train.steps.
        """
        train = self.train
        if train.seconds is not None:
            return 10**9
        if train.max_tokens is not None:
            return ceil(train.max_tokens / self.tokens_per_update(info))
        if train.epochs is None and not isinstance(self.task, ArithmeticSettings):
            return train.steps
        per_epoch = self.updates_per_epoch(info)
        return per_epoch * (-(-train.steps // per_epoch) if train.epochs is None else train.epochs)

    def updates_per_epoch(self, info: DatasetInfo | None = None) -> int:
        """Updates in one pass over the training set, the last one possibly smaller."""
        if (n_train := self._n_train(info)) is None:
            raise ValueError(f"an epoch of task.kind = {self.task.kind} is known only with its dataset's info")
        return -(-n_train // self.samples_per_update(info))

    def _n_train(self, info: DatasetInfo | None) -> int | None:
        if isinstance(self.task, ArithmeticSettings):
            return sum(self.task.n_train(order) for order in self.task.orders)
        return None if info is None else info.n_train

    def _tokens_per_sample(self, info: DatasetInfo | None) -> float:
        if isinstance(self.task, ArithmeticSettings):
            return mean_equation_tokens(self.task)
        return float(self.task.length) if info is None else info.mean_sample_tokens

    # ---- conflicts ----

    def conflicts(self) -> list[tuple[str, str]]:
        """Conflicting settings: (the setting to change, the reason)."""
        return [
            *self._task_conflicts(),
            *self._model_conflicts(),
            *self._task_model_conflicts(),
            *self._train_conflicts(),
        ]

    def _task_model_conflicts(self) -> Iterator[tuple[str, str]]:
        """A task that the model cannot learn."""
        task, model = self.task.kind, self.model.kind
        if task == "labels" and model != "encoder":
            yield "model.kind", f"model.kind = {model} cannot predict labels; task.kind = labels needs encoder"
        if model == "encoder" and task != "labels":
            yield "model.kind", f"model.kind = encoder predicts labels only; task.kind = {task} needs gpt or lstm"

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
            yield "model.heads", f"{width} is odd; rotary positions rotate pairs and need an even one"
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


def mean_equation_tokens(task: ArithmeticSettings) -> float:
    """Tokens that the model reads of a training equation, on average over the orders."""
    n_train = {order: task.n_train(order) for order in task.orders}
    return sum(n * task.n_tokens(order) for order, n in n_train.items()) / max(1, sum(n_train.values()))


# ---- settings by name ----


@cache
def setting_fields(task_kind: str, model_kind: str) -> dict[str, FieldInfo]:
    """The settings that a run of this task and model has, by dotted name."""
    groups: dict[str, type[SettingsGroup]] = {
        "task": TASK_SETTINGS[task_kind],
        "model": MODEL_SETTINGS[model_kind],
        "train": TrainSettings,
    }
    return {f"{part}.{name}": field for part, group in groups.items() for name, field in group.model_fields.items()}


@cache
def all_settings() -> dict[str, tuple[FieldInfo, ...]]:
    """Every setting of every kind: one field, or several where kinds differ in it."""
    found: dict[str, tuple[FieldInfo, ...]] = {}
    for task_kind in TASK_SETTINGS:
        for model_kind in MODEL_SETTINGS:
            for name, field in setting_fields(task_kind, model_kind).items():
                if not any(field is known for known in found.get(name, ())):
                    found[name] = (*found.get(name, ()), field)
    for name, choices in {"task.kind": tuple(TASK_SETTINGS), "model.kind": tuple(MODEL_SETTINGS)}.items():
        first = found[name][0]
        found[name] = (
            FieldInfo(
                annotation=cast(Any, Literal[choices]),
                default=choices[0],
                description=first.description,
                json_schema_extra=first.json_schema_extra,
            ),
        )
    return found


def setting_traits(name: str) -> Traits:
    """The traits of a setting by its dotted name; those of the first kind where kinds differ."""
    return traits_of(all_settings()[name][0])


@cache
def former_setting_names() -> dict[str, str]:
    """Names that settings had in earlier versions, with today's name of each."""
    return {
        former: name for name, fields in all_settings().items() for field in fields
        for former in traits_of(field).former_names
    }  # fmt: skip


def matches_value(found: Value, wanted: Value) -> bool:
    """Whether a setting's value is the wanted one, or one of several; the only matcher of filters.

    Files, commands and the page all mean the same: lists and tuples are alike, `orders = 2` means `orders = [2]`, and a
    list offers alternatives, except to a setting whose values are lists themselves, where it is one value.

    >>> matches_value((2,), 2), matches_value(8, (8, 16))
    (True, True)
    >>> matches_value((2,), (2, 3)), matches_value((2,), ((2,), (3,)))
    (False, True)
    """
    found, wanted = _tuples(found), _tuples(wanted)
    if found == wanted or found == (wanted,):
        return True
    if not isinstance(wanted, tuple):
        return False
    if isinstance(found, tuple):
        return any(isinstance(one, tuple) and found == one for one in wanted)
    return found in wanted


def _tuples(value: Value) -> Value:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


@cache
def _type_adapter(name: str) -> TypeAdapter[Value]:
    """Accepts a value if any task or model kind accepts it for this setting."""
    kinds: list[Any] = [Annotated[field.annotation, field] for field in all_settings()[name]]
    accepted: Any = kinds[0]
    for kind in kinds[1:]:
        accepted = accepted | kind
    return TypeAdapter(accepted, config=ConfigDict(strict=True, allow_inf_nan=False))


def check_value(name: str, value: Value) -> str | None:
    """None if the setting accepts the value, else a description of what it accepts."""
    try:
        _type_adapter(name).validate_python(tuple(value) if isinstance(value, list) else value)
    except ValidationError:
        return describe_accepted_values(name)
    return None


@cache
def describe_accepted_values(name: str) -> str:
    """Description of what a setting accepts: `a whole number from 1 to 1000`."""
    descriptions = dict.fromkeys(_describe_type(field.annotation, field.metadata) for field in all_settings()[name])
    return " or ".join(descriptions)


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
    type_name = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[annotation]
    return (type_name + _describe_range(metadata)).strip()


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
