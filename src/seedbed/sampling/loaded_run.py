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

from seedbed.data.dataset_info import get_dataset_info
from seedbed.data.datasets import load_tokenizer
from seedbed.data.suffix_array import CopiedSpan
from seedbed.data.tokenizers import PAD_ID, UNKNOWN_TOKEN, StreamDecoder, Tokenizer, check_ids
from seedbed.errors import MissingData, UsageError
from seedbed.models.build import build_pack, load_run_arrays
from seedbed.models.encoder import Encoder
from seedbed.models.gpt import GPT
from seedbed.models.hooks import attention_patterns, get_activations
from seedbed.records import Arrays, StoredRun
from seedbed.sampling.copy_detection import find_training_copies
from seedbed.sampling.equation_tokenizer import EquationTokenizer
from seedbed.sampling.filters import SamplingFilters
from seedbed.sampling.kv_cache import eval_mode
from seedbed.sampling.results import (
    ActivationCache,
    AttentionTensor,
    Sample,
    Samples,
    StreamChunk,
    TokenProbabilities,
    TokenProbability,
)
from seedbed.sampling.sampler import stream_tokens
from seedbed.sampling.surprisal import Surprisal, compute_surprisal
from seedbed.settings import ArithmeticSettings, TextSettings
from seedbed.study.plan import compute_run_id

TextOrIds: TypeAlias = str | Sequence[int] | NDArray[np.integer]
DEFAULT_PROMPTS = ("\n", ".", " ")  # after which a text is begun where no prompt is given: the first that is one token


