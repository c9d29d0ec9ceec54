"""Encoder and classifier: blocks without a mask, the mean over all positions, a hidden layer, one logit a label.

Padding is read and averaged as any other token, as in the speeches report.
"""

from __future__ import annotations

from torch import Tensor, nn

from seedbed.models.gpt import TransformerBackbone
from seedbed.models.hooks import NO_HOOKS, Hooks
from seedbed.models.layers import ACTIVATIONS, BatchNorm, Dropout, Linear, OutputLayer, Positions
from seedbed.settings import EncoderSettings as EncoderSettings


class Classifier(nn.Module):
    def __init__(self, dials: EncoderSettings, classes: int) -> None:
        super().__init__()
        self.hidden = Linear(dials.dim, dials.classifier_hidden)
        self.norm = BatchNorm(dials.classifier_hidden) if dials.batch_norm else None
        self.activation = ACTIVATIONS[dials.activation]
        self.dropout = Dropout("classifier_dropout")
        self.output = OutputLayer(dials.classifier_hidden, classes, dials.output_bias)

    def forward(self, x: Tensor, counted: Tensor | None, taps: Hooks) -> Tensor:
        x = self.hidden(x)
        x = x if self.norm is None else self.norm(x, counted)
        return self.output(self.dropout(taps("classifier.hidden", self.activation(x))))


class Encoder(TransformerBackbone):
    def __init__(self, dials: EncoderSettings, vocabulary: int, context: int, classes: int) -> None:
        super().__init__(dials, vocabulary, context, causal=False)
        self.classifier = Classifier(dials, classes)

    def forward(
        self, tokens: Tensor, at: Positions = None, taps: Hooks = NO_HOOKS, counted: Tensor | None = None
    ) -> Tensor:
        """Logits of the labels, as if at one position; samples that are not `counted` enter no batch statistic.

        `at` is what a decoder takes: here every position is averaged, so it chooses nothing.
        """
        x = self.run_blocks(taps("embed", self.embed_tokens(tokens, taps=taps)), None, None, taps)
        pooled = taps("pooled", x.mean(-2, keepdim=True))
        return taps("logits", self.classifier(pooled, counted, taps))
