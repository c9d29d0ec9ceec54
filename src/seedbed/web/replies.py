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

from seedbed.data.prepared import prepare_labels
from seedbed.data.text import PAD
from seedbed.errors import UsageError
from seedbed.generate.equations import Equations
from seedbed.generate.filters import Filters, probabilities
from seedbed.generate.load import Given, Loaded
from seedbed.generate.sample import hop_of, window_start
from seedbed.inside.attention import attention_of
from seedbed.inside.inputs import sample_inputs
from seedbed.report.inside import look_into
from seedbed.report.inside_tables import inside_tables
from seedbed.report.tables import Table
from seedbed.settings import LSTM, Labels
from seedbed.store.store import Store
from seedbed.web.models import MOST_TOKENS
from seedbed.web.warm import Step, Warm

MOST_CELLS: Final = 4_000_000  # of all maps of a text
MOST_GRADIENTS: Final = 256  # tokens of an LSTM's text, since each is traced back through all before it,
MOST_PRODUCTS: Final = 10**11  # and fewer of a large one: tokens² × parameters
FULL: Final = 65_535  # a weight of 1 as it travels: 16 bits are four digits and halve what 32 would take
N_INPUTS: Final = 64  # held-out inputs behind a head's numbers, as in `seedbed heads`
N_ALTERNATIVES: Final = 12

Value = dict[str, Any]
Ints = NDArray[np.int64]


def attention(warm: Warm, run: str, step: Step, text: str, by: str) -> Iterator[Value]:
    """All maps of a text, the weights as 16-bit whole numbers (layers, heads, looking, looked at) in base 64."""
    loaded = warm.model(run, step)
    _check_work(loaded, text)
    maps = attention_of(loaded, text)
    maps = maps.by_word() if by == "word" else maps
    weights = np.round(maps.weights * FULL).astype("<u2")
    yield {
        "run": loaded.run.id, "step": loaded.step, "kind": maps.kind, "labels": maps.labels, "pieces": maps.pieces,
        "padding": maps.padding, "right_to_left": maps.right_to_left, "layers": len(maps.layers),
        "heads": len(maps.heads), "weights": base64.b64encode(weights.tobytes()).decode(),
    }  # fmt: skip


def _check_work(loaded: Loaded, text: str) -> None:
    n, most = len(loaded.encode(text)), _most_tokens(loaded)
    if n > most:
        raise UsageError(f"the text has {n:,} tokens; the page shows {most:,} of this model at most: give a part of it")


