"""Request handlers of the model worker, each a generator of JSON values: attention, heads, generation, alternatives.

    next(compute_attention_maps(cache, run="3f2a", step="last", text="12 + 8 = 20", by="token"))["labels"]

Texts come from requests, so each handler bounds its work.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import isqrt, log
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from seedbed.errors import UsageError
from seedbed.interp.attention_extraction import compute_attention
from seedbed.report.analysis_tables import analysis_tables
from seedbed.report.run_analysis import analyze_run
from seedbed.report.tables import Table
from seedbed.sampling.filters import SamplingFilters, filtered_probabilities
from seedbed.sampling.loaded_run import LoadedRun, TextOrIds
from seedbed.sampling.sampler import resolve_hop, window_start
from seedbed.store import open_store
from seedbed.web.model_cache import CheckpointStep, ModelCache
from seedbed.web.model_client import MAX_GENERATED_TOKENS

MAX_ATTENTION_WEIGHTS: Final = 4_000_000  # over all layers and heads
MAX_GRADIENT_TOKENS: Final = 256  # input gradients backpropagate from each token through all tokens before it,
MAX_TOKENS_SQUARED_PARAMETERS: Final = 10**11  # so large models accept fewer
UINT16_MAX: Final = 65_535  # encodes a weight of 1: 16 bits keep four digits at half the size of float32
N_HELD_OUT_INPUTS: Final = 64  # per head statistic, as in `seedbed heads`
N_ALTERNATIVES: Final = 12

Reply = dict[str, Any]
IntArray = NDArray[np.int64]


def compute_attention_maps(cache: ModelCache, run: str, step: CheckpointStep, text: str, by: str) -> Iterator[Reply]:
    """All attention maps of a text; weights are base64 of uint16 with axes (layer, head, query, source)."""
    loaded = cache.get_model(run, step)
    _check_text_length(loaded, text)
    maps = compute_attention(loaded, text)
    maps = maps.group_by_word() if by == "word" else maps
    weights = np.round(maps.weights * UINT16_MAX).astype("<u2")
    yield {
        "run": loaded.run.id, "step": loaded.step, "kind": maps.kind, "labels": maps.labels, "pieces": maps.pieces,
        "padding": maps.padding, "right_to_left": maps.right_to_left, "layers": len(maps.layers),
        "heads": len(maps.heads), "weights": base64.b64encode(weights.tobytes()).decode(),
    }  # fmt: skip


def _check_text_length(loaded: LoadedRun, text: str) -> None:
    n_tokens, max_tokens = len(loaded.encode(text)), _max_tokens(loaded)
    if n_tokens > max_tokens:
        raise UsageError(f"the text has {n_tokens:,} tokens; the page shows at most {max_tokens:,} of this model")


def _max_tokens(loaded: LoadedRun) -> int:
    model = loaded.run.settings.model
    if not model.has_attention:
        return min(
            MAX_GRADIENT_TOKENS, isqrt(MAX_TOKENS_SQUARED_PARAMETERS // max(1, loaded.run.parameters.non_embedding))
        )
    return isqrt(MAX_ATTENTION_WEIGHTS // (model.layers * model.heads))


def compute_head_tables(cache: ModelCache, run: str, step: CheckpointStep) -> Iterator[Reply]:
    """Tables of attention-head statistics on held-out inputs; for an LSTM, of its gates."""
    yield _cached_head_tables(cache.home, *cache.resolve_key(run, step))


@lru_cache(maxsize=64)
def _cached_head_tables(home: Path, run: str, step: int, _: str) -> Reply:
    with open_store(home, read_only=True) as store:
        analysis = analyze_run(store, store.run(run), N_HELD_OUT_INPUTS, ablation=False, step=step)
    return {"run": run, "step": step, "tables": [_table_as_json(table) for table in analysis_tables([analysis])]}


def _table_as_json(table: Table) -> Reply:
    return {name: getattr(table, name) for name in ("title", "columns", "rows", "notes", "n_labels")}


def get_example(cache: ModelCache, run: str, step: CheckpointStep, number: int) -> Iterator[Reply]:
    """The held-out input of this number as text; numbers wrap around."""
    loaded = cache.get_model(run, step)
    inputs = loaded.analysis_inputs(N_HELD_OUT_INPUTS)
    index = number % inputs.n_inputs
    tokens = inputs.tokens[index][inputs.non_padding[index]].tolist()
    yield {"text": loaded.tokenizer.decode(tokens), "part": inputs.split}


# ---- generation ----


def generate(
    cache: ModelCache, run: str, step: CheckpointStep, given: TextOrIds, tokens: int, temperature: float, top_k: int,
    top_p: float, seed: int,
) -> Iterator[Reply]:  # fmt: skip
    """The prompt's tokens with their surprisal, then each new token; for a classifier, label probabilities."""
    loaded = cache.get_model(run, step)
    ids = loaded.encode(given)
    if loaded.run.settings.task.predicts == "label":
        yield _label_probabilities(loaded, ids)
        return
    yield _prompt_reply(loaded, loaded.encode_prompt(ids), len(ids))
    for piece in loaded.stream(ids, tokens, temperature, top_k, top_p, seed):
        if piece.token is None:
            yield {"text": piece.text}
        else:
            yield _token_as_json(loaded, piece.token, piece.text, -piece.log_probability)


