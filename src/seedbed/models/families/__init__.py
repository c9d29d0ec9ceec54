"""The built-in model families: importing this package registers them, one line each; no torch."""

from seedbed.models.families.transformer import EncoderSettings, GPTSettings  # noqa: I001  in the order of help texts
from seedbed.models.families.lstm import LSTMSettings

__all__ = ["EncoderSettings", "GPTSettings", "LSTMSettings"]