def _most_tokens(loaded: Loaded) -> int:
    dials = loaded.run.settings.model
    if isinstance(dials, LSTM):
        return min(MOST_GRADIENTS, isqrt(MOST_PRODUCTS // max(1, loaded.run.parameters.non_embedding)))
    return isqrt(MOST_CELLS // (dials.layers * dials.heads))


def heads(warm: Warm, run: str, step: Step) -> Iterator[Value]:
    """What the heads of a run do on held-out inputs, of an LSTM its gates, as tables."""
    yield _heads(warm.home, *warm.key(run, step))


@lru_cache(maxsize=64)
def _heads(home: Path, run: str, step: int, _: str) -> Value:
    with Store.read(home) as store:
        found = look_into(store, store.run(run), N_INPUTS, ablation=False, step=step)
    return {"run": run, "step": step, "tables": [_table(one) for one in inside_tables([found])]}


def _table(table: Table) -> Value:
    return {name: getattr(table, name) for name in ("title", "columns", "rows", "notes", "n_labels")}


def example(warm: Warm, run: str, step: Step, number: int) -> Iterator[Value]:
    """A held-out input of the run as text; numbers count round and round."""
    loaded = warm.model(run, step)
    inputs = sample_inputs(loaded, N_INPUTS)
    at = number % inputs.n
    yield {"text": loaded.tokens.decode(inputs.tokens[at][inputs.seen[at]].tolist()), "part": inputs.part}


# ---- writing ----


def write(
    warm: Warm, run: str, step: Step, given: Given, tokens: int, temperature: float, top_k: int, top_p: float, seed: int
) -> Iterator[Value]:  # fmt: skip
    """What was given, token by token with its surprisal, then each new token; of an encoder the labels instead."""
    loaded = warm.model(run, step)
    ids = loaded.encode(given)
    if isinstance(loaded.run.settings.task, Labels):
        yield _labels_of(loaded, ids)
        return
    yield _begun(loaded, loaded.prompt(ids), len(ids))
    for piece in loaded.stream(ids, tokens, temperature, top_k, top_p, seed):
        if piece.token is None:
            yield {"text": piece.text}
        else:
            yield _token(loaded, piece.token, piece.text, -piece.log_probability)


def _begun(loaded: Loaded, ids: Ints, n_given: int) -> Value:
    """The tokens that the model has read before it writes."""
    told = len(ids) > 1 and not isinstance(loaded.tokens, Equations)  # an operand is nothing to be told
    losses = loaded.surprisal(ids, 1).losses.tolist() if told else [float("nan")] * len(ids)
    decoder = loaded.tokens.decoder()
    rows = zip(ids.tolist(), losses, strict=True)
    return _head(loaded, n_given) | {"given": [_token(loaded, one, decoder.feed([one]), loss) for one, loss in rows]}


def _token(loaded: Loaded, token: int, text: str, loss: float) -> Value:
    """A token with its text where it stands, its name where it has none, and its surprisal in bits, if known."""
    bits = None if loss != loss else loss / log(2)
    return {"token": token, "text": text, "name": loaded.tokens.texts[token], "bits": bits}


def _head(loaded: Loaded, n_given: int) -> Value:
    known: Value = {"run": loaded.run.id, "step": loaded.step, "context": loaded.context}
    if n_given <= loaded.context or isinstance(loaded.tokens, Equations):
        return known
    which = "first" if isinstance(loaded.run.settings.task, Labels) else "last"
    said = f"{n_given:,} tokens were given; the model reads the {which} {loaded.context:,} of them, its context"
    return known | {"notice": said}


def _labels_of(loaded: Loaded, ids: Ints) -> Value:
    """How likely each label is, the text padded or cut as in training."""
    task = loaded.run.settings.task
    assert isinstance(task, Labels)
    if not len(ids):
        raise UsageError("the text is empty; a label needs at least one token")
    read = np.full(loaded.context, PAD)
    read[: len(ids)] = ids[: loaded.context]
    shares = loaded.logits(read)[0].double().softmax(-1).tolist()
    rows = sorted(zip(prepare_labels(task).names, shares, strict=True), key=lambda row: -row[1])
    return _head(loaded, len(ids)) | {"labels": [{"name": name, "probability": share} for name, share in rows]}


def alternatives(
    warm: Warm, run: str, step: Step, ids: Sequence[int], begun: int, chosen: int | None, temperature: float,
    top_k: int, top_p: float,
) -> Iterator[Value]:  # fmt: skip
    """The likeliest tokens after these ids, of which the first `begun` were given and the others written since."""
    loaded = warm.model(run, step)
    if len(ids) - begun > MOST_TOKENS:
        raise UsageError(f"{len(ids) - begun:,} tokens were written since; the page goes back over {MOST_TOKENS:,}")
    read = loaded.encode(ids)[max(0, begun - loaded.context) :]
    start = window_start(len(read), loaded.context, hop_of(loaded.model, loaded.context))
    logits = loaded.logits(read[start:])[-1]
    own, drawn = logits.double().softmax(-1), probabilities(logits, Filters(temperature, top_k, top_p))
    best = own.topk(min(N_ALTERNATIVES, len(own))).indices.tolist()
    if chosen is not None and chosen not in best:
        best += loaded.encode([chosen]).tolist()
    names = loaded.tokens.texts
    yield {
        "alternatives": [
            {"token": one, "name": names[one], "probability": float(own[one]), "drawn": float(drawn[one])}
            for one in best
        ]
    }


REPLIES: Final[dict[str, Callable[..., Iterator[Value]]]] = {
    "attention": attention, "heads": heads, "example": example, "write": write, "alternatives": alternatives,
}  # fmt: skip
