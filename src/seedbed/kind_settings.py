"""The settings of the built-in tasks and models; no torch.

Each group registers itself with `settings.py`, which looks kinds up by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field

from seedbed.settings import (
    Conflict,
    Fraction,
    ModelSettings,
    PositiveFraction,
    PositiveInt,
    ShortText,
    TaskSettings,
    as_tuple,
    register_settings,
    setting,
    when,
    when_set,
    when_unset,
)

OperandCounts = Annotated[tuple[Literal[2, 3], ...], BeforeValidator(as_tuple), Field(min_length=1, max_length=2)]
TextTuple = Annotated[tuple[ShortText, ...], BeforeValidator(as_tuple)]
ContextLengths = Annotated[tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...], BeforeValidator(as_tuple)]
TokenizerKind = Literal["characters", "words", "bytes", "bpe"]
InitScheme = Literal["library", "normal-0.02", "xavier-normal", "xavier-uniform", "orthogonal"]


# ---- tasks ----


@register_settings
class ArithmeticSettings(TaskSettings):
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

    whole_epochs: ClassVar[bool] = True  # as in the course's code

    def count_train_samples(self) -> int:
        return sum(self.n_train(order) for order in self.orders)

    def mean_sample_tokens(self) -> float:
        """Over the training equations of all orders."""
        n_train = {order: self.n_train(order) for order in self.orders}
        return sum(n * self.n_tokens(order) for order, n in n_train.items()) / max(1, sum(n_train.values()))

    def conflicts(self) -> Iterator[Conflict]:
        if self.operator == "/" and any(self.p % divisor == 0 for divisor in range(2, self.p)):
            yield "task.p", f"task.p = {self.p} is not prime; division by its factors has several answers"
        if len(set(self.orders)) != len(self.orders):
            yield "task.orders", f"task.orders = {list(self.orders)} names an order twice"
        for order in self.orders:
            n, n_train = self.n_equations(order), self.n_train(order)
            if n > 50_000_000:
                yield "task.p", f"task.p = {self.p} makes {n:,} equations of order {order}; at most 50,000,000"
            if n_train == 0 or (n_train == n and self.train_fraction < 1):
                empty = "training" if n_train == 0 else "validation"
                why = f"task.train_fraction = {self.train_fraction} of {n} equations leaves no {empty} sample"
                yield "task.train_fraction", why

    def n_tokens(self, order: int) -> int:
        """Tokens of an equation that the model reads: BOS, operands, operators, = and the result, but not EOS."""
        return 2 * order + 2


@register_settings
class TextSettings(TaskSettings):
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

    def mean_sample_tokens(self) -> float:
        return float(self.length)

    def conflicts(self) -> Iterator[Conflict]:
        if self.val_fraction + self.test_fraction >= 1:
            held_out = f"task.val_fraction = {self.val_fraction} and task.test_fraction = {self.test_fraction}"
            yield "task.val_fraction", f"{held_out} leave nothing to train on"


@register_settings
class LabelsSettings(TaskSettings):
    """Predict the label of a text."""

    predicts: ClassVar[Literal["next_token", "label"]] = "label"

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

    def mean_sample_tokens(self) -> float:
        return float(self.length)


# ---- models ----

MODEL_LABELS: Final = {"gpt": "GPT", "lstm": "LSTM"}


def _dropout(meaning: str) -> Any:
    return setting(0.0, meaning, per_run=True, nonzero_adds_work=True)


class TransformerSettings(ModelSettings):
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

    def conflicts(self) -> Iterator[Conflict]:
        if self.dim % self.heads:
            yield "model.heads", f"model.heads = {self.heads} does not divide model.dim = {self.dim}"
        elif self.positions == "rotary" and self.dim // self.heads % 2:
            width = f"model.dim / model.heads = {self.dim // self.heads}"
            yield "model.heads", f"{width} is odd; rotary positions rotate pairs and need an even one"
        if self.positions == "sinusoidal" and self.dim % 2:
            yield "model.dim", f"model.dim = {self.dim} is odd; sinusoidal positions need an even one"


@register_settings
class GPTSettings(TransformerSettings):
    """Decoder-only transformer."""

    kind: Literal["gpt"] = setting("gpt", "which model", label="model", value_labels=MODEL_LABELS)
    tied: bool = setting(False, "output layer shares the token table")


@register_settings
class EncoderSettings(TransformerSettings):
    """Transformer without a mask, averaged over positions (padding included), and a two-layer classifier."""

    kind: Literal["encoder"] = setting("encoder", "which model", born="gpt", label="model", value_labels=MODEL_LABELS)
    activation: Literal["gelu", "relu"] = setting("gelu", "nonlinearity of the MLP and of the classifier")
    classifier_hidden: PositiveInt = setting(100, "width of the classifier's hidden layer")
    classifier_dropout: Fraction = _dropout("share of the classifier's hidden units dropped")
    batch_norm: bool = setting(False, "BatchNorm over the classifier's hidden layer")
    predicts: ClassVar[Literal["next_token", "label"]] = "label"


@register_settings
class LSTMSettings(ModelSettings):
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

    def conflicts(self) -> Iterator[Conflict]:
        if self.tied and self.output_width != self.dim:
            wide = "hidden" if self.projection is None else "projection"
            yield "model.tied", f"model.tied needs model.{wide} = model.dim, not {self.output_width} and {self.dim}"
