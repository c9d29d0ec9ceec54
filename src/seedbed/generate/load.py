"""One trained run, ready to be asked: what it writes, what it expects, what surprises it.

    model = seedbed.load("3f2a")          # a run's id, or the start of it
    model.sample("my lord", tokens=200, temperature=0.8)[0].text
    model.surprisal("Some text").bits_per_character

Texts and token ids are taken alike. Where the weights come from is left to the caller.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from seedbed.data.facts import facts_of
from seedbed.data.prepared import tokens_of
from seedbed.data.text import PAD, UNKNOWN_TEXT, StreamDecoder, Tokens, checked
from seedbed.data.verbatim import Span
from seedbed.errors import MissingData, UsageError
from seedbed.generate.copied import copied_spans
from seedbed.generate.equations import Equations
from seedbed.generate.filters import Filters
from seedbed.generate.memory import evaluating
from seedbed.generate.results import Attention, Choice, Choices, Piece, Sample, Samples, Tapped
from seedbed.generate.sample import sample
from seedbed.generate.surprisal import Surprisal, surprisal
from seedbed.models.build import build_pack, load_kept
from seedbed.models.encoder import Encoder
from seedbed.models.gpt import GPT
from seedbed.models.taps import attention_patterns, tap_values
from seedbed.records import Arrays, StoredRun
from seedbed.settings import Arithmetic, Text
from seedbed.study.plan import run_id

Given: TypeAlias = str | Sequence[int] | NDArray[np.integer]
STARTS = ("\n", ".", " ")  # after which a text is begun where no prompt is given: the first that is one token


class Loaded:
    """A run's model at one kept step; `draw` makes HTML of its attention for a notebook."""

    def __init__(
        self, run: StoredRun, step: int, weights: Arrays, draw: Callable[[Loaded, Given], str] | None = None
    ) -> None:
        self.run, self.step, self._draw = run, step, draw
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

    def tap(self, given: Given, *patterns: str) -> Tapped:
        """What the model computes at the named places (docs/taps.md), by name; all places when none is named."""
        values = tap_values(self.model, self._readable(given), *(patterns or ("*",)))
        return Tapped({name: value[0, 0] for name, value in values.items()})

    def attention(self, given: Given) -> Attention:
        """The weights of every layer and head, (L, H, T, S); row t is what token t looks at and sums to 1.

        An encoder's include the padding that it reads; `padding` tells which tokens that is, `pieces` their texts.
        """
        tokens = self._readable(given)
        patterns = attention_patterns(self.model, tokens)
        if not patterns:
            raise UsageError(f"run {self.run.id} is an {self.run.settings.model.kind} and has no attention")
        weights, n = torch.stack([pattern[0, 0] for pattern in patterns]), len(self.encode(given))
        padding = [place >= n for place in range(tokens.shape[-1])]
        pieces = [self.tokens.texts[one] for one in tokens[0, 0].tolist()]
        draw = self._draw
        return Attention.of(weights, pieces, padding, None if draw is None else lambda: draw(self, given))

    def _readable(self, given: Given) -> Int[Tensor, "1 1 T"]:
        """The tokens as the model takes them, if it can; an encoder reads its text padded, as in training."""
        ids = self.encode(given)
        is_encoder = isinstance(self.model, Encoder)
        has_end = is_encoder or (isinstance(self.model, GPT) and self.model.position_table is not None)
        if len(ids) == 0 or (has_end and len(ids) > self.context):
            most = f" to {self.context}, the context of the model" if has_end else " or more"
            raise UsageError(f"the text has {len(ids)} tokens; expected 1{most}")
        ids = np.pad(ids, (0, self.context - len(ids)), constant_values=PAD) if is_encoder else ids
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

    def choices(self, given: Given = "", n: int = 5) -> Choices:
        """The likeliest tokens after a prompt."""
        shares = self.logits(self.prompt(given))[-1].double().softmax(-1)
        best = shares.topk(min(n, len(shares)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return Choices(Choice(self.tokens.texts[token], token, share) for token, share in pairs)

    def stream(
        self, prompt: Given = "", tokens: int = 500, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
        seed: int = 0, n: int = 1, hop: int | None = None,
    ) -> Iterator[Piece]:  # fmt: skip
        """The tokens of n samples as they come; an equation ends with its EOS."""
        return self.stream_by(self.model, 1, prompt, tokens, temperature, top_k, top_p, seed, n, hop)

    def stream_by(
        self, model: nn.Module, n_runs: int, prompt: Given = "", tokens: int = 500, temperature: float = 1.0,
        top_k: int = 0, top_p: float = 1.0, seed: int = 0, n: int = 1, hop: int | None = None,
    ) -> Iterator[Piece]:  # fmt: skip
        """As `stream`, by a model that holds several runs with this one's tokens."""
        start, filters = torch.from_numpy(self.prompt(prompt))[None, None], Filters(temperature, top_k, top_p)
        decoders = {(run, i): self._decoder_after(prompt) for run in range(n_runs) for i in range(n)}
        for drawn in sample(model, self.context, start, tokens, [seed] * n_runs, n, filters, hop):
            values = zip(drawn.tokens.flatten().tolist(), _finite(drawn.log_probabilities), strict=True)
            for (run, i), (token, log_probability) in zip(product(range(n_runs), range(n)), values, strict=True):
                if (run, i) in decoders:
                    yield Piece(i, decoders[run, i].feed([token]), token, log_probability, run)
                    if isinstance(self.tokens, Equations) and token == self.tokens.end:
                        del decoders[run, i]
            if not decoders:
                break
        for (run, i), decoder in decoders.items():
            if rest := decoder.end():
                yield Piece(i, rest, run=run)

    def sample(
        self, prompt: Given = "", tokens: int = 500, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
        seed: int = 0, n: int = 1, hop: int | None = None, copied: bool = False,
    ) -> Samples:  # fmt: skip
        """n texts that go on from a prompt; with `copied`, what of them stands verbatim in the training text."""
        samples = self.gathered(prompt, self.stream(prompt, tokens, temperature, top_k, top_p, seed, n, hop))
        return Samples(replace(one, copied=self.copied(one.text)) for one in samples) if copied else samples

    def gathered(self, prompt: Given, pieces: Iterable[Piece]) -> Samples:
        """The pieces of this run, put together by sample."""
        given = prompt if isinstance(prompt, str) else self.tokens.decode(self.encode(prompt))
        by_sample: defaultdict[int, list[Piece]] = defaultdict(list)
        for piece in pieces:
            by_sample[piece.sample].append(piece)
        return Samples(gathered(given, by_sample[number]) for number in sorted(by_sample))

    def copied(self, text: str) -> tuple[Span, ...]:
        """The stretches of a text, 20 characters or longer, that stand verbatim in the training text."""
        if not isinstance(self.run.settings.task, Text):
            raise UsageError(f"run {self.run.id} has no training text; copied spans are those of text tasks")
        [spans] = copied_spans(self.run.settings.task, [text])
        return spans

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
    drawn = [piece for piece in pieces if piece.token is not None]
    return Sample(
        prompt,
        "".join(piece.text for piece in pieces),
        tuple(piece.token for piece in drawn if piece.token is not None),
        tuple(piece.log_probability for piece in drawn),
        tuple(piece.text for piece in drawn),
    )


def _finite(log_probabilities: Tensor) -> list[float]:
    logs: list[float] = log_probabilities.flatten().tolist()
    if not np.isfinite(logs).all():
        raise UsageError("the model's logits are not finite: the run diverged; load an earlier step")
    return logs


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
