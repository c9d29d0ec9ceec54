"""The family of stacked GRUs; no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from seedbed.models.families.base import GateHooks
from seedbed.models.families.recurrent_settings import RecurrentSettings
from seedbed.settings import DatasetInfo, register_settings, setting, when

if TYPE_CHECKING:
    from seedbed.models.gru import GRU


@register_settings
class GRUSettings(RecurrentSettings):
    """Stacked gated recurrent units written from cells, in torch.nn.GRU's variant."""

    n_gates: ClassVar[int] = 3
    state_activations: ClassVar[int] = 9  # h, the gates before and after, the state's part of n, and the new h
    hidden_hooks: ClassVar[str] = "gru.*.out"
    gate_hooks: ClassVar[GateHooks | None] = GateHooks("gru", ("r", "z", "n"), "n", "out", "h")

    kind: Literal["gru"] = setting("gru", "which model", born="gpt", label="model", value_labels={"gru": "GRU"})
    gate_biases: Literal[0, 1, 2] = setting(2, "bias vectors per gate: none, one, or two as in nn.GRU")
    gate_init: Literal["xavier-uniform", "library"] = setting(
        "xavier-uniform",
        "how gates are initialised: Xavier on [x; h] with zero biases, or as nn.GRU does",
        per_run=True,
        active_when=when("model.init", "library"),
    )

    def build(self, info: DatasetInfo) -> GRU:
        from seedbed.models.gru import GRU

        return GRU(self, info.vocab_size, info.padding_id)
