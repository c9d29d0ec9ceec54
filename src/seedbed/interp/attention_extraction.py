"""Attention of a trained run on a text, or on a sample of inputs; input gradients for a model without attention.

    attention = compute_attention(seedbed.load("3f2a"), "12 + 8 = 20")
    attention.weights                     # (layers, heads, T, T), every row sums to 1

For an encoder the text is padded to the context, as in training. Averages over heads are left to `stats`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from seedbed.errors import UsageError
from seedbed.interp.text_attention import Floats, TextAttention
from seedbed.models.hooks import Hooks, attention_patterns
from seedbed.sampling.loaded_run import LoadedRun, TextOrIds
from seedbed.tasks.base import AnalysisInputs

MAX_ATTENTION_TOKENS = 1024  # a map has the square of this many cells
MAX_ATTENTION_WEIGHTS_PER_CHUNK = 1 << 24  # bounds the memory of one forward pass

Key = TypeVar("Key")


def compute_attention(loaded: LoadedRun, text: TextOrIds) -> TextAttention:
    """Attention maps of every layer and head; without attention, a single map of input gradients."""
    family, n = loaded.run.settings.model, len(loaded.encode(text))
    max_tokens = family.max_context(loaded.context) or MAX_ATTENTION_TOKENS
    if not 1 <= n <= max_tokens:
        raise UsageError(f"the text has {n} tokens; attention is shown for 1 to {max_tokens}: give a part of it")
    tokens = loaded.model_input(text)
    ids = tokens[0, 0].numpy()
    if family.has_attention:
        weights: Floats = loaded.attention(text).double().numpy()
    else:
        weights = input_gradient_saliency(loaded, tokens)[None, None]
    return TextAttention(
        run=loaded.run.id,
        step=loaded.step,
        text=text if isinstance(text, str) else loaded.tokenizer.decode(ids[:n]),
        kind="attention" if family.has_attention else "input gradient",
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


# ---- a sample of inputs ----


def iter_attention(loaded: LoadedRun, inputs: AnalysisInputs) -> Iterator[tuple[slice, Floats]]:
    """Yields chunks of inputs as a slice and their (b, L, H, T, T) attention weights."""
    settings = loaded.run.settings.model
    layers, heads = getattr(settings, "layers", 1), getattr(settings, "heads", 1)
    chunk_size = max(1, MAX_ATTENTION_WEIGHTS_PER_CHUNK // (layers * heads * inputs.tokens.shape[1] ** 2))
    for start in range(0, inputs.n_inputs, chunk_size):
        chunk = slice(start, start + chunk_size)
        patterns = attention_patterns(loaded.model, torch.from_numpy(inputs.tokens[chunk])[None])
        yield chunk, torch.stack([pattern[0] for pattern in patterns], dim=1).double().numpy()


def map_attention(
    loaded: LoadedRun, inputs: AnalysisInputs, function: Callable[[Floats, slice], dict[Key, Floats]]
) -> dict[Key, Floats]:
    """Applies a function of the attention weights to chunks of inputs and concatenates its (B, …) results by key."""
    results = [function(weights, chunk) for chunk, weights in iter_attention(loaded, inputs)]
    keys = dict.fromkeys(key for result in results for key in result)
    return {key: np.concatenate([result[key] for result in results if key in result]) for key in keys}
