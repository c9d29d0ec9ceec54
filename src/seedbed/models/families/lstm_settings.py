"""The family of stacked LSTMs; no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from seedbed.models.families.base import GateHooks
from seedbed.models.families.recurrent_settings import RecurrentSettings
from seedbed.settings import DatasetInfo, register_settings, setting

if TYPE_CHECKING:
    from seedbed.models.lstm import LSTM


@register_settings
class LSTMSettings(RecurrentSettings):
    """Stacked LSTM written from cells."""

    n_gates: ClassVar[int] = 4
    state_activations: ClassVar[int] = 12  # h, the four gates before and after, c, tanh c and the new h
    hidden_hooks: ClassVar[str] = "lstm.*.out"
    gate_hooks: ClassVar[GateHooks | None] = GateHooks("lstm", ("i", "f", "g", "o"), "g", "cell", "c")

    kind: Literal["lstm"] = setting("lstm", "which model", born="gpt", label="model", value_labels={"lstm": "LSTM"})

    def build(self, info: DatasetInfo) -> LSTM:
        from seedbed.models.lstm import LSTM

        return LSTM(self, info.vocab_size, info.padding_id)
