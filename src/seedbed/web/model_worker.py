"""The model worker process: reads requests as lines of JSON from stdin and writes replies to stdout the same way.

    python -m seedbed.web.model_worker HOME

    {"id": 4, "handler": "write", "arguments": {"run": "3f2a", …}}  →  {"id": 4, "value": {…}} …, {"id": 4, "end": true}
    {"cancel": 4}                                                   →  no more replies to 4

Each handler is a generator of JSON values: attention, heads, generation, alternatives. Requests are served round-robin,
one value each, so a long text delays others by at most one token; texts come from requests, so each handler bounds its
work. The process yields to training (low priority, one thread) and exits when its stdin closes, also if the server was
killed. The client is `model_client`.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from math import isqrt, log
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seedbed.data.catalogue import describe_class
from seedbed.errors import SeedbedError, UsageError
from seedbed.interp.attention_extraction import compute_attention
from seedbed.records import to_jsonable
from seedbed.report.analysis_tables import analysis_tables
from seedbed.report.run_analysis import analyze_run
from seedbed.report.tables import to_json
from seedbed.sampling.filters import SamplingFilters, filtered_probabilities
from seedbed.sampling.loaded_run import LoadedRun, TextOrIds
from seedbed.sampling.sampler import resolve_hop, window_start
from seedbed.store import open_store, stored_vocabulary
from seedbed.web.model_client import MAX_GENERATED_TOKENS, Message

NICENESS_INCREMENT: Final = 15  # on top of the server's niceness
MAX_CACHED_BYTES: Final = 1 << 29  # of weights; the most recently used model always stays, however large
MAX_ATTENTION_WEIGHTS: Final = 4_000_000  # over all layers and heads
MAX_GRADIENT_TOKENS: Final = 256  # input gradients backpropagate from each token through all tokens before it,
MAX_TOKENS_SQUARED_PARAMETERS: Final = 10**11  # so large models accept fewer
UINT16_MAX: Final = 65_535  # encodes a weight of 1: 16 bits keep four digits at half the size of float32
N_HELD_OUT_INPUTS: Final = 64  # per head statistic, as in `seedbed heads`
N_ALTERNATIVES: Final = 12

CheckpointStep: TypeAlias = int | Literal["last", "best"]
CacheKey: TypeAlias = tuple[str, int, str]  # run, step, digest of the weights
Reply: TypeAlias = dict[str, Any]


class ModelCache:
    """The loaded models of one home, the least recently used dropped first.

    Every request still checks the store that the run exists.
    """

    def __init__(self, home: Path, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self.home, self.max_bytes = home, max_bytes
        self._models: OrderedDict[CacheKey, tuple[LoadedRun, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._models)

    def resolve_key(self, run: str, step: CheckpointStep) -> CacheKey:
        """The cache key of a checkpoint; raises when the store has no such run or step."""
        with open_store(self.home, read_only=True) as store:
            checkpoint = store.find_checkpoint(run, step)
        return checkpoint.run, checkpoint.step, checkpoint.digest

    def get_model(self, run: str, step: CheckpointStep) -> LoadedRun:
        """The run at a stored step; a run deleted since is not found, even if it is still cached."""
        key = self.resolve_key(run, step)
        if key not in self._models:
            self._models[key] = self._load(*key)
        self._models.move_to_end(key)
        while len(self._models) > 1 and sum(size for _, size in self._models.values()) > self.max_bytes:
            self._models.popitem(last=False)
        return self._models[key][0]

    def _load(self, run: str, step: int, _: str) -> tuple[LoadedRun, int]:
        with open_store(self.home, read_only=True) as store:
            weights = store.load_weights(run, step)
            stored = store.run(run)
            loaded = LoadedRun(stored, step, weights, vocabulary=stored_vocabulary(store, stored))
            return loaded, sum(array.nbytes for array in weights.values())


# ---- attention ----


def compute_attention_maps(cache: ModelCache, run: str, step: CheckpointStep, text: str, by: str) -> Iterator[Reply]:
    """All attention maps of a text; weights are base64 of uint16 with axes (layer, head, query, source)."""
    loaded = cache.get_model(run, step)
    n_tokens, max_tokens = len(loaded.encode(text)), _max_tokens(loaded)
    if n_tokens > max_tokens:
        raise UsageError(f"the text has {n_tokens:,} tokens; the page shows at most {max_tokens:,} of this model")
    maps = compute_attention(loaded, text)
    maps = maps.group_by_word() if by == "word" else maps
    weights = np.round(maps.weights * UINT16_MAX).astype("<u2")
    yield {
        "run": loaded.run.id, "step": loaded.step, "kind": maps.kind, "labels": maps.labels, "pieces": maps.pieces,
        "padding": maps.padding, "right_to_left": maps.right_to_left, "layers": len(maps.layers),
        "heads": len(maps.heads), "weights": base64.b64encode(weights.tobytes()).decode(),
    }  # fmt: skip


def _max_tokens(loaded: LoadedRun) -> int:
    model = loaded.run.settings.model
    if model.has_attention:
        return isqrt(MAX_ATTENTION_WEIGHTS // (model.layers * model.heads))
    n_parameters = max(1, loaded.run.parameters.non_embedding)
    return min(MAX_GRADIENT_TOKENS, isqrt(MAX_TOKENS_SQUARED_PARAMETERS // n_parameters))


def compute_head_tables(cache: ModelCache, run: str, step: CheckpointStep) -> Iterator[Reply]:
    """Tables of attention-head statistics on held-out inputs; for an LSTM, of its gates."""
    yield _cached_head_tables(cache.home, *cache.resolve_key(run, step))


@lru_cache(maxsize=64)
def _cached_head_tables(home: Path, run: str, step: int, _: str) -> Reply:
    with open_store(home, read_only=True) as store:
        analysis = analyze_run(store, store.run(run), N_HELD_OUT_INPUTS, ablation=False, step=step)
    return {"run": run, "step": step, "tables": list(map(to_json, analysis_tables([analysis])))}


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
    if loaded.run.settings.task.predicts == "label":  # of the text, padded or truncated as in training
        corpus = loaded.run.settings.get("task.corpus")
        labels = [vars(one) | {"name": describe_class(corpus, one.name)} for one in loaded.classify(ids)]
        yield _reply_header(loaded, len(ids)) | {"labels": labels}
        return
    yield _prompt_reply(loaded, loaded.encode_prompt(ids), len(ids))
    for piece in loaded.stream(ids, tokens, temperature, top_k, top_p, seed):
        if piece.token is None:
            yield {"text": piece.text}
        else:
            yield _token_as_json(loaded, piece.token, piece.text, -piece.log_probability)


def _prompt_reply(loaded: LoadedRun, ids: NDArray[np.int64], n_given: int) -> Reply:
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


def compute_alternatives(
    cache: ModelCache, run: str, step: CheckpointStep, ids: Sequence[int], n_prompt: int, chosen: int | None,
    temperature: float, top_k: int, top_p: float,
) -> Iterator[Reply]:  # fmt: skip
    """The most likely next tokens after these ids, of which the first `n_prompt` are the prompt."""
    loaded = cache.get_model(run, step)
    loaded.require_next_token("has no next token")
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


# ---- the process ----


class ModelWorker:
    """The open requests, each a generator of values."""

    def __init__(self, cache: ModelCache, requests: SimpleQueue[Message], send: Callable[[Message], None]) -> None:
        self._cache, self._requests, self._send = cache, requests, send
        self._generators: dict[int, Iterator[Any]] = {}

    def run_round(self) -> None:
        """Accepts new requests (blocking if none is open), then sends one value of each open request."""
        while not self._generators or not self._requests.empty():
            message = self._requests.get()
            if "cancel" in message:
                self._generators.pop(message["cancel"], None)
            else:
                self._generators[message["id"]] = HANDLERS[message["handler"]](self._cache, **message["arguments"])
        for request_id in list(self._generators):
            self._send({"id": request_id} | self._next_reply(request_id))

    def _next_reply(self, request_id: int) -> Message:
        try:
            return {"value": to_jsonable(next(self._generators[request_id]))}
        except StopIteration:
            final: Message = {"end": True}
        except SeedbedError as error:
            final = {"error": type(error).__name__, "message": str(error)}
        except Exception as error:
            traceback.print_exc()
            final = {"error": "Exception", "message": f"the model failed ({type(error).__name__}: {error})"}
        del self._generators[request_id]
        return final


def _read_requests(lines: Iterable[str], requests: SimpleQueue[Message]) -> None:
    for line in lines:
        requests.put(json.loads(line))
    os._exit(0)  # at once, even in the middle of a computation: the client is gone


def main() -> None:
    import torch

    os.nice(NICENESS_INCREMENT)
    torch.set_num_threads(1)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # library output goes to stderr, not between replies

    def send(message: Message) -> None:
        replies.write(json.dumps(message, ensure_ascii=False, allow_nan=False) + "\n")
        replies.flush()

    requests: SimpleQueue[Message] = SimpleQueue()
    sys.stdin.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    Thread(target=_read_requests, args=(sys.stdin, requests), daemon=True).start()
    worker = ModelWorker(ModelCache(Path(sys.argv[1])), requests, send)
    while True:
        worker.run_round()


if __name__ == "__main__":
    main()