class LoadedRun:
    """A run's model at one kept step; `draw` makes HTML of its attention for a notebook."""

    def __init__(
        self,
        run: StoredRun,
        step: int,
        weights: Arrays,
        render_attention: Callable[[LoadedRun, TextOrIds], str] | None = None,
    ) -> None:
        self.run, self.step, self._render_attention = run, step, render_attention
        task = run.settings.task
        self.context = get_dataset_info(task).context_length
        self.tokenizer: Tokenizer | EquationTokenizer = (
            EquationTokenizer(task) if isinstance(task, ArithmeticSettings) else load_tokenizer(task)
        )
        self.model = _build_model(run, weights)

    def __repr__(self) -> str:
        return f"<run {self.run.id} at step {self.step:,}: {self.run.settings.model.kind}, {self.tokenizer.kind}>"

    def encode(self, text: TextOrIds) -> NDArray[np.int64]:
        """The ids of a text, or ids as they are."""
        if isinstance(text, str):
            return self.tokenizer.encode(text).astype(np.int64)
        return np.fromiter(check_ids(text, self.tokenizer.size), dtype=np.int64)

    def logits(self, text: TextOrIds) -> Float[Tensor, "T V"]:
        """Of the token after each token; of the labels, where the model tells them."""
        with eval_mode(self.model):
            return self.model(self._model_input(text))[0, 0].clone()

    def activations(self, text: TextOrIds, *patterns: str) -> ActivationCache:
        """What the model computes at the named places (docs/hooks.md), by name; all places when none is named."""
        values = get_activations(self.model, self._model_input(text), *(patterns or ("*",)))
        return ActivationCache({name: value[0, 0] for name, value in values.items()})

    def attention(self, text: TextOrIds) -> AttentionTensor:
        """The weights of every layer and head, (L, H, T, S); row t is what token t looks at and sums to 1.

        An encoder's include the padding that it reads; `padding` tells which tokens that is, `pieces` their texts.
        """
        tokens = self._model_input(text)
        patterns = attention_patterns(self.model, tokens)
        if not patterns:
            raise UsageError(f"run {self.run.id} is an {self.run.settings.model.kind} and has no attention")
        weights, n = torch.stack([pattern[0, 0] for pattern in patterns]), len(self.encode(text))
        padding = [place >= n for place in range(tokens.shape[-1])]
        pieces = [self.tokenizer.texts[one] for one in tokens[0, 0].tolist()]
        draw = self._render_attention
        return AttentionTensor.from_weights(
            weights, pieces, padding, None if draw is None else lambda: draw(self, text)
        )

    def _model_input(self, text: TextOrIds) -> Int[Tensor, "1 1 T"]:
        """The tokens as the model takes them, if it can; an encoder reads its text padded, as in training."""
        ids = self.encode(text)
        is_encoder = isinstance(self.model, Encoder)
        has_end = is_encoder or (isinstance(self.model, GPT) and self.model.position_table is not None)
        if len(ids) == 0 or (has_end and len(ids) > self.context):
            most = f" to {self.context}, the context of the model" if has_end else " or more"
            raise UsageError(f"the text has {len(ids)} tokens; expected 1{most}")
        ids = np.pad(ids, (0, self.context - len(ids)), constant_values=PAD_ID) if is_encoder else ids
        return torch.from_numpy(ids)[None, None]

    def default_prompt_ids(self) -> NDArray[np.int64]:
        """What an empty prompt stands for: BOS, or the end of a line, of a sentence or of a word."""
        if isinstance(self.tokenizer, EquationTokenizer):
            return np.array([self.tokenizer.bos_id])
        for text in DEFAULT_PROMPTS:
            try:
                ids = self.tokenizer.encode(text)
            except UsageError:
                continue
            if len(ids) == 1 and self.tokenizer.texts[ids[0]] != UNKNOWN_TOKEN:
                return ids.astype(np.int64)
        return np.array([PAD_ID + 1])

    def encode_prompt(self, prompt: TextOrIds) -> NDArray[np.int64]:
        """The ids that a sample begins with: at most the last `context` of what is given."""
        ids = self.encode(prompt)
        if isinstance(self.tokenizer, EquationTokenizer) and len(ids) > self.context:
            raise UsageError(f"the prompt has {len(ids)} tokens with BOS; an equation of this task has {self.context}")
        return (ids if len(ids) else self.default_prompt_ids())[-self.context :]

    def top_next_tokens(self, prompt: TextOrIds = "", n: int = 5) -> TokenProbabilities:
        """The likeliest tokens after a prompt."""
        shares = self.logits(self.encode_prompt(prompt))[-1].double().softmax(-1)
        best = shares.topk(min(n, len(shares)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return TokenProbabilities(TokenProbability(self.tokenizer.texts[token], token, share) for token, share in pairs)

    def stream(
        self, prompt: TextOrIds = "", tokens: int = 500, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
        seed: int = 0, n: int = 1, hop: int | None = None,
    ) -> Iterator[StreamChunk]:  # fmt: skip
        """The tokens of n samples as they come; an equation ends with its EOS."""
        return self.stream_with_model(self.model, 1, prompt, tokens, temperature, top_k, top_p, seed, n, hop)

    def stream_with_model(
        self, model: nn.Module, n_runs: int, prompt: TextOrIds = "", tokens: int = 500, temperature: float = 1.0,
        top_k: int = 0, top_p: float = 1.0, seed: int = 0, n: int = 1, hop: int | None = None,
    ) -> Iterator[StreamChunk]:  # fmt: skip
        """As `stream`, by a model that holds several runs with this one's tokens."""
        start, filters = (
            torch.from_numpy(self.encode_prompt(prompt))[None, None],
            SamplingFilters(temperature, top_k, top_p),
        )
        decoders = {(run, i): self._stream_decoder(prompt) for run in range(n_runs) for i in range(n)}
        for drawn in stream_tokens(model, self.context, start, tokens, [seed] * n_runs, n, filters, hop):
            values = zip(
                drawn.tokens.flatten().tolist(), _finite_log_probabilities(drawn.log_probabilities), strict=True
            )
            for (run, i), (token, log_probability) in zip(product(range(n_runs), range(n)), values, strict=True):
                if (run, i) in decoders:
                    yield StreamChunk(i, decoders[run, i].feed([token]), token, log_probability, run)
                    if isinstance(self.tokenizer, EquationTokenizer) and token == self.tokenizer.eos_id:
                        del decoders[run, i]
            if not decoders:
                break
        for (run, i), decoder in decoders.items():
            if rest := decoder.flush():
                yield StreamChunk(i, rest, run=run)

    def sample(
        self, prompt: TextOrIds = "", tokens: int = 500, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
        seed: int = 0, n: int = 1, hop: int | None = None, copied: bool = False,
    ) -> Samples:  # fmt: skip
        """n texts that go on from a prompt; with `copied`, what of them stands verbatim in the training text."""
        samples = self.collect_samples(prompt, self.stream(prompt, tokens, temperature, top_k, top_p, seed, n, hop))
        return (
            Samples(replace(one, copied_spans=self.find_training_copies(one.text)) for one in samples) if copied else samples
        )

    def collect_samples(self, prompt: TextOrIds, chunks: Iterable[StreamChunk]) -> Samples:
        """The pieces of this run, put together by sample."""
        given = prompt if isinstance(prompt, str) else self.tokenizer.decode(self.encode(prompt))
        by_sample: defaultdict[int, list[StreamChunk]] = defaultdict(list)
        for piece in chunks:
            by_sample[piece.sample].append(piece)
        return Samples(join_chunks(given, by_sample[number]) for number in sorted(by_sample))

    def find_training_copies(self, text: str) -> tuple[CopiedSpan, ...]:
        """The stretches of a text, 20 characters or longer, that stand verbatim in the training text."""
        if not isinstance(self.run.settings.task, TextSettings):
            raise UsageError(f"run {self.run.id} has no training text; copied spans are those of text tasks")
        [spans] = find_training_copies(self.run.settings.task, [text])
        return spans

    def surprisal(self, text: TextOrIds, n_alternatives: int = 5) -> Surprisal:
        """The loss of each token of a text."""
        if isinstance(self.model, Encoder):
            raise UsageError(f"run {self.run.id} tells labels, not the next token; surprisal needs a gpt or an lstm")
        return compute_surprisal(self.model, self.tokenizer, self.encode(text), self.context, n_alternatives)

    def _stream_decoder(self, prompt: TextOrIds) -> StreamDecoder:
        """A decoder that has seen the prompt, so that spaces and split characters go on from there."""
        decoder = self.tokenizer.decoder()
        decoder.feed(self.encode(prompt).tolist())
        return decoder


def join_chunks(prompt: str, chunks: Sequence[StreamChunk]) -> Sample:
    """The pieces of one sample put together."""
    drawn = [piece for piece in chunks if piece.token is not None]
    return Sample(
        prompt,
        "".join(piece.text for piece in chunks),
        tuple(piece.token for piece in drawn if piece.token is not None),
        tuple(piece.log_probability for piece in drawn),
        tuple(piece.text for piece in drawn),
    )


def _finite_log_probabilities(log_probabilities: Tensor) -> list[float]:
    logs: list[float] = log_probabilities.flatten().tolist()
    if not np.isfinite(logs).all():
        raise UsageError("the model's logits are not finite: the run diverged; load an earlier step")
    return logs


def _build_model(run: StoredRun, weights: Arrays) -> nn.Module:
    if not isinstance(run.settings.task, ArithmeticSettings) and compute_run_id(run.settings, run.seed) != run.id:
        raise MissingData(
            f"the data of run {run.id} ({run.settings.task.corpus}) is not what it was trained on; "
            "put the same text back, since its vocabulary is part of the model"
        )
    step = torch.zeros(1, dtype=torch.int64)
    model, bank = build_pack([run.settings], [run.seed], step, torch.float32, get_dataset_info(run.settings.task))
    load_run_arrays(model, bank, 0, weights)
    return model.eval()
