"""A trained run, ready to generate text, predict next tokens, score text and expose its activations.

    model = seedbed.load("3f2a")          # a run id or a prefix of it
    model.sample("my lord", tokens=200, temperature=0.8)[0].text
    model.surprisal("Some text").bits_per_character

Every method takes text or token ids. Where the weights come from is left to the caller.
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
from torch import Tensor

from seedbed.data.datasets import tokenizer_from_vocabulary
from seedbed.data.suffix_array import CopiedSpan
from seedbed.data.tokenizers import PAD_ID, UNKNOWN_TOKEN, StreamDecoder, Tokenizer, check_ids
from seedbed.errors import MissingData, UsageError
from seedbed.models.build import load_pack
from seedbed.models.hooks import attention_patterns, get_activations
from seedbed.models.sequence_model import SequenceModel, eval_mode
from seedbed.records import Arrays, StoredRun, Vocabulary
from seedbed.sampling.classifier import class_probabilities, rank_classes
from seedbed.sampling.copy_detection import find_training_copies
from seedbed.sampling.filters import SamplingFilters
from seedbed.sampling.results import (
    ActivationCache,
    AttentionTensor,
    ClassProbabilities,
    Sample,
    Samples,
    StreamChunk,
    TokenProbabilities,
    TokenProbability,
)
from seedbed.sampling.sampler import stream_tokens
from seedbed.sampling.surprisal import Surprisal, compute_surprisal
from seedbed.settings import DatasetInfo
from seedbed.study.plan import compute_run_id
from seedbed.study.run_data import require_training_data
from seedbed.tasks.base import AnalysisInputs

TextOrIds: TypeAlias = str | Sequence[int] | NDArray[np.integer]
DEFAULT_PROMPTS = ("\n", ".", " ")  # an empty prompt becomes the first of these that is a single token


class LoadedRun:
    """The model of a run at one checkpoint; `render_attention` returns its attention as HTML for a notebook."""

    def __init__(
        self,
        run: StoredRun,
        step: int,
        weights: Arrays,
        render_attention: Callable[[LoadedRun, TextOrIds], str] | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self.run, self.step, self._render_attention = run, step, render_attention
        task = run.settings.task
        if vocabulary is None:
            _require_vocabulary(run)
            vocabulary = task.dataset_vocabulary()
        self.dataset_info: DatasetInfo = run.dataset_info or task.dataset_info()
        self.context, self._eos_id = self.dataset_info.context_length, self.dataset_info.eos_id
        self.tokenizer: Tokenizer = (
            task.load_tokenizer() if vocabulary is None else tokenizer_from_vocabulary(vocabulary)
        )
        self.label_names: tuple[str, ...] = task.label_names() if vocabulary is None else vocabulary.label_names
        self.model = _build_model(run, weights, self.dataset_info)

    def __repr__(self) -> str:
        return f"<run {self.run.id} at step {self.step:,}: {self.run.settings.model.kind}, {self.tokenizer.kind}>"

    @property
    def token_texts(self) -> tuple[str, ...]:
        """The text of each token by id, as a person reads it."""
        return self.tokenizer.readable_texts

    def encode(self, text: TextOrIds) -> NDArray[np.int64]:
        """Token ids of a text; ids are checked and passed through."""
        if isinstance(text, str):
            return self.tokenizer.encode(text).astype(np.int64)
        return np.fromiter(check_ids(text, self.tokenizer.size), dtype=np.int64)

    def logits(self, text: TextOrIds) -> Float[Tensor, "T V"]:
        """Next-token logits at each position; the logits of the labels for a classifier."""
        with eval_mode(self.model):
            return self.model(self.model_input(text))[0, 0].clone()

    def activations(self, text: TextOrIds, *patterns: str) -> ActivationCache:
        """Activations at the hooks that match the patterns (docs/hooks.md), by name; at all hooks without a pattern."""
        values = get_activations(self.model, self.model_input(text), *(patterns or ("*",)))
        return ActivationCache({name: value[0, 0] for name, value in values.items()})

    def attention(self, text: TextOrIds) -> AttentionTensor:
        """Attention weights of every layer and head, (L, H, T, S); row t holds the weights of query t and sums to 1.

        An encoder's include the padding it attends to; `padding` marks those tokens, `pieces` holds all token texts.
        """
        tokens = self.model_input(text)
        patterns = attention_patterns(self.model, tokens)
        if not patterns:
            raise UsageError(f"run {self.run.id} is an {self.run.settings.model.kind} and has no attention")
        weights, n = torch.stack([pattern[0, 0] for pattern in patterns]), len(self.encode(text))
        padding = [position >= n for position in range(tokens.shape[-1])]
        pieces = [self.token_texts[token] for token in tokens[0, 0].tolist()]
        render = self._render_attention
        return AttentionTensor.from_weights(
            weights, pieces, padding, None if render is None else lambda: render(self, text)
        )

    def model_input(self, text: TextOrIds) -> Int[Tensor, "1 1 T"]:
        """Token ids as a (1, 1, T) tensor, checked against the context; padded for an encoder, as in training."""
        ids = self.encode(text)
        family = self.run.settings.model
        max_tokens = family.max_context(self.context)
        if len(ids) == 0 or (max_tokens is not None and len(ids) > max_tokens):
            limit = " or more" if max_tokens is None else f" to {max_tokens}, the context of the model"
            raise UsageError(f"the text has {len(ids)} tokens; expected 1{limit}")
        ids = np.pad(ids, (0, self.context - len(ids)), constant_values=PAD_ID) if family.pads_inputs else ids
        return torch.from_numpy(ids)[None, None]

    def default_prompt_ids(self) -> NDArray[np.int64]:
        """Token ids used for an empty prompt: BOS, or the end of a line, a sentence or a word."""
        if self.run.settings.task.completes_prompts:
            return self.encode("")
        for text in DEFAULT_PROMPTS:
            try:
                ids = self.tokenizer.encode(text)
            except UsageError:
                continue
            if len(ids) == 1 and self.tokenizer.texts[ids[0]] != UNKNOWN_TOKEN:
                return ids.astype(np.int64)
        return np.array([PAD_ID + 1])

    def encode_prompt(self, prompt: TextOrIds) -> NDArray[np.int64]:
        """Token ids of a prompt, truncated to its last `context` tokens."""
        ids = self.encode(prompt)
        if self.run.settings.task.completes_prompts and len(ids) > self.context:
            raise UsageError(f"the prompt has {len(ids)} tokens with BOS; an equation of this task has {self.context}")
        return (ids if len(ids) else self.default_prompt_ids())[-self.context :]

    def classify(self, text: TextOrIds) -> ClassProbabilities:
        """The probability of each class of a text, most likely first; longer texts are cut, as in training."""
        return rank_classes(self.label_names, class_probabilities(self, [text])[0])

    def top_next_tokens(self, prompt: TextOrIds = "", n: int = 5) -> TokenProbabilities:
        """The n most likely tokens after a prompt."""
        self.require_next_token("has no next token")
        probabilities = self.logits(self.encode_prompt(prompt))[-1].double().softmax(-1)
        top = probabilities.topk(min(n, len(probabilities)))
        pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        return TokenProbabilities(TokenProbability(self.token_texts[token], token, p) for token, p in pairs)

    def stream(
        self, prompt: TextOrIds = "", tokens: int = 500, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
        seed: int = 0, n: int = 1, hop: int | None = None,
    ) -> Iterator[StreamChunk]:  # fmt: skip
        """Yields the tokens of n samples as they are generated; an equation ends with EOS."""
        return self.stream_with_model(self.model, 1, prompt, tokens, temperature, top_k, top_p, seed, n, hop)

    def stream_with_model(
        self, model: SequenceModel, n_runs: int, prompt: TextOrIds = "", tokens: int = 500, temperature: float = 1.0,
        top_k: int = 0, top_p: float = 1.0, seed: int = 0, n: int = 1, hop: int | None = None,
    ) -> Iterator[StreamChunk]:  # fmt: skip
        """Like `stream`, with a model that stacks several runs that share this run's tokenizer."""
        self.require_next_token("generates no text")
        filters = SamplingFilters(temperature, top_k, top_p)
        prompt_ids = torch.from_numpy(self.encode_prompt(prompt))[None, None]
        decoders = {(run, i): self._stream_decoder(prompt) for run in range(n_runs) for i in range(n)}
        for sampled in stream_tokens(model, self.context, prompt_ids, tokens, [seed] * n_runs, n, filters, hop):
            log_probabilities = _finite_log_probabilities(sampled.log_probabilities)
            values = zip(sampled.tokens.flatten().tolist(), log_probabilities, strict=True)
            for (run, i), (token, log_probability) in zip(product(range(n_runs), range(n)), values, strict=True):
                if (run, i) in decoders:
                    yield StreamChunk(i, decoders[run, i].feed([token]), token, log_probability, run)
                    if token == self._eos_id:
                        del decoders[run, i]
            if not decoders:
                break
        for (run, i), decoder in decoders.items():
            if remainder := decoder.flush():
                yield StreamChunk(i, remainder, run=run)

    def sample(
        self, prompt: TextOrIds = "", tokens: int = 500, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
        seed: int = 0, n: int = 1, hop: int | None = None, copied: bool = False,
    ) -> Samples:  # fmt: skip
        """Generates n continuations of a prompt; `copied` also finds their spans copied from the training text."""
        samples = self.collect_samples(prompt, self.stream(prompt, tokens, temperature, top_k, top_p, seed, n, hop))
        return self.mark_copies(samples) if copied else samples

    def collect_samples(self, prompt: TextOrIds, chunks: Iterable[StreamChunk]) -> Samples:
        """Joins the streamed chunks of this run into samples."""
        prompt_text = prompt if isinstance(prompt, str) else self.tokenizer.decode(self.encode(prompt))
        by_sample: defaultdict[int, list[StreamChunk]] = defaultdict(list)
        for chunk in chunks:
            by_sample[chunk.sample].append(chunk)
        return Samples(join_chunks(prompt_text, by_sample[number]) for number in sorted(by_sample))

    def mark_copies(self, samples: Samples) -> Samples:
        """The samples with their spans that are copied from the training text."""
        return Samples(replace(one, copied_spans=self.find_training_copies(one.text)) for one in samples)

    def find_training_copies(self, text: str) -> tuple[CopiedSpan, ...]:
        """Spans of a text, at least 20 characters long, that occur verbatim in the training text."""
        if not self.run.settings.task.generates_text:
            raise UsageError(f"run {self.run.id} has no training text; copied spans exist for text tasks only")
        [spans] = find_training_copies(self.run, [text])
        return spans

    def analysis_inputs(self, n: int) -> AnalysisInputs:
        """Up to n inputs that the run was not trained on; MissingData if its text is gone or has changed."""
        require_training_data(self.run)
        inputs: AnalysisInputs = self.run.settings.task.analysis_inputs(self.run.seed, n)
        return inputs

    def surprisal(self, text: TextOrIds, n_alternatives: int = 5) -> Surprisal:
        """Loss of each token of a text, with the most likely alternatives."""
        self.require_next_token("has no surprisal")
        return compute_surprisal(self.model, self.tokenizer, self.encode(text), self.context, n_alternatives)

    def require_next_token(self, problem: str) -> None:
        """UsageError for a classifier, which says what to use instead."""
        if self.run.settings.task.predicts == "label":
            raise UsageError(
                f"run {self.run.id} is a classifier and {problem}; use `seedbed classify {self.run.id} TEXT`, "
                "or `classify(text)` in Python"
            )

    def _stream_decoder(self, prompt: TextOrIds) -> StreamDecoder:
        """A stream decoder that has consumed the prompt, so spaces and multi-token characters continue correctly."""
        decoder = self.tokenizer.decoder()
        decoder.feed(self.encode(prompt).tolist())
        return decoder


