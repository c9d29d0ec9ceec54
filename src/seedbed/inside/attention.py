"""Attention of a text by a trained run; of an LSTM, which has none, how much each token's gradient tells.

    maps = attention_of(seedbed.load("3f2a"), "12 + 8 = 20")
    maps.weights                          # (layers, heads, T, T), every row sums to 1

An encoder reads its text padded to its context, as in training.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from seedbed.data.text import PAD
from seedbed.errors import UsageError
from seedbed.generate.equations import Equations
from seedbed.generate.load import Given, Loaded
from seedbed.inside.maps import Floats, Maps
from seedbed.models.encoder import Encoder
from seedbed.models.gpt import Stream
from seedbed.models.taps import Taps, attention_patterns

MOST_TOKENS = 1024  # a map has as many cells as their square


def attention_of(loaded: Loaded, given: Given) -> Maps:
    """The maps of every layer and head; of an LSTM one map, of its input gradients."""
    ids, n = _padded(loaded, loaded.encode(given))
    tokens = torch.from_numpy(ids)[None, None]
    if isinstance(loaded.model, Stream):
        found = torch.stack([pattern[0, 0] for pattern in attention_patterns(loaded.model, tokens)])
        weights: Floats = found.double().numpy()
    else:
        weights = saliency(loaded, tokens)[None, None]
    return Maps(
        run=loaded.run.id,
        step=loaded.step,
        text=given if isinstance(given, str) else loaded.tokens.decode(ids[:n]),
        kind="attention" if isinstance(loaded.model, Stream) else "input gradient",
        pieces=pieces_of(loaded, ids),
        padding=tuple(place >= n for place in range(len(ids))),
        weights=weights,
        layers=tuple(range(weights.shape[0])),
        heads=tuple(range(weights.shape[1])),
    )


def saliency(loaded: Loaded, tokens: Int[Tensor, "1 1 T"]) -> Floats:
    """How much the likeliest next token at t hangs on the vector of token s: (T, S) gradient norms, rows sum to 1."""
    model = loaded.model.eval()
    held: list[Tensor] = []

    def watched(value: Tensor) -> Tensor:
        held.append(value.detach().requires_grad_())
        return held[0]

    with torch.enable_grad():
        best = model(tokens, taps=Taps(replace={"embed": watched}))[0, 0].log_softmax(-1).amax(-1)
        (found,) = torch.autograd.grad(best, held[0], torch.eye(len(best)), is_grads_batched=True)
    norms: Float[Tensor, "T S"] = found[:, 0, 0].norm(dim=-1).double()
    total = norms.sum(-1, keepdim=True)
    # Where nothing is felt any more (a saturated softmax), every token the model has read counts the same.
    even = torch.ones_like(norms).tril()
    return torch.where(total > 0, norms / total.clamp(min=1e-300), even / even.sum(-1, keepdim=True)).numpy()


def pieces_of(loaded: Loaded, ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[str, ...]:
    """The text of each token where it stands."""
    if isinstance(loaded.tokens, Equations):
        return tuple(f"{loaded.tokens.texts[one]} " for one in ids)
    decoder = loaded.tokens.decoder()
    return tuple(decoder.feed([int(one)]) for one in ids)


def _padded(
    loaded: Loaded, ids: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], int]:
    """The ids as the model reads them, and how many are the text's own."""
    has_end = isinstance(loaded.model, Encoder) or getattr(loaded.model, "position_table", None) is not None
    most = loaded.context if has_end else MOST_TOKENS
    if not 1 <= len(ids) <= most:
        raise UsageError(f"the text has {len(ids)} tokens; attention is shown of 1 to {most}: give a part of it")
    if isinstance(loaded.model, Encoder):
        return np.pad(ids, (0, most - len(ids)), constant_values=PAD), len(ids)
    return ids, len(ids)
