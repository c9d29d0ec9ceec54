"""Attention of a trained run on a text; input-gradient saliency for a model that has no attention.

    attention = compute_attention(seedbed.load("3f2a"), "12 + 8 = 20")
    attention.weights                     # (layers, heads, T, T), every row sums to 1

For an encoder the text is padded to the context, as in training.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from seedbed.data.tokenizers import PAD_ID
from seedbed.errors import UsageError
from seedbed.interp.text_attention import Floats, TextAttention
from seedbed.models.hooks import Hooks, attention_patterns
from seedbed.sampling.loaded_run import LoadedRun, TextOrIds

MAX_ATTENTION_TOKENS = 1024  # a map has the square of this many cells


def compute_attention(loaded: LoadedRun, text: TextOrIds) -> TextAttention:
    """Attention maps of every layer and head; without attention, a single map of input gradients."""
    ids, n = _pad_ids(loaded, loaded.encode(text))
    tokens = torch.from_numpy(ids)[None, None]
    has_attention = loaded.run.settings.model.has_attention
    if has_attention:
        patterns = torch.stack([pattern[0, 0] for pattern in attention_patterns(loaded.model, tokens)])
        weights: Floats = patterns.double().numpy()
    else:
        weights = input_gradient_saliency(loaded, tokens)[None, None]
    return TextAttention(
        run=loaded.run.id,
        step=loaded.step,
        text=text if isinstance(text, str) else loaded.tokenizer.decode(ids[:n]),
        kind="attention" if has_attention else "input gradient",
        pieces=decode_pieces(loaded, ids),
        padding=tuple(position >= n for position in range(len(ids))),
        weights=weights,
        layers=tuple(range(weights.shape[0])),
        heads=tuple(range(weights.shape[1])),
    )


def input_gradient_saliency(loaded: LoadedRun, tokens: Int[Tensor, "1 1 T"]) -> Floats:
    """(T, S) gradient norms of the top log-probability at t with respect to the embedding of token s; rows sum to 1."""
    model = loaded.model.eval()
    embeddings: list[Tensor] = []

    def track_gradient(value: Tensor) -> Tensor:
        embeddings.append(value.detach().requires_grad_())
        return embeddings[0]

    with torch.enable_grad():
        best = model(tokens, hooks=Hooks(replace={"embed": track_gradient}))[0, 0].log_softmax(-1).amax(-1)
        (gradients,) = torch.autograd.grad(best, embeddings[0], torch.eye(len(best)), is_grads_batched=True)
    norms: Float[Tensor, "T S"] = gradients[:, 0, 0].norm(dim=-1).double()
    total = norms.sum(-1, keepdim=True)
    # Rows whose gradients vanish (a saturated softmax) are uniform over the tokens so far.
    uniform = torch.ones_like(norms).tril()
    return torch.where(total > 0, norms / total.clamp(min=1e-300), uniform / uniform.sum(-1, keepdim=True)).numpy()


def decode_pieces(loaded: LoadedRun, ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[str, ...]:
    """Text of each token in context."""
    if loaded.run.settings.task.completes_prompts:
        return tuple(f"{loaded.tokenizer.texts[token]} " for token in ids)
    decoder = loaded.tokenizer.decoder()
    return tuple(decoder.feed([int(token)]) for token in ids)


def _pad_ids(
    loaded: LoadedRun, ids: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], int]:
    """Token ids as the model takes them (padded for an encoder), and their number without padding."""
    family = loaded.run.settings.model
    max_tokens = family.max_context(loaded.context) or MAX_ATTENTION_TOKENS
    if not 1 <= len(ids) <= max_tokens:
        raise UsageError(f"the text has {len(ids)} tokens; attention is shown for 1 to {max_tokens}: give a part of it")
    if family.pads_inputs:
        return np.pad(ids, (0, max_tokens - len(ids)), constant_values=PAD_ID), len(ids)
    return ids, len(ids)