def join_chunks(prompt: str, chunks: Sequence[StreamChunk]) -> Sample:
    """Joins the chunks of one sample."""
    # The last chunk may have text but no token: the rest of an incomplete character.
    with_token = [chunk for chunk in chunks if chunk.token is not None]
    return Sample(
        prompt,
        "".join(chunk.text for chunk in chunks),
        tuple(chunk.token for chunk in with_token if chunk.token is not None),
        tuple(chunk.log_probability for chunk in with_token),
        tuple(chunk.text for chunk in with_token),
    )


def _finite_log_probabilities(log_probabilities: Tensor) -> list[float]:
    values: list[float] = log_probabilities.flatten().tolist()
    if not np.isfinite(values).all():
        raise UsageError("the model's logits are not finite: the run diverged; load an earlier step")
    return values


def _require_vocabulary(run: StoredRun) -> None:
    """MissingData unless the run's vocabulary, which was not kept with it, can be built from its corpus again."""
    try:
        require_training_data(run)
    except MissingData as error:
        raise MissingData(
            f"{error}; the run was stored by a version of seedbed that did not keep its vocabulary: put the text back "
            "as it was, and run its study again, which keeps the vocabulary from then on"
        ) from None


def _build_model(run: StoredRun, weights: Arrays, info: DatasetInfo) -> SequenceModel:
    path = run.settings.model.embeddings
    if path is not None and compute_run_id(run.settings, run.seed, info.digest) != run.id:
        raise MissingData(f"model.embeddings = {path} is not the file that run {run.id} was trained with; put it back")
    return load_pack(run.settings, [weights], torch.device("cpu"), info)
