"""What models can be asked on the page, each a generator of plain values: attention, head numbers, text, alternatives.

    next(attention(warm, run="3f2a", step="last", text="12 + 8 = 20", by="token"))["labels"]

Runs inside the model worker. Texts come from outside: each question says how much work it takes at most.
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

from seedbed.data.datasets import load_labelled_dataset
from seedbed.data.tokenizers import PAD_ID
from seedbed.errors import UsageError
from seedbed.interp.analysis_inputs import sample_inputs
from seedbed.interp.attention_extraction import compute_attention
from seedbed.report.analysis_tables import analysis_tables
from seedbed.report.run_analysis import analyze_run
from seedbed.report.tables import Table
from seedbed.sampling.equation_tokenizer import EquationTokenizer
from seedbed.sampling.filters import SamplingFilters, filtered_probabilities
from seedbed.sampling.loaded_run import LoadedRun, TextOrIds
from seedbed.sampling.sampler import resolve_hop, window_start
from seedbed.settings import LabelsSettings, LSTMSettings
from seedbed.store.store import Store
from seedbed.web.model_cache import CheckpointStep, ModelCache
from seedbed.web.model_client import MAX_GENERATED_TOKENS

MAX_ATTENTION_WEIGHTS: Final = 4_000_000  # of all maps of a text
MAX_LSTM_TOKENS: Final = 256  # tokens of an LSTM's text, since each is traced back through all before it,
MAX_LSTM_TOKENS_SQUARED_PARAMETERS: Final = 10**11  # and fewer of a large one: tokens² × parameters
UINT16_MAX: Final = 65_535  # a weight of 1 as it travels: 16 bits are four digits and halve what 32 would take
N_HELD_OUT_INPUTS: Final = 64  # held-out inputs behind a head's numbers, as in `seedbed heads`
N_ALTERNATIVES: Final = 12

Reply = dict[str, Any]
IntArray = NDArray[np.int64]


def compute_attention_maps(warm: ModelCache, run: str, step: CheckpointStep, text: str, by: str) -> Iterator[Reply]:
    """All maps of a text, the weights as 16-bit whole numbers (layers, heads, looking, looked at) in base 64."""
    loaded = warm.get_model(run, step)
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
    n, most = len(loaded.encode(text)), _max_tokens(loaded)
    if n > most:
        raise UsageError(f"the text has {n:,} tokens; the page shows {most:,} of this model at most: give a part of it")


def _max_tokens(loaded: LoadedRun) -> int:
    dials = loaded.run.settings.model
    if isinstance(dials, LSTMSettings):
        return min(
            MAX_LSTM_TOKENS, isqrt(MAX_LSTM_TOKENS_SQUARED_PARAMETERS // max(1, loaded.run.parameters.non_embedding))
        )
    return isqrt(MAX_ATTENTION_WEIGHTS // (dials.layers * dials.heads))


def compute_head_tables(warm: ModelCache, run: str, step: CheckpointStep) -> Iterator[Reply]:
    """What the heads of a run do on held-out inputs, of an LSTM its gates, as tables."""
    yield _cached_head_tables(warm.home, *warm.resolve_key(run, step))


@lru_cache(maxsize=64)
def _cached_head_tables(home: Path, run: str, step: int, _: str) -> Reply:
    with Store.open_read_only(home) as store:
        found = analyze_run(store, store.run(run), N_HELD_OUT_INPUTS, ablation=False, step=step)
    return {"run": run, "step": step, "tables": [_table_as_json(one) for one in analysis_tables([found])]}


def _table_as_json(table: Table) -> Reply:
    return {name: getattr(table, name) for name in ("title", "columns", "rows", "notes", "n_labels")}


def get_example(warm: ModelCache, run: str, step: CheckpointStep, number: int) -> Iterator[Reply]:
    """A held-out input of the run as text; numbers count round and round."""
    loaded = warm.get_model(run, step)
    inputs = sample_inputs(loaded, N_HELD_OUT_INPUTS)
    at = number % inputs.n_inputs
    yield {"text": loaded.tokenizer.decode(inputs.tokens[at][inputs.non_padding[at]].tolist()), "part": inputs.split}


# ---- writing ----


def generate(
    warm: ModelCache, run: str, step: CheckpointStep, given: TextOrIds, tokens: int, temperature: float, top_k: int, top_p: float, seed: int
) -> Iterator[Reply]:  # fmt: skip
    """What was given, token by token with its surprisal, then each new token; of an encoder the labels instead."""
    loaded = warm.get_model(run, step)
    ids = loaded.encode(given)
    if isinstance(loaded.run.settings.task, LabelsSettings):
        yield _label_probabilities(loaded, ids)
        return
    yield _prompt_reply(loaded, loaded.encode_prompt(ids), len(ids))
    for piece in loaded.stream(ids, tokens, temperature, top_k, top_p, seed):
        if piece.token is None:
            yield {"text": piece.text}
        else:
            yield _token_as_json(loaded, piece.token, piece.text, -piece.log_probability)


def _prompt_reply(loaded: LoadedRun, ids: IntArray, n_given: int) -> Reply:
    """The tokens that the model has read before it writes."""
    told = len(ids) > 1 and not isinstance(loaded.tokenizer, EquationTokenizer)  # an operand is nothing to be told
    losses = loaded.surprisal(ids, 1).losses.tolist() if told else [float("nan")] * len(ids)
    decoder = loaded.tokenizer.decoder()
    rows = zip(ids.tolist(), losses, strict=True)
    return _reply_header(loaded, n_given) | {
        "given": [_token_as_json(loaded, one, decoder.feed([one]), loss) for one, loss in rows]
    }


def _token_as_json(loaded: LoadedRun, token: int, text: str, loss: float) -> Reply:
    """A token with its text where it stands, its name where it has none, and its surprisal in bits, if known."""
    bits = None if loss != loss else loss / log(2)
    return {"token": token, "text": text, "name": loaded.tokenizer.texts[token], "bits": bits}


def _reply_header(loaded: LoadedRun, n_given: int) -> Reply:
    known: Reply = {"run": loaded.run.id, "step": loaded.step, "context": loaded.context}
    if n_given <= loaded.context or isinstance(loaded.tokenizer, EquationTokenizer):
        return known
    which = "first" if isinstance(loaded.run.settings.task, LabelsSettings) else "last"
    said = f"{n_given:,} tokens were given; the model reads the {which} {loaded.context:,} of them, its context"
    return known | {"notice": said}


def _label_probabilities(loaded: LoadedRun, ids: IntArray) -> Reply:
    """How likely each label is, the text padded or cut as in training."""
    task = loaded.run.settings.task
    assert isinstance(task, LabelsSettings)
    if not len(ids):
        raise UsageError("the text is empty; a label needs at least one token")
    read = np.full(loaded.context, PAD_ID)
    read[: len(ids)] = ids[: loaded.context]
    shares = loaded.logits(read)[0].double().softmax(-1).tolist()
    rows = sorted(zip(load_labelled_dataset(task).label_names, shares, strict=True), key=lambda row: -row[1])
    return _reply_header(loaded, len(ids)) | {"labels": [{"name": name, "probability": share} for name, share in rows]}


def compute_alternatives(
    warm: ModelCache, run: str, step: CheckpointStep, ids: Sequence[int], begun: int, chosen: int | None, temperature: float,
    top_k: int, top_p: float,
) -> Iterator[Reply]:  # fmt: skip
    """The likeliest tokens after these ids, of which the first `begun` were given and the others written since."""
    loaded = warm.get_model(run, step)
    if len(ids) - begun > MAX_GENERATED_TOKENS:
        raise UsageError(
            f"{len(ids) - begun:,} tokens were written since; the page goes back over {MAX_GENERATED_TOKENS:,}"
        )
    read = loaded.encode(ids)[max(0, begun - loaded.context) :]
    start = window_start(len(read), loaded.context, resolve_hop(loaded.model, loaded.context))
    logits = loaded.logits(read[start:])[-1]
    own, drawn = logits.double().softmax(-1), filtered_probabilities(logits, SamplingFilters(temperature, top_k, top_p))
    best = own.topk(min(N_ALTERNATIVES, len(own))).indices.tolist()
    if chosen is not None and chosen not in best:
        best += loaded.encode([chosen]).tolist()
    names = loaded.tokenizer.texts
    yield {
        "alternatives": [
            {"token": one, "name": names[one], "probability": float(own[one]), "drawn": float(drawn[one])}
            for one in best
        ]
    }


HANDLERS: Final[dict[str, Callable[..., Iterator[Reply]]]] = {
    "attention": compute_attention_maps, "heads": compute_head_tables, "example": get_example, "write": generate, "alternatives": compute_alternatives,
}  # fmt: skip
