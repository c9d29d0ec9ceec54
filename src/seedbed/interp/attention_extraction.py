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

from seedbed.data.tokenizers import PAD_ID
from seedbed.errors import UsageError
from seedbed.interp.text_attention import Floats, TextAttention
from seedbed.models.encoder import Encoder
from seedbed.models.gpt import TransformerBackbone
from seedbed.models.hooks import Hooks, attention_patterns
from seedbed.sampling.equation_tokenizer import EquationTokenizer
from seedbed.sampling.loaded_run import LoadedRun, TextOrIds

MAX_ATTENTION_TOKENS = 1024  # a map has as many cells as their square


def compute_attention(loaded: LoadedRun, text: TextOrIds) -> TextAttention:
    """The maps of every layer and head; of an LSTM one map, of its input gradients."""
    ids, n = _pad_ids(loaded, loaded.encode(text))
    tokens = torch.from_numpy(ids)[None, None]
    if isinstance(loaded.model, TransformerBackbone):
        found = torch.stack([pattern[0, 0] for pattern in attention_patterns(loaded.model, tokens)])
        weights: Floats = found.double().numpy()
    else:
        weights = input_gradient_saliency(loaded, tokens)[None, None]
    return TextAttention(
        run=loaded.run.id,
        step=loaded.step,
        text=text if isinstance(text, str) else loaded.tokenizer.decode(ids[:n]),
        kind="attention" if isinstance(loaded.model, TransformerBackbone) else "input gradient",
        pieces=decode_pieces(loaded, ids),
        padding=tuple(place >= n for place in range(len(ids))),
        weights=weights,
        layers=tuple(range(weights.shape[0])),
        heads=tuple(range(weights.shape[1])),
    )


def input_gradient_saliency(loaded: LoadedRun, tokens: Int[Tensor, "1 1 T"]) -> Floats:
    """How much the likeliest next token at t hangs on the vector of token s: (T, S) gradient norms, rows sum to 1."""
    model = loaded.model.eval()
    held: list[Tensor] = []

    def watched(value: Tensor) -> Tensor:
        held.append(value.detach().requires_grad_())
        return held[0]

    with torch.enable_grad():
        best = model(tokens, taps=Hooks(replace={"embed": watched}))[0, 0].log_softmax(-1).amax(-1)
        (found,) = torch.autograd.grad(best, held[0], torch.eye(len(best)), is_grads_batched=True)
    norms: Float[Tensor, "T S"] = found[:, 0, 0].norm(dim=-1).double()
    total = norms.sum(-1, keepdim=True)
    # Where nothing is felt any more (a saturated softmax), every token the model has read counts the same.
    even = torch.ones_like(norms).tril()
    return torch.where(total > 0, norms / total.clamp(min=1e-300), even / even.sum(-1, keepdim=True)).numpy()


def decode_pieces(loaded: LoadedRun, ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[str, ...]:
    """The text of each token where it stands."""
    if isinstance(loaded.tokenizer, EquationTokenizer):
        return tuple(f"{loaded.tokenizer.texts[one]} " for one in ids)
    decoder = loaded.tokenizer.decoder()
    return tuple(decoder.feed([int(one)]) for one in ids)


def _pad_ids(
    loaded: LoadedRun, ids: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], int]:
    """The ids as the model reads them, and how many are the text's own."""
    has_end = isinstance(loaded.model, Encoder) or getattr(loaded.model, "position_table", None) is not None
    most = loaded.context if has_end else MAX_ATTENTION_TOKENS
    if not 1 <= len(ids) <= most:
        raise UsageError(f"the text has {len(ids)} tokens; attention is shown of 1 to {most}: give a part of it")
    if isinstance(loaded.model, Encoder):
        return np.pad(ids, (0, most - len(ids)), constant_values=PAD_ID), len(ids)
    return ids, len(ids)
