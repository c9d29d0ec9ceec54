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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from functools import cache
from math import ceil
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

Conflict: TypeAlias = tuple[str, str]  # the setting to change, the reason
Group = TypeVar("Group", bound="SettingsGroup")
Value: TypeAlias = Any  # what a TOML value can be: str, int, float, bool, or a tuple of them


# ---- what a setting is like ----


@dataclass(frozen=True)
class Condition:
    """One condition under which a setting has an effect: what the value of another setting must be."""

    setting: str
    test: Literal["one of", "set", "unset", "nonzero", "trait"]
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
            case "trait":
                return value in self._kinds_with_trait()

    def _kinds_with_trait(self) -> list[str]:
        return [kind for kind, group in TASK_SETTINGS.items() if getattr(group, self.values[0])]

    def __str__(self) -> str:
        if self.test == "trait":
            return f"{self.setting} is {' or '.join(self._kinds_with_trait())}"
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


def when_task(trait: str) -> Condition:
    """The kind of task has this trait: a class variable of `TaskSettings`, such as `has_corpus`."""
    return Condition("task.kind", "trait", (trait,))


@dataclass(frozen=True)
class Traits:
    """What is true of a setting whatever its value; `setting()` attaches it to the field."""

    born: Value  # the default of the first version that had this setting
    former_names: tuple[str, ...] = ()  # dotted, the one it was born with first
    former_values: tuple[tuple[Value, Value], ...] = ()  # (what a value was called at birth, what it is called today)
    label: str = ""  # on axes and in legends; empty: the last part of the name
    unit: str = ""
    # How charts write values, such as gpt as GPT
    value_labels: Mapping[str, str] = dataclass_field(default_factory=dict)
    per_run: bool = False  # runs of one pack may differ in it
    nonzero_adds_work: bool = False  # per run, but a pack in which it is above 0 somewhere does more work
    affects_step_time: bool = True  # False: decides when something is done, not how long an update or evaluation takes
    active_when: tuple[Condition, ...] = ()  # all must hold; a condition on a setting that the kind lacks holds
    names_local_file: bool = False  # the page does not let a visitor choose it

    def current_value(self, stored: Value) -> Value:
        """What a stored value is called today."""
        return next((today for former, today in self.former_values if former == stored), stored)

    def birth_value(self, value: Value) -> Value:
        """What a value was called when the setting was born."""
        return next((former for former, today in self.former_values if today == value), value)


