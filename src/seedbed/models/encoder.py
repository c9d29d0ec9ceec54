"""Encoder classifier: bidirectional blocks, mean pooling over positions, a hidden layer, one logit per label.

Padding tokens are attended to and pooled like any other token, as in the speeches report.
"""

from __future__ import annotations

from torch import Tensor, nn

from seedbed.models.families.transformer_settings import EncoderSettings
from seedbed.models.gpt import TransformerBackbone
from seedbed.models.hooks import NO_HOOKS, Hooks
from seedbed.models.layers import ACTIVATIONS, BatchNorm, Dropout, Linear, OutputLayer, Positions


class Classifier(nn.Module):
    def __init__(self, settings: EncoderSettings, classes: int) -> None:
        super().__init__()
        self.hidden = Linear(settings.dim, settings.classifier_hidden)
        self.norm = BatchNorm(settings.classifier_hidden) if settings.batch_norm else None
        self.activation = ACTIVATIONS[settings.activation]
        self.dropout = Dropout("classifier_dropout")
        self.output = OutputLayer(settings.classifier_hidden, classes, settings.output_bias)

    def forward(self, x: Tensor, sample_mask: Tensor | None, hooks: Hooks) -> Tensor:
        x = self.hidden(x)
        x = x if self.norm is None else self.norm(x, sample_mask)
        return self.output(self.dropout(hooks("classifier.hidden", self.activation(x))))


class Encoder(TransformerBackbone):
    def __init__(self, settings: EncoderSettings, vocabulary: int, context: int, classes: int) -> None:
        super().__init__(settings, vocabulary, context)
        self.classifier = Classifier(settings, classes)

    def forward(
        self, tokens: Tensor, positions: Positions = None, hooks: Hooks = NO_HOOKS, sample_mask: Tensor | None = None
    ) -> Tensor:
        """Label logits (R, B, 1, C); samples outside `sample_mask` do not enter BatchNorm's statistics.

        `positions` is part of every model's signature and is ignored: all positions are pooled.
        """
        x = self.run_blocks(hooks("embed", self.embed_tokens(tokens, hooks=hooks)), None, None, hooks)
        return hooks("logits", self.compute_logits(x, sample_mask, hooks))

    def compute_logits(self, x: Tensor, sample_mask: Tensor | None = None, hooks: Hooks = NO_HOOKS) -> Tensor:
        pooled = hooks("pooled", x.mean(-2, keepdim=True))
        return self.classifier(pooled, sample_mask, hooks)
