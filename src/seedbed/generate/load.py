"""One trained run, ready to be asked: what it writes, what it expects, what surprises it.

    model = seedbed.load("3f2a")          # a run's id, or the start of it
    model.sample("my lord", tokens=200, temperature=0.8)[0].text
    model.surprisal("Some text").bits_per_character

Texts and token ids are taken alike. Where the weights come from is left to the caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from seedbed.data.facts import facts_of
from seedbed.data.prepared import tokens_of
from seedbed.data.text import PAD, UNKNOWN_TEXT, StreamDecoder, Tokens, checked
from seedbed.errors import MissingData, UsageError
from seedbed.generate.equations import Equations
from seedbed.generate.filters import Filters
from seedbed.generate.memory import evaluating
from seedbed.generate.sample import sample
from seedbed.generate.surprisal import Surprisal, surprisal
from seedbed.models.build import build_pack, load_kept
from seedbed.models.encoder import Encoder
from seedbed.models.gpt import GPT
from seedbed.models.taps import attention_patterns, tap_values
from seedbed.records import Arrays, StoredRun
from seedbed.settings import Arithmetic
from seedbed.study.plan import run_id

Given: TypeAlias = str | Sequence[int] | NDArray[np.integer]
STARTS = ("\n", ".", " ")  # after which a text is begun where no prompt is given: the first that is one token


@dataclass(frozen=True)
class Choice:
    """A token that may come next."""

    text: str
    token: int
    probability: float


@dataclass(frozen=True)
class Piece:
    """One token of one sample, and the text that is whole with it; without a token: what is left at the end."""

    sample: int
    text: str
    token: int | None = None
    log_probability: float = 0.0  # natural, of the model itself before any filter


@dataclass(frozen=True)
class Sample:
    """What was written after a prompt."""

    prompt: str
    text: str
    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]

    def __str__(self) -> str:
        return self.prompt + self.text

    def _repr_html_(self) -> str:
        from html import escape

        return f'<pre dir="auto" style="white-space: pre-wrap"><b>{escape(self.prompt)}</b>{escape(self.text)}</pre>'


class Loaded:
    """A run's model at one kept step."""

    def __init__(self, run: StoredRun, step: int, weights: Arrays) -> None:
        self.run, self.step = run, step
        task = run.settings.task
        self.context = facts_of(task).context
        self.tokens: Tokens | Equations = Equations(task) if isinstance(task, Arithmetic) else tokens_of(task)
        self.model = _built(run, weights)

    def __repr__(self) -> str:
        return f"<run {self.run.id} at step {self.step:,}: {self.run.settings.model.kind}, {self.tokens.kind}>"

    def encode(self, given: Given) -> NDArray[np.int64]:
        """The ids of a text, or ids as they are."""
        if isinstance(given, str):
            return self.tokens.encode(given).astype(np.int64)
        return np.fromiter(checked(given, self.tokens.size), dtype=np.int64)

    def logits(self, given: Given) -> Float[Tensor, "T V"]:
        """Of the token after each token; of the labels, where the model tells them."""
        with evaluating(self.model):
            return self.model(self._readable(given))[0, 0].clone()

    def tap(self, given: Given, *patterns: str) -> dict[str, Tensor]:
        """What the model computes at the named places (docs/taps.md), by name; all places when none is named."""
        values = tap_values(self.model, self._readable(given), *(patterns or ("*",)))
        return {name: value[0, 0] for name, value in values.items()}

    def attention(self, given: Given) -> Float[Tensor, "L H T S"]:
        """The attention weights of every layer and head; row t is what token t looks at and sums to 1."""
        patterns = attention_patterns(self.model, self._readable(given))
        if not patterns:
            raise UsageError(f"run {self.run.id} is an {self.run.settings.model.kind} and has no attention")
        return torch.stack([pattern[0, 0] for pattern in patterns])

    def _readable(self, given: Given) -> Int[Tensor, "1 1 T"]:
        """The tokens as the model takes them, if it can."""
        ids = self.encode(given)
        has_table = isinstance(self.model, GPT | Encoder) and self.model.position_table is not None
        if len(ids) == 0 or (has_table and len(ids) > self.context):
            most = f" to {self.context}, for which the model has positions" if has_table else " or more"
            raise UsageError(f"the text has {len(ids)} tokens; expected 1{most}")
        return torch.from_numpy(ids)[None, None]

    def start(self) -> NDArray[np.int64]:
        """What an empty prompt stands for: BOS, or the end of a line, of a sentence or of a word."""
        if isinstance(self.tokens, Equations):
            return np.array([self.tokens.begin])
        for text in STARTS:
            try:
                ids = self.tokens.encode(text)
            except UsageError:
                continue
            if len(ids) == 1 and self.tokens.texts[ids[0]] != UNKNOWN_TEXT:
                return ids.astype(np.int64)
        return np.array([PAD + 1])

    def prompt(self, given: Given) -> NDArray[np.int64]:
        """The ids that a sample begins with: at most the last `context` of what is given."""
        ids = self.encode(given)
        if isinstance(self.tokens, Equations) and len(ids) > self.context:
            raise UsageError(f"the prompt has {len(ids)} tokens with BOS; an equation of this task has {self.context}")
        return (ids if len(ids) else self.start())[-self.context :]

    def choices(self, given: Given = "", n: int = 5) -> list[Choice]:
        """The likeliest tokens after a prompt."""
        shares = self.logits(self.prompt(given))[-1].double().softmax(-1)
        best = shares.topk(min(n, len(shares)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [Choice(self.tokens.texts[token], token, share) for token, share in pairs]

    def stream(
        self, prompt: Given = "", tokens: int = 500, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
        seed: int = 0, n: int = 1, hop: int | None = None,
    ) -> Iterator[Piece]:  # fmt: skip
        """The tokens of n samples as they come; an equation ends with its EOS."""
        ids = self.prompt(prompt)
        decoders = [self._decoder_after(prompt) for _ in range(n)]
        live = set(range(n))
        start, filters = torch.from_numpy(ids)[None, None], Filters(temperature, top_k, top_p)
        for drawn in sample(self.model, self.context, start, tokens, [seed], n, filters, hop):
            for i, (token, log_probability) in enumerate(_pairs(drawn.tokens, drawn.log_probabilities)):
                if i in live:
                    yield Piece(i, decoders[i].feed([token]), token, log_probability)
                    if isinstance(self.tokens, Equations) and token == self.tokens.end:
                        live.discard(i)
            if not live:
                break
        for i in sorted(live):
            if rest := decoders[i].end():
                yield Piece(i, rest)

    def sample(
        self, prompt: Given = "", tokens: int = 500, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
        seed: int = 0, n: int = 1, hop: int | None = None,
    ) -> list[Sample]:  # fmt: skip
        """n texts that go on from a prompt."""
        pieces = list(self.stream(prompt, tokens, temperature, top_k, top_p, seed, n, hop))
        given = prompt if isinstance(prompt, str) else self.tokens.decode(self.encode(prompt))
        return [gathered(given, [piece for piece in pieces if piece.sample == i]) for i in range(n)]

    def surprisal(self, given: Given, alternatives: int = 5) -> Surprisal:
        """The loss of each token of a text."""
        if isinstance(self.model, Encoder):
            raise UsageError(f"run {self.run.id} tells labels, not the next token; surprisal needs a gpt or an lstm")
        return surprisal(self.model, self.tokens, self.encode(given), self.context, alternatives)

    def _decoder_after(self, prompt: Given) -> StreamDecoder:
        """A decoder that has seen the prompt, so that spaces and split characters go on from there."""
        decoder = self.tokens.decoder()
        decoder.feed(self.encode(prompt).tolist())
        return decoder


def gathered(prompt: str, pieces: Sequence[Piece]) -> Sample:
    """The pieces of one sample put together."""
    drawn = [(piece.token, piece.log_probability) for piece in pieces if piece.token is not None]
    text = "".join(piece.text for piece in pieces)
    return Sample(prompt, text, tuple(token for token, _ in drawn), tuple(logs for _, logs in drawn))


def _pairs(tokens: Tensor, log_probabilities: Tensor) -> Iterator[tuple[int, float]]:
    logs = log_probabilities[0].tolist()
    if not np.isfinite(logs).all():
        raise UsageError("the model's logits are not finite: the run diverged; load an earlier step")
    return zip(tokens[0].tolist(), logs, strict=True)


def _built(run: StoredRun, weights: Arrays) -> nn.Module:
    if not isinstance(run.settings.task, Arithmetic) and run_id(run.settings, run.seed) != run.id:
        raise MissingData(
            f"the data of run {run.id} ({run.settings.task.corpus}) is not what it was trained on; "
            "put the same text back, since its vocabulary is part of the model"
        )
    step = torch.zeros(1, dtype=torch.int64)
    model, bank = build_pack([run.settings], [run.seed], step, torch.float32, facts_of(run.settings.task))
    load_kept(model, bank, 0, weights)
    return model.eval()