def setting(
    default: Value,
    meaning: str,
    *,
    born: Value = ...,
    former_names: tuple[str, ...] = (),
    former_values: tuple[tuple[Value, Value], ...] = (),
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

    To change a default, give the old one as `born`; to rename a setting, add the old dotted name to `former_names`; to
    rename a value, add the pair to `former_values`. Run ids are made of the birth name, the birth default and the birth
    values, so none of them changes the id of any run.
    """
    traits = Traits(
        born=default if born is ... else born,
        former_names=former_names,
        former_values=former_values,
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


@dataclass(frozen=True)
class OneOf:
    """Marks a text that must be a key of a table; unlike a Literal, the table may grow."""

    table: Mapping[str, object]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The names of today as an enumeration, which the page offers as choices."""
        return handler(schema) | {"enum": list(self.table)}

    def _check(self, value: str) -> str:
        if value not in self.table:
            raise ValueError(f"expected {self}")
        return value

    def __str__(self) -> str:
        return "one of " + ", ".join(map(json.dumps, self.table))


def as_tuple(value: Value) -> Value:
    """`orders = 2` means `orders = [2]`."""
    return (value,) if isinstance(value, int | str) and not isinstance(value, bool) else value


EvalSet: TypeAlias = Literal["train", "running", "val", "test"]
RUNNING_LOSS: Final = "train/running_loss"  # the metric of the set `running`
ALL_EVAL_SETS: Final[tuple[EvalSet, ...]] = ("train", "val", "test")


def _in_order(value: Value) -> Value:
    """The evaluated sets in one order and each once, since no other order means anything else."""
    known = get_args(EvalSet)
    value = as_tuple(value)
    is_known = isinstance(value, tuple) and all(one in known for one in value)
    return tuple(one for one in known if one in value) if is_known else value


EvalSets = Annotated[tuple[EvalSet, ...], BeforeValidator(_in_order), Field(min_length=1)]


def as_tuple_of_steps(value: Value) -> Value:
    """`save_steps = 5` means `save_steps = [5]`; steps in ascending order, each once."""
    if value == "log":
        return value
    value = as_tuple(value)
    are_steps = isinstance(value, tuple) and all(isinstance(step, int) for step in value)
    return tuple(sorted(set(value))) if are_steps else value


PositiveInt = Annotated[int, Field(ge=1, le=1_000_000_000)]
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
SaveSteps = Annotated[Literal["log"] | tuple[PositiveInt, ...], BeforeValidator(as_tuple_of_steps)]
PositiveFraction = Annotated[float, Field(gt=0.0, le=1.0)]
ShortText = Annotated[str, Field(min_length=1, max_length=1_000)]


@dataclass(frozen=True)
class DatasetInfo:
    """What the data of a task determines; made by `tasks/`, read by planning, counting and building."""

    vocab_size: int  # token ids, special ones included
    context_length: int  # tokens that a training sample shows the model
    n_train: int  # samples in one epoch; with random sampling, as many as hold the text's tokens once
    n_classes: int = 0  # labels; 0: the model predicts the next token
    padding_id: int | None = None  # the id whose row in a token table starts at zero
    digest: str = ""  # identifies the data itself; part of a run's id
    tokens_per_sample: float | None = None  # mean number of tokens the model reads; None: context_length
    chance: float | None = None  # accuracy of always giving the most frequent answer; None: not meaningful
    eos_id: int | None = None  # the id that ends a sample; None: samples have no end

    @property
    def mean_sample_tokens(self) -> float:
        """Tokens of a training sample that the model reads, on average; padding is not counted."""
        return float(self.context_length) if self.tokens_per_sample is None else self.tokens_per_sample


class SettingsGroup(BaseModel):
    """A frozen group of settings; a wrong name or type is an error."""

    # Validators are built when they are first used: a command builds those of the kinds it needs.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


class TaskSettings(SettingsGroup):
    """The settings of one kind of task, and what they determine without its data; `tasks.base.Task` adds the rest."""

    kind: str
    predicts: ClassVar[Literal["next_token", "label"]] = "next_token"  # what a model has to output
    whole_epochs: ClassVar[bool] = False  # train.steps is rounded up to whole epochs
    has_corpus: ClassVar[bool] = False  # reads texts, which can change or be missing; otherwise settings make the data
    generates_text: ClassVar[bool] = False  # samples during training are text, which may copy the training text
    completes_prompts: ClassVar[bool] = False  # a sample is a prompt and its only correct completion, up to EOS

    def count_train_samples(self) -> int | None:
        """Training samples; None where only the data can say."""
        return None

    def mean_sample_tokens(self) -> float:
        """Tokens of a training sample that the model reads, on average, as far as the settings can say."""
        raise NotImplementedError

    def conflicts(self) -> Iterator[Conflict]:
        """Settings that contradict each other: the one to change, and why."""
        yield from ()


class ModelSettings(SettingsGroup):
    """The settings of one kind of model."""

    kind: str
    predicts: ClassVar[Literal["next_token", "label"]] = "next_token"
    stackable: ClassVar[bool] = True  # False: every run is a pack by itself
    if TYPE_CHECKING:  # every kind declares these itself, among its other settings
        init: str
        init_scale: float
        embeddings: str | None

    def conflicts(self) -> Iterator[Conflict]:
        """Settings that contradict each other: the one to change, and why."""
        yield from ()


# Settings of every kind of task and model, by kind; `register_settings` fills them.
TASK_SETTINGS: dict[str, type[TaskSettings]] = {}
MODEL_SETTINGS: dict[str, type[ModelSettings]] = {}


@dataclass(frozen=True)
class Origin:
    """The plugin that a kind comes from; part of the id of every run that uses it."""

    name: str
    version: str
    digest: str  # of its source

    def __str__(self) -> str:
        return f"plugin {self.name}{self.version and ' '}{self.version} ({self.digest})"


KIND_ORIGINS: dict[tuple[str, str], Origin] = {}  # ("model", kind) and so on; kinds of the package itself have none
_origins: list[Origin] = []  # the plugin that is being loaded, last


@contextmanager
def current_origin(origin: Origin) -> Iterator[None]:
    """Kinds that are registered inside come from this plugin."""
    _origins.append(origin)
    try:
        yield
    finally:
        _origins.pop()


def note_origin(part: str, kind: str) -> None:
    """Remembers which plugin, if any, a kind comes from."""
    if _origins:
        KIND_ORIGINS[part, kind] = _origins[-1]


def register_settings(group: type[Group]) -> type[Group]:
    """Makes a kind of task or model known by its settings; usable as a decorator."""
    kind = group.model_fields["kind"].default
    part = "task" if issubclass(group, TaskSettings) else "model"
    known: dict[str, Any] = TASK_SETTINGS if part == "task" else MODEL_SETTINGS
    if known.get(kind, group) is not group:
        raise ValueError(f"there is a {part} of kind {kind!r} already")
    known[kind] = group
    note_origin(part, kind)
    _forget_cached_settings()
    return group


def register_choice(part: str, table: dict[str, None], name: str) -> None:
    """Enters a name into the table of a `OneOf` setting, such as `model.positions`, and remembers its plugin."""
    if name in table:
        raise ValueError(f"there is a choice {name!r} of {part} already")
    table[name] = None
    note_origin(part, name)
    _forget_cached_settings()


def _forget_cached_settings() -> None:
    for cached in (setting_fields, all_settings, former_setting_names, _type_adapter, describe_accepted_values):
        cached.cache_clear()


# ---- training ----

TRAINING_BUDGETS: Final = ("train.steps", "train.epochs", "train.max_tokens", "train.seconds")  # one of them counts
_PLATEAU: Final = when("train.schedule", "plateau")
_SAMPLES: Final = when_nonzero("train.sample_every")


@dataclass(frozen=True)
class OptimizerInfo:
    """What is known of an optimizer without torch."""

    implementation: str  # module:class, imported when a pack is built
    n_moments: int  # tensors of state per weight
    settings: tuple[str, ...] = ()  # that it uses besides lr and weight_decay
    label: str = ""  # on axes and in legends; empty: its name
    n_matrix_moments: int | None = None  # tensors of state per weight of a hidden layer's matrix; None: as n_moments


OPTIMIZERS: Final[dict[str, OptimizerInfo]] = {
    "sgd": OptimizerInfo("seedbed.training.optimizers.sgd:SGD", 0, label="SGD"),
    "momentum": OptimizerInfo("seedbed.training.optimizers.momentum:Momentum", 1, ("momentum",)),
    "adam": OptimizerInfo("seedbed.training.optimizers.adam:Adam", 2, ("betas", "eps"), "Adam"),
    "adamw": OptimizerInfo("seedbed.training.optimizers.adam:AdamW", 2, ("betas", "eps"), "AdamW"),
    "lion": OptimizerInfo("seedbed.training.optimizers.lion:Lion", 1, ("betas",), "Lion"),
    "muon": OptimizerInfo(
        "seedbed.training.optimizers.muon:Muon",
        n_moments=2,
        settings=("betas", "eps", "muon_momentum", "muon_iterations", "muon_scale"),
        label="Muon",
        n_matrix_moments=1,
    ),
}
OptimizerKind = Annotated[str, OneOf(OPTIMIZERS)]


def _when_used(name: str) -> Condition:
    """The optimizer uses this setting."""
    return when("train.optimizer", *(kind for kind, info in OPTIMIZERS.items() if name in info.settings))


def _optimizer_labels() -> dict[str, str]:
    return {kind: info.label for kind, info in OPTIMIZERS.items() if info.label}


def register_optimizer_info(kind: str, info: OptimizerInfo) -> None:
    """Makes `train.optimizer` accept another kind; the settings that it uses have an effect with it."""
    if OPTIMIZERS.get(kind, info) != info:
        raise ValueError(f"there is an optimizer of kind {kind!r} already")
    OPTIMIZERS[kind] = info
    note_origin("optimizer", kind)
    changed: dict[str, dict[str, Any]] = {name: {"active_when": (_when_used(name),)} for name in info.settings}
    for name, traits in (changed | {"optimizer": {"value_labels": _optimizer_labels()}}).items():
        field = TrainSettings.model_fields[name]
        cast(Any, field.json_schema_extra)["traits"] = replace(traits_of(field), **traits)
    _forget_cached_settings()


class TrainSettings(SettingsGroup):
    """How a run is optimised, evaluated and saved."""

    steps: PositiveInt = setting(
        10_001,
        "updates T; for equations, rounded up to whole epochs",
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
    accumulate: int = setting(
        1, "batches whose gradients make one update", label="batches per update", unit="batches", ge=1, le=1_000_000
    )
    optimizer: OptimizerKind = setting(
        "adamw",
        "update rule; weight decay is L2 in sgd, momentum and adam, and decoupled in the others",
        value_labels=_optimizer_labels(),
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
        0.9, "momentum of the momentum optimizer", per_run=True, active_when=_when_used("momentum")
    )
    betas: tuple[Fraction, Fraction] = setting(
        (0.9, 0.999),
        "decay of the first and second moment; in lion, of the average that gives the update and of the momentum",
        per_run=True,
        active_when=_when_used("betas"),
    )
    eps: float = setting(
        1e-8, "added to the root of the second moment", per_run=True, active_when=_when_used("eps"), gt=0.0
    )
    muon_momentum: Fraction = setting(
        0.95, "momentum of matrices in muon (Nesterov)", per_run=True, active_when=_when_used("muon_momentum")
    )
    muon_iterations: int = setting(
        5, "Newton–Schulz iterations of an update in muon", active_when=_when_used("muon_iterations"), ge=1, le=99
    )
    muon_scale: Literal["match_rms_adamw", "original"] = setting(
        "match_rms_adamw",
        "size of an update in muon: as large as AdamW's, or √max(1, rows / columns)",
        active_when=_when_used("muon_scale"),
    )
    clip: float = setting(
        1.0,
        "largest global gradient norm of a run; 0 leaves gradients unclipped",
        label="gradient clipping",
        per_run=True,
        ge=0.0,
    )
    label_smoothing: Fraction = setting(0.0, "share of the target that is spread over all tokens or labels")
    ema: Fraction = setting(
        0.0, "decay of a running mean of the weights, which is evaluated; 0: none", label="weight averaging"
    )
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
        "metric that the plateau schedule monitors; train/loss is the running loss if train is not evaluated",
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
    eval_sets: EvalSets = setting(
        ALL_EVAL_SETS,
        "what is evaluated: train, val, test; running: the mean training loss of the updates since the last evaluation",
    )
    eval_batches: int = setting(
        0,
        "batches of each set in one evaluation; 0: the whole set",
        unit="batches",
        active_when=when_task("has_corpus"),
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
        active_when=when_task("generates_text"),
        ge=0,
        le=1_000_000_000,
    )
    prompt: str = setting(
        "", "what a sample begins with", affects_step_time=False, active_when=_SAMPLES, max_length=10_000
    )
    sample_tokens: int = setting(
        500, "tokens of a sample after the prompt", unit="tokens", active_when=_SAMPLES, ge=1, le=1_000_000
    )
    samples: int = setting(1, "texts of each sampling", affects_step_time=False, active_when=_SAMPLES, ge=1, le=1_000)
    sample_temperature: float = setting(
        1.0,
        "divides the logits of samples; below 1 the likely tokens become likelier, 0 always takes the likeliest",
        affects_step_time=False,
        active_when=_SAMPLES,
        ge=0.0,
        le=100.0,
    )
    sample_top_k: int = setting(
        0,
        "samples draw from this many of the likeliest tokens; 0: from all",
        label="sample top-k",
        affects_step_time=False,
        active_when=_SAMPLES,
        ge=0,
        le=10_000_000,
    )
    sample_top_p: float = setting(
        1.0,
        "samples draw from the fewest likeliest tokens with this total probability; 1: from all",
        label="sample top-p",
        affects_step_time=False,
        active_when=_SAMPLES,
        gt=0.0,
        le=1.0,
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
    save_steps: SaveSteps = setting(
        (),
        "further steps whose checkpoints are kept: a list, or log for 1, 2, 4, 8, …",
        unit="steps",
        affects_step_time=False,
    )
    reproducible: bool = setting(False, "on a CPU the same bits in every placement, samples too, whatever the threads")
    exclusive: bool = setting(
        False,
        "never packed with other runs, and nothing else trains meanwhile: for fair timings",
        former_names=("train.alone",),
        affects_step_time=False,
    )

    def keeps_checkpoint(self, step: int) -> bool:
        """Whether the weights after this update are kept, besides the last and, with early stopping, the best ones."""
        is_listed = step & (step - 1) == 0 if self.save_steps == "log" else step in self.save_steps
        return step > 0 and (is_listed or step % self.save_every == 0)

    def n_kept_checkpoints(self, n_steps: int) -> int:
        """Kept checkpoints of a run of this many updates, the last one included."""
        listed = {2**k for k in range(n_steps.bit_length())} if self.save_steps == "log" else set(self.save_steps)
        further = {step for step in listed | {n_steps} if 0 < step <= n_steps and step % self.save_every}
        return n_steps // self.save_every + len(further)


# Settings that are gone: name → (the value that means what every run does today, the last version that had it). A
# stored run with that value is still read; any other value is reported in one sentence.
RETIRED_SETTINGS: Final[dict[str, tuple[Value, str]]] = {}


BORN_KINDS: Final = {"task.kind": "arithmetic", "model.kind": "gpt"}  # those of the first version


class UnreadableSettings(ValueError):
    """Stored settings that this version does not know; says which."""


class InvalidSettings(ValueError):
    """Values that the settings of a kind do not accept; `names` are those of the settings."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        super().__init__(f"values not accepted: {', '.join(self.names)}")


class Settings(SettingsGroup):
    """Everything that determines a run, except its seed.

    The classes of `task` and `model` depend on their kinds; `TASK_SETTINGS` and `MODEL_SETTINGS` hold those that exist.
    """

    task: Any = Field(default_factory=lambda: TASK_SETTINGS["arithmetic"].model_validate({}))
    model: Any = Field(default_factory=lambda: MODEL_SETTINGS["gpt"].model_validate({}))
    train: TrainSettings = Field(default_factory=lambda: TrainSettings())

    @classmethod
    def from_flat(cls, values: Mapping[str, Value]) -> Settings:
        """The settings with these values (`{"model.layers": 3}`) and all others at their defaults."""
        tree: dict[str, dict[str, Value]] = {"task": {"kind": "arithmetic"}, "model": {"kind": "gpt"}, "train": {}}
        for name, value in values.items():
            part, _, field = name.partition(".")
            tree[part][field] = tuple(value) if isinstance(value, list) else value
        kinds: dict[str, Mapping[str, type[SettingsGroup]]] = {"task": TASK_SETTINGS, "model": MODEL_SETTINGS}
        groups: dict[str, SettingsGroup] = {}
        for part, fields in tree.items():
            group = kinds[part].get(fields["kind"]) if part in kinds else TrainSettings
            if group is None:
                raise InvalidSettings([f"{part}.kind"])
            try:
                groups[part] = group.model_validate(fields)
            except ValidationError as error:
                raise InvalidSettings([f"{part}.{one['loc'][0]}" for one in error.errors()]) from error
        return cls(**cast(Any, groups))

    @classmethod
    def from_stored(cls, values: Mapping[str, Value]) -> Settings:
        """The settings of a stored run, whichever version wrote them; UnreadableSettings where that is impossible.

        Former names are translated. A setting that the writer did not have yet gets the default it was born with, which
        is how every run behaved before it existed, and not today's default. Settings without effect get today's
        default, so that runs which differ in nothing that matters compare as equal.
        """
        renamed = former_setting_names()
        current: dict[str, Value] = {}
        plugins: Mapping[str, Sequence[str]] = values.get("plugins", {})
        for name, value in values.items():
            if name == "plugins":
                continue
            if name in RETIRED_SETTINGS:
                neutral, version = RETIRED_SETTINGS[name]
                if to_tuples(value) != neutral:
                    raise UnreadableSettings(
                        f"it was trained with {name} = {json.dumps(value)}, a setting that only seedbed up to "
                        f"{version} has"
                    )
            else:
                current[renamed.get(name, name)] = to_tuples(value)
        kinds = [current.get(kind, born) for kind, born in BORN_KINDS.items()]
        needed = " and ".join(str(Origin(name, *origin)) for name, origin in plugins.items())
        if kinds[0] not in TASK_SETTINGS or kinds[1] not in MODEL_SETTINGS:
            raise UnreadableSettings(
                f"it needs {needed}; load it with --plugin" if needed
                else f"it is a {kinds[1]} on task {kinds[0]}, which this version of seedbed does not know"
            )  # fmt: skip
        fields = setting_fields(*kinds)
        if unknown := [name for name in current if name not in fields]:
            raise UnreadableSettings(f"this version of seedbed does not know its settings {', '.join(unknown)}")
        born = {name: traits_of(field).born for name, field in fields.items() if name not in BORN_KINDS}
        try:
            translated = {
                name: traits_of(fields[name]).current_value(value) for name, value in (born | current).items()
            }
            whole = cls.from_flat(translated)
            return cls.from_flat({name: value for name, value in whole.flat().items() if whole.is_active(name)})
        except InvalidSettings as error:
            raise UnreadableSettings(
                f"it needs {needed}; load it with --plugin" if needed
                else f"this version of seedbed does not accept its values of {', '.join(error.names)}"
            ) from error  # fmt: skip

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

        Names and values are called what they were called at birth. So a later default, a new name of a setting or of a
        value, another order of the settings, or a setting that is added with its old behaviour as the birth default,
        leaves this as it is.
        """
        found = {}
        for name, field in setting_fields(self.task.kind, self.model.kind).items():
            traits = traits_of(field)
            value = traits.birth_value(self.get(name))
            if value != BORN_KINDS.get(name, traits.born) and self.is_active(name):
                found[traits.former_names[0] if traits.former_names else name] = value
        if origins := self.origins():
            found["plugins"] = origins
        return found

    def origins(self) -> dict[str, list[str]]:
        """Version and source digest of each plugin that a kind of this run comes from, by the plugin's name."""
        kinds = {"task": self.task.kind, "model": self.model.kind, "optimizer": self.train.optimizer}
        kinds["positions"] = self.get("model.positions")
        used = [KIND_ORIGINS[part, kind] for part, kind in kinds.items() if (part, kind) in KIND_ORIGINS]
        return {origin.name: [origin.version, origin.digest] for origin in used}

    def to_stored(self) -> dict[str, Value]:
        """All settings as a store keeps them, and the plugins that they need; `from_stored` reads it."""
        origins = self.origins()
        return self.flat() | ({"plugins": origins} if origins else {})

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
        if train.epochs is None and not self.task.whole_epochs:
            return train.steps
        per_epoch = self.updates_per_epoch(info)
        return per_epoch * (-(-train.steps // per_epoch) if train.epochs is None else train.epochs)

    def updates_per_epoch(self, info: DatasetInfo | None = None) -> int:
        """Updates in one pass over the training set, the last one possibly smaller."""
        if (n_train := self._n_train(info)) is None:
            raise ValueError(f"an epoch of task.kind = {self.task.kind} is known only with its dataset's info")
        return -(-n_train // self.samples_per_update(info))

    def _n_train(self, info: DatasetInfo | None) -> int | None:
        counted: int | None = self.task.count_train_samples()
        return info.n_train if counted is None and info is not None else counted

    def _tokens_per_sample(self, info: DatasetInfo | None) -> float:
        return float(self.task.mean_sample_tokens()) if info is None else info.mean_sample_tokens

    # ---- conflicts ----

    def conflicts(self) -> list[Conflict]:
        """Conflicting settings: the one to change, and why."""
        return [
            *self.task.conflicts(),
            *self.model.conflicts(),
            *self._task_model_conflicts(),
            *self._train_conflicts(),
        ]

    def _task_model_conflicts(self) -> Iterator[Conflict]:
        """A task that the model cannot learn."""
        task, model = self.task, self.model
        if task.predicts != model.predicts:
            output = {"label": "labels", "next_token": "the next token"}
            able = [kind for kind, group in MODEL_SETTINGS.items() if group.predicts == task.predicts]
            yield (
                "model.kind",
                f"model.kind = {model.kind} predicts {output[model.predicts]} only; "
                f"task.kind = {task.kind} needs {' or '.join(able)}",
            )

    def _train_conflicts(self) -> Iterator[Conflict]:
        train = self.train
        given = [name for name in TRAINING_BUDGETS if name.removeprefix("train.") in train.model_fields_set]
        given = [name for name in given if getattr(train, name.removeprefix("train.")) is not None]
        if len(given) > 1:
            values = " and ".join(f"{name} = {getattr(train, name.removeprefix('train.'))}" for name in given)
            yield given[-1], f"{values} both say how long to train; give one"
        elif given in ([], ["train.steps"]) and train.warmup > train.steps:
            yield "train.warmup", f"train.warmup = {train.warmup} is longer than train.steps = {train.steps}"
        monitored = {"train.plateau_metric": "train.schedule", "train.stop_metric": "train.stop_after"}
        for name, cause in monitored.items():
            metric = self.get(name)
            able = {"train", "running"} if metric == "train/loss" else {metric.partition("/")[0]}
            if self.is_active(name) and not able.intersection(train.eval_sets):
                found = f"train.eval_sets = {json.dumps(train.eval_sets)}"
                yield "train.eval_sets", f"{found} lacks {metric}, which {cause} = {self.get(cause)} monitors"


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
        first, traits = found[name][0], [traits_of(field) for field in found[name]]
        labels = {value: label for one in traits for value, label in one.value_labels.items()}
        found[name] = (
            FieldInfo(
                annotation=cast(Any, Literal[choices]),
                default=choices[0],
                description=first.description,
                json_schema_extra=cast(Any, {"traits": replace(traits[0], value_labels=labels)}),
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
    found, wanted = to_tuples(found), to_tuples(wanted)
    if found == wanted or found == (wanted,):
        return True
    if not isinstance(wanted, tuple):
        return False
    if isinstance(found, tuple):
        return any(isinstance(one, tuple) and found == one for one in wanted)
    return found in wanted


def to_tuples(value: Value) -> Value:
    """The value with tuples for lists at every depth, as settings hold them."""
    return tuple(map(to_tuples, value)) if isinstance(value, list | tuple) else value


@cache
def _type_adapter(name: str) -> TypeAdapter[Value]:
    """Accepts a value if any task or model kind accepts it for this setting."""
    kinds: list[Any] = [Annotated[field.annotation, field] for field in all_settings()[name]]
    accepted: Any = kinds[0]
    for kind in kinds[1:]:
        accepted = accepted | kind
    return TypeAdapter(accepted, config=ConfigDict(strict=True, allow_inf_nan=False))


def whole_number(name: str, value: Value) -> Value:
    """1e3 as 1000, where a setting accepts whole numbers only; any other value as it is.

    >>> whole_number("train.steps", 1e3), whole_number("train.lr", 1.0), whole_number("train.steps", 2.5)
    (1000, 1.0, 2.5)
    """
    if not isinstance(value, float) or not value.is_integer() or abs(value) >= 2**53:
        return value
    return value if check_value(name, value) is None or check_value(name, int(value)) else int(value)


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
        choices = ", ".join(json.dumps(choice) for choice in get_args(annotation))
        return f"one of {choices}" if len(get_args(annotation)) > 1 else choices
    if get_origin(annotation) is tuple:
        inner, *rest = get_args(annotation)
        items = _describe_type(inner, [])
        plurals = {
            "a whole number": "whole numbers",
            "a number": "numbers",
            "a text": "texts",
            "one of": "values among",
        }
        for one, many in plurals.items():
            items = items.replace(one, many)
        return f"a list of {'' if rest == [...] else f'{len(rest) + 1} '}{items}"
    if get_origin(annotation) in (Union, UnionType):
        described = [_describe_type(one, metadata) for one in get_args(annotation) if one is not NoneType]
        return " or ".join(dict.fromkeys(described))
    if one_of := [entry for entry in metadata if isinstance(entry, OneOf)]:
        return str(one_of[0])
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