def _prompt_reply(loaded: LoadedRun, ids: IntArray, n_given: int) -> Reply:
    """The prompt as the model reads it, token by token."""
    # Operands of an equation are drawn uniformly, so their surprisal means nothing.
    has_surprisal = len(ids) > 1 and not loaded.run.settings.task.completes_prompts
    losses = loaded.surprisal(ids, 1).losses.tolist() if has_surprisal else [float("nan")] * len(ids)
    decoder = loaded.tokenizer.decoder()
    rows = zip(ids.tolist(), losses, strict=True)
    return _reply_header(loaded, n_given) | {
        "given": [_token_as_json(loaded, token, decoder.feed([token]), loss) for token, loss in rows]
    }


def _token_as_json(loaded: LoadedRun, token: int, text: str, loss: float) -> Reply:
    """A token with its text in context, its name (for tokens without text), and its surprisal in bits if known."""
    bits = None if loss != loss else loss / log(2)
    return {"token": token, "text": text, "name": loaded.token_texts[token], "bits": bits}


def _reply_header(loaded: LoadedRun, n_given: int) -> Reply:
    header: Reply = {"run": loaded.run.id, "step": loaded.step, "context": loaded.context}
    if n_given <= loaded.context or loaded.run.settings.task.completes_prompts:
        return header
    which = "first" if loaded.run.settings.task.predicts == "label" else "last"
    notice = f"the text has {n_given:,} tokens; the model reads the {which} {loaded.context:,}, its context length"
    return header | {"notice": notice}


def _label_probabilities(loaded: LoadedRun, ids: IntArray) -> Reply:
    """Probability of each label, with the text padded or truncated as in training."""
    return _reply_header(loaded, len(ids)) | {"labels": [vars(one) for one in loaded.classify(ids)]}


def compute_alternatives(
    cache: ModelCache, run: str, step: CheckpointStep, ids: Sequence[int], n_prompt: int, chosen: int | None,
    temperature: float, top_k: int, top_p: float,
) -> Iterator[Reply]:  # fmt: skip
    """The most likely next tokens after these ids, of which the first `n_prompt` are the prompt."""
    loaded = cache.get_model(run, step)
    if len(ids) - n_prompt > MAX_GENERATED_TOKENS:
        raise UsageError(
            f"{len(ids) - n_prompt:,} tokens follow the prompt; the page handles at most {MAX_GENERATED_TOKENS:,}"
        )
    # As in generation: the prompt is cut to the context, then the window moves in hops.
    tokens = loaded.encode(ids)[max(0, n_prompt - loaded.context) :]
    start = window_start(len(tokens), loaded.context, resolve_hop(loaded.model, loaded.context))
    logits = loaded.logits(tokens[start:])[-1]
    probabilities = logits.double().softmax(-1)
    filtered = filtered_probabilities(logits, SamplingFilters(temperature, top_k, top_p))
    best = probabilities.topk(min(N_ALTERNATIVES, len(probabilities))).indices.tolist()
    if chosen is not None and chosen not in best:
        best += loaded.encode([chosen]).tolist()
    names = loaded.token_texts
    yield {
        "alternatives": [
            {"token": i, "name": names[i], "probability": float(probabilities[i]), "filtered": float(filtered[i])}
            for i in best
        ]
    }


HANDLERS: Final[dict[str, Callable[..., Iterator[Reply]]]] = {
    "attention": compute_attention_maps, "heads": compute_head_tables, "example": get_example, "write": generate,
    "alternatives": compute_alternatives,
}  # fmt: skip
