"""Families of transformers: the decoder-only GPT and the encoder classifier; no torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, cast

from seedbed.errors import UsageError
from seedbed.models.families.base import (
    EmbeddingTable,
    Family,
    InitScheme,
    Shapes,
    dropout_rate,
    frozen_embeddings,
    linear_shapes,
    norm_shapes,
    output_shapes,
    positive_init_scale,
)
from seedbed.settings import (
    Conflict,
    DatasetInfo,
    Fraction,
    OneOf,
    PositiveInt,
    ShortText,
    register_settings,
    setting,
    when,
    when_unset,
)

if TYPE_CHECKING:
    from seedbed.models.decoding import Decoder
    from seedbed.models.encoder import Encoder
    from seedbed.models.gpt import GPT
    from seedbed.models.sequence_model import SequenceModel


# Position encodings by name; `models.positions` has the class of each, and registers further ones here.
POSITION_KINDS: Final[dict[str, None]] = dict.fromkeys(("sinusoidal", "learned", "alibi", "rotary", "t5", "none"))
PositionKind = Annotated[str, OneOf(POSITION_KINDS)]
N_T5_BUCKETS: Final = 32  # as in T5; half of them for single distances


class TransformerSettings(Family):
    """What decoder and encoder have in common."""

    has_attention: ClassVar[bool] = True
    hidden_hooks: ClassVar[str] = "blocks.*.mlp.post"

    kind: Literal["gpt", "encoder"]
    layers: int = setting(2, "number of blocks", label="layers L", ge=1, le=1_000)
    dim: int = setting(128, "width of the residual stream", label="width d", ge=1, le=100_000)
    heads: PositiveInt = setting(4, "attention heads; must divide dim", label="attention heads")
    mlp_multiplier: int = setting(
        4, "hidden width of the MLP over dim", active_when=when_unset("model.hidden"), ge=1, le=1_000
    )
    hidden: PositiveInt | None = setting(
        None, "hidden width of the MLP; unset: mlp_multiplier times dim", label="hidden width"
    )
    activation: Literal["gelu", "relu"] = setting("gelu", "nonlinearity of the MLP")
    norm: Literal["post", "pre"] = setting(
        "post", "LayerNorm after the residual sum, or before attention and MLP", label="LayerNorm"
    )
    final_norm: bool = setting(False, "one more LayerNorm before the output")
    positions: PositionKind = setting(
        "sinusoidal",
        "position encoding; alibi, rotary and none have no table; t5 learns a bias per head and distance bucket",
        label="position encoding",
        value_labels={"alibi": "ALiBi", "t5": "T5 position bias"},
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
    embeddings: ShortText | None = frozen_embeddings(
        "frozen tables: an .npz file with tokens, and positions where learned; gpt1: those of GPT-1"
    )
    dropout: Fraction = dropout_rate("share of MLP outputs dropped while training")
    embedding_dropout: Fraction = dropout_rate("share of the first block's inputs dropped")
    attention_dropout: Fraction = dropout_rate("share of attention weights dropped")
    mlp_dropout: Fraction = dropout_rate("share of the MLP's hidden units dropped")
    residual_dropout: Fraction = dropout_rate("share dropped of what attention and MLP add to the residual stream")
    init: InitScheme = setting(
        "library", "how weights are initialised; all but library have zero biases", label="initialisation", per_run=True
    )
    init_scale: float = positive_init_scale()

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

    def embedding_tables(self, info: DatasetInfo) -> dict[str, EmbeddingTable]:
        tables = {"tokens": EmbeddingTable("embed", info.vocab_size, self.dim)}
        if self.positions == "learned":
            tables["positions"] = EmbeddingTable("position_table", info.context_length, self.dim)
        return tables

    def layer_shapes(self, info: DatasetInfo) -> Shapes:
        """All blocks, the position bias that they share, and the final LayerNorm, if there are such."""
        block = self._block_shapes()
        shapes: Shapes = {"position_table.weight": (N_T5_BUCKETS, self.heads)} if self.positions == "t5" else {}
        shapes |= {f"blocks.{i}.{name}": shape for i in range(self.layers) for name, shape in block.items()}
        return shapes | (norm_shapes("final_norm", self.dim) if self.final_norm else {})

    def _block_shapes(self) -> Shapes:
        """Attention, a two-layer MLP and two LayerNorms."""
        return {
            **linear_shapes("attention.qkv", self.dim, 3 * self.dim, self.has_qkv_bias),
            **linear_shapes("attention.out", self.dim, self.dim, self.attention_bias),
            **linear_shapes("mlp.up", self.dim, self.mlp_width, self.mlp_bias),
            **linear_shapes("mlp.down", self.mlp_width, self.dim, self.mlp_bias),
            **norm_shapes("norm1", self.dim),
            **norm_shapes("norm2", self.dim),
        }

    def _block_flops(self, length: int) -> float:
        """Two FLOPs per weight and position, plus attention's two matmuls, in all blocks."""
        weights = 4 * self.dim**2 + 2 * self.dim * self.mlp_width
        return self.layers * (2.0 * length * weights + 4.0 * length**2 * self.dim)

    def activations_per_token(self, info: DatasetInfo) -> int:
        # a block saves its input, q, k, v, head outputs, two residual sums, two norms, and the MLP's hidden layer twice
        blocks = self.layers * (9 * self.dim + 2 * self.mlp_width)
        return self.dim + blocks + self.attention_scores_per_token(info)

    def attention_scores_per_token(self, info: DatasetInfo) -> int:
        return self.layers * 2 * self.heads * info.context_length

    def widest_activations(self) -> int:
        return 3 * self.dim + self.mlp_width  # the QKV projection and the MLP's hidden layer

    def max_context(self, context: int) -> int | None:
        return context if self.positions == "learned" else None


