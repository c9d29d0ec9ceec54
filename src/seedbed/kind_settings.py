"""The settings of the built-in models; no torch.

Each group registers itself with `settings.py`, which looks kinds up by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final, Literal

from seedbed.settings import (
    Conflict,
    Fraction,
    ModelSettings,
    PositiveInt,
    ShortText,
    register_settings,
    setting,
    when,
    when_set,
    when_unset,
)

InitScheme = Literal["library", "normal-0.02", "xavier-normal", "xavier-uniform", "orthogonal"]


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
