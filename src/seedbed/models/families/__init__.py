"""The built-in model families: importing this package registers them, one line each; no torch."""

from seedbed.models.families.transformer_settings import EncoderSettings, GPTSettings  # noqa: I001  in the order of help texts
from seedbed.models.families.lstm_settings import LSTMSettings
from seedbed.models.families.gru_settings import GRUSettings

__all__ = ["EncoderSettings", "GPTSettings", "GRUSettings", "LSTMSettings"]