@register_settings
class GPTSettings(TransformerSettings):
    """Decoder-only transformer."""

    kind: Literal["gpt"] = setting("gpt", "which model", label="model", value_labels={"gpt": "GPT"})
    tied: bool = setting(False, "output layer shares the token table", label="tied embeddings")

    def layer_shapes(self, info: DatasetInfo) -> Shapes:
        return super().layer_shapes(info) | output_shapes(self.dim, info.vocab_size, self.output_bias, self.tied)

    def forward_flops(self, info: DatasetInfo, n_scored: int) -> float:
        return self._block_flops(info.context_length) + 2.0 * n_scored * self.dim * info.vocab_size

    def activations_per_token(self, info: DatasetInfo) -> int:
        return super().activations_per_token(info) + 2 * info.vocab_size  # logits and their softmax

    def build(self, info: DatasetInfo) -> GPT:
        from seedbed.models.gpt import GPT

        return GPT(self, info.vocab_size, info.context_length)

    def make_decoder(self, model: SequenceModel, n_runs: int, n_samples: int, capacity: int) -> Decoder:
        from seedbed.models.fast.gpt_decoder import make_gpt_decoder

        return make_gpt_decoder(cast("GPT", model), n_runs, n_samples, capacity)

    def make_static_decoder(self, model: SequenceModel, n_runs: int, n_samples: int, capacity: int) -> Decoder | None:
        from seedbed.models.fast.gpt_decoder import StaticGPTDecoder, is_standard

        gpt = cast("GPT", model)
        return StaticGPTDecoder(gpt, n_runs, n_samples, capacity) if is_standard(gpt) else None

    def default_hop(self, context: int) -> int:
        # only ALiBi is made for contexts longer than those seen in training (Press et al. 2021)
        return 0 if self.positions == "alibi" else max(1, context // 4)


@register_settings
class EncoderSettings(TransformerSettings):
    """Transformer without a mask, averaged over positions (padding included), and a two-layer classifier."""

    predicts: ClassVar[Literal["next_token", "label"]] = "label"
    causal: ClassVar[bool] = False
    caches_prefixes: ClassVar[bool] = False
    pads_inputs: ClassVar[bool] = True

    kind: Literal["encoder"] = setting("encoder", "which model", born="gpt", label="model")
    activation: Literal["gelu", "relu"] = setting("gelu", "nonlinearity of the MLP and of the classifier")
    classifier_hidden: PositiveInt = setting(100, "width of the classifier's hidden layer", label="classifier width")
    classifier_dropout: Fraction = dropout_rate("share of the classifier's hidden units dropped")
    batch_norm: bool = setting(False, "BatchNorm over the classifier's hidden layer")

    def layer_shapes(self, info: DatasetInfo) -> Shapes:
        """The blocks, and the classifier: hidden layer, BatchNorm if enabled, output layer."""
        width = self.classifier_hidden
        classifier = linear_shapes("hidden", self.dim, width, True)
        classifier |= norm_shapes("norm", width) if self.batch_norm else {}
        classifier |= linear_shapes("output", width, info.n_classes, self.output_bias)
        return super().layer_shapes(info) | {f"classifier.{name}": shape for name, shape in classifier.items()}

    def forward_flops(self, info: DatasetInfo, n_scored: int) -> float:
        return self._block_flops(info.context_length) + 2.0 * self.dim * self.classifier_hidden

    def max_context(self, context: int) -> int | None:
        return context

    def build(self, info: DatasetInfo) -> Encoder:
        from seedbed.models.encoder import Encoder

        return Encoder(self, info.vocab_size, info.context_length, info.n_classes)

    def make_decoder(self, model: SequenceModel, n_runs: int, n_samples: int, capacity: int) -> Decoder:
        raise UsageError(
            "this model predicts labels and generates no text; sample from one that predicts the next token"
        )
