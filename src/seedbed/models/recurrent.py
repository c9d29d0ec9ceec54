"""What the recurrent models share: token embedding, stacked cells that step through time, output layer."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from seedbed.models.families.recurrent_settings import RecurrentSettings
from seedbed.models.hooks import NO_HOOKS, Hooks
from seedbed.models.layers import (
    ACTIVATIONS,
    Dropout,
    Embedding,
    Linear,
    OutputLayer,
    Positions,
    select_positions,
)
from seedbed.models.sequence_model import LayerCache, SequenceModel


class RecurrentModel(SequenceModel):
    """A subclass makes the cells; each returns its outputs at all positions, and its state after the last one."""

    def __init__(self, settings: RecurrentSettings, vocabulary: int, padding_idx: int | None) -> None:
        super().__init__(settings)
        self.hook_prefix = settings.kind
        self.embed = Embedding(vocabulary, settings.dim, padding_idx, frozen=settings.embeddings is not None)
        self.embed_dropout = Dropout("embedding_dropout")
        self.cells = nn.ModuleList(
            self.make_cell(d_in, settings.hidden_width, settings.gate_biases) for d_in in settings.input_widths
        )
        self.dropouts = nn.ModuleList(Dropout() for _ in settings.input_widths[1:])
        self.projection = None if settings.projection is None else Linear(settings.hidden_width, settings.projection)
        self.activation = ACTIVATIONS[settings.activation]
        tied_embedding = self.embed if settings.tied else None
        self.output = OutputLayer(settings.output_width, vocabulary, settings.output_bias, tied_embedding)

    def make_cell(self, d_in: int, hidden: int, n_biases: int) -> nn.Module:
        raise NotImplementedError

    def forward(
        self,
        tokens: Tensor,
        positions: Positions = None,
        hooks: Hooks = NO_HOOKS,
        past: Sequence[LayerCache] | None = None,
    ) -> Tensor:
        """Next-token logits at the requested positions; `past` is the state after the preceding tokens (`prefill`)."""
        outputs, _ = self._run_cells(tokens, past, hooks)
        return hooks("logits", self._compute_logits(select_positions(outputs, positions), hooks))

    def prefill(self, tokens: Tensor) -> list[LayerCache]:
        """State of each layer after these tokens."""
        return self._run_cells(tokens, None, NO_HOOKS)[1]

    def step(self, tokens: Tensor, past: Sequence[LayerCache] | None) -> tuple[Tensor, list[LayerCache]]:
        """Logits of these tokens and the state after them, without dropout."""
        x, states = self.embed(tokens), []
        for i, cell in enumerate(self.cells):
            x, state = cell(x, None if past is None else past[i], NO_HOOKS, "")
            states.append(state)
        return self._compute_logits(x, NO_HOOKS), states

    def _run_cells(
        self, tokens: Tensor, past: Sequence[LayerCache] | None, hooks: Hooks
    ) -> tuple[Tensor, list[LayerCache]]:
        x, states = hooks("embed", self.embed_dropout(self.embed(tokens))), []
        for i, cell in enumerate(self.cells):
            inputs = self.dropouts[i - 1](x) if i else x
            x, state = cell(inputs, None if past is None else past[i], hooks, f"{self.hook_prefix}.{i}")
            states.append(state)
        return x, states

    def _compute_logits(self, x: Tensor, hooks: Hooks) -> Tensor:
        if self.projection is not None:
            x = hooks("projection", self.activation(self.projection(x)))
        return self.output(x)
