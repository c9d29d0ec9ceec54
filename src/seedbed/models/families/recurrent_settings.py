"""What the recurrent families (LSTM, GRU) have in common: token table, stacked cells, output layer; no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, cast

from seedbed.models.families.base import (
    EmbeddingTable,
    Family,
    InitScheme,
    Shapes,
    count_elements,
    dropout_rate,
    frozen_embeddings,
    linear_shapes,
    output_shapes,
    positive_init_scale,
)
from seedbed.settings import Conflict, DatasetInfo, Fraction, PositiveInt, ShortText, setting, when, when_set

if TYPE_CHECKING:
    from seedbed.models.decoding import Decoder
    from seedbed.models.init import Initializer
    from seedbed.models.recurrent import RecurrentModel
    from seedbed.models.sequence_model import SequenceModel


class RecurrentSettings(Family):
    """Stacked cells that step through time; a subclass says how many gates a cell has and builds it."""

    carries_state: ClassVar[bool] = True
    uses_bf16_weights: ClassVar[bool] = False
    max_compiled_positions: ClassVar[int | None] = 16  # the compiler unrolls the recurrence
    n_gates: ClassVar[int]  # a cell's gates, the candidate included: matrices from [x; h] to h
    state_activations: ClassVar[int]  # floats that a cell saves for the backward pass, per unit of the state

    kind: str
    layers: int = setting(2, "number of stacked cells", label="layers L", ge=1, le=1_000)
    dim: int = setting(128, "width of the token table", label="width d", ge=1, le=100_000)
    hidden: PositiveInt | None = setting(None, "width of the state; unset: as dim", label="hidden width")
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
    tied: bool = setting(
        False, "output layer shares the token table; needs hidden (or projection) = dim", label="tied embeddings"
    )
    embeddings: ShortText | None = frozen_embeddings("a frozen table: an .npz file with tokens; gpt1: that of GPT-1")
    dropout: Fraction = dropout_rate("share of outputs dropped between layers while training")
    embedding_dropout: Fraction = dropout_rate("share of the first cell's inputs dropped")
    init: InitScheme = setting(
        "library",
        "how the other weights are initialised; all but library have zero biases",
        label="initialisation",
        per_run=True,
    )
    init_scale: float = positive_init_scale()

    @property
    def hidden_width(self) -> int:
        """Width of the state."""
        return self.dim if self.hidden is None else self.hidden

    @property
    def output_width(self) -> int:
        """Width of the output layer's input."""
        return self.hidden_width if self.projection is None else self.projection

    @property
    def input_widths(self) -> list[int]:
        """Width of each cell's input."""
        return [self.dim] + [self.hidden_width] * (self.layers - 1)

    def conflicts(self) -> Iterator[Conflict]:
        if self.tied and self.output_width != self.dim:
            wide = "hidden" if self.projection is None else "projection"
            yield "model.tied", f"model.tied needs model.{wide} = model.dim, not {self.output_width} and {self.dim}"

    def embedding_tables(self, info: DatasetInfo) -> dict[str, EmbeddingTable]:
        return {"tokens": EmbeddingTable("embed", info.vocab_size, self.dim)}

    def layer_shapes(self, info: DatasetInfo) -> Shapes:
        return self._body_shapes() | output_shapes(self.output_width, info.vocab_size, self.output_bias, self.tied)

    def _body_shapes(self) -> Shapes:
        """The cells, and the projection if there is one."""
        hidden, d_out, shapes = self.hidden_width, self.n_gates * self.hidden_width, Shapes()
        for i, d_in in enumerate(self.input_widths):
            shapes |= linear_shapes(f"cells.{i}.input", d_in, d_out, self.gate_biases >= 1)
            shapes |= linear_shapes(f"cells.{i}.state", hidden, d_out, self.gate_biases == 2)
        return (
            shapes if self.projection is None else shapes | linear_shapes("projection", hidden, self.projection, True)
        )

    def forward_flops(self, info: DatasetInfo, n_scored: int) -> float:
        body = 2.0 * info.context_length * count_elements(self._body_shapes())
        return body + 2.0 * n_scored * self.output_width * info.vocab_size

    def activations_per_token(self, info: DatasetInfo) -> int:
        cells = self.layers * (self.dim + self.state_activations * self.hidden_width)
        return self.dim + cells + 2 * (self.projection or 0) + 2 * info.vocab_size  # logits and their softmax

    def widest_activations(self) -> int:
        return 2 * self.n_gates * self.hidden_width  # the gates before and after their activation functions

    def initializers(self, model: SequenceModel) -> Mapping[str, Initializer]:
        """With `init = library`: Xavier for each gate as one matrix over [x; h] with zero biases, or as torch's own."""
        from math import sqrt

        from seedbed.models.init import constant, uniform

        if self.init != "library":
            return {}
        found: dict[str, Initializer] = {}
        for i, cell in enumerate(cast("RecurrentModel", model).cells):
            for name, _ in cell.named_parameters():
                if self.gate_init == "library":
                    found[f"cells.{i}.{name}"] = uniform(1 / sqrt(self.hidden_width))
                elif name.endswith("bias"):
                    found[f"cells.{i}.{name}"] = constant(0.0)
                else:
                    found[f"cells.{i}.{name}"] = uniform(sqrt(6 / (self.input_widths[i] + 2 * self.hidden_width)))
        return found

    def make_decoder(self, model: SequenceModel, n_runs: int, n_samples: int, capacity: int) -> Decoder:
        from seedbed.models.decoding import StatefulDecoder

        return StatefulDecoder(cast("RecurrentModel", model), n_samples)

    def make_static_decoder(self, model: SequenceModel, n_runs: int, n_samples: int, capacity: int) -> Decoder:
        from seedbed.models.decoding import StaticStatefulDecoder

        return StaticStatefulDecoder(cast("RecurrentModel", model), n_runs, n_samples)
