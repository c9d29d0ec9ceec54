"""What tasks of equations have in common: the table of all equations, their tokenizer, and most of the Task contract.

A kind of equation says how its equations are written (`vocabulary`, `build_table`) and split (`split_rows`); see
`arithmetic.py` and `addition.py`. Every equation begins with BOS and ends with EOS, and what follows `=` is scored.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from seedbed.data.tokenizers import PieceTokenizer, StreamDecoder, TokenIds, WordStreamDecoder, check_ids
from seedbed.errors import UsageError
from seedbed.settings import Conflict, DatasetInfo, Settings, TrainSettings, Value, setting
from seedbed.tasks.base import AnalysisInputs, BatchLimits, Bools, Ints, Task, evenly_spaced_indices

if TYPE_CHECKING:
    from seedbed.tasks.equation_batches import EquationBatches

SPECIAL_TOKENS = ("=", "BOS", "EOS", "PAD")  # after the numbers and the operator, in this order
VISIBLE_SPECIAL_TOKEN = "="  # the other special tokens (BOS, EOS, PAD) are left out of decoded text
_TOKEN_PATTERN = re.compile(r"\d+|[A-Z]+|\S")
_DIGIT_PATTERN = re.compile(r"\d|[A-Z]+|\S")


@dataclass(frozen=True)
class EquationTable:
    """All equations of a task: N rows of context + 1 tokens, shorter equations padded on the right."""

    tokens: Ints  # (N, T + 1)
    scored_positions: Ints  # (N, K) input positions whose next token is scored
    is_scored: Bools | None = None  # (N, K), False where an equation has fewer scored tokens; None: all have K
    groups: Mapping[str, Bools] = field(default_factory=dict)  # metric suffix → (N,) equations with their own

    @property
    def n_scored(self) -> Ints:
        """Scored tokens of each equation."""
        n, k = self.scored_positions.shape
        return np.full(n, k) if self.is_scored is None else self.is_scored.sum(1)


def train_fraction_setting() -> Any:
    """The setting `train_fraction`."""
    return setting(
        0.5,
        "share of the equations used for training (r_train)",
        label="training fraction r_train",
        per_run=True,
        gt=0.0,
        le=1.0,
    )


class EquationTask(Task):
    """A task whose data is a table of equations, which the settings determine."""

    if TYPE_CHECKING:  # every kind declares it itself, among its other settings
        train_fraction: float

    whole_epochs: ClassVar[bool] = True  # as in the course's code
    completes_prompts: ClassVar[bool] = True

    @abstractmethod
    def vocabulary(self) -> list[str]:
        """Token strings by id: numbers, the operator, and SPECIAL_TOKENS."""

    @abstractmethod
    def build_table(self) -> EquationTable:
        """Every equation of the task."""

    @abstractmethod
    def split_rows(self, seed: int) -> tuple[Ints, Ints]:
        """Rows of the training and validation equations of a run with this seed."""

    @abstractmethod
    def shape_key(self) -> tuple[int, ...]:
        """Sizes of the table, which tables of one pack must share; its sum is the number of equations."""

    @abstractmethod
    def max_tokens(self) -> int:
        """Tokens of the longest equation that the model reads: all but its EOS."""

    def split_conflicts(self, n: int, n_train: int) -> Iterator[Conflict]:
        """A conflict if n equations, of which n_train train, leave nothing to train on or to validate with."""
        if n_train == 0 or (n_train == n and self.train_fraction < 1):
            empty = "training" if n_train == 0 else "validation"
            why = f"task.train_fraction = {self.train_fraction} of {n} equations leaves no {empty} sample"
            yield "task.train_fraction", why

    def table_key(self) -> Value:
        """Tasks with equal keys have equal tables; the split is left out."""
        return self.model_copy(update={"train_fraction": 1.0})

    def n_eval_samples(self, train: TrainSettings, info: DatasetInfo) -> int:
        return sum(self.shape_key()) if {"train", "val"}.intersection(train.eval_sets) else 0

    def load_tokenizer(self) -> EquationTokenizer:
        return EquationTokenizer(tuple(self.vocabulary()), self.max_tokens())

    def make_batches(
        self, settings: Sequence[Settings], seeds: Sequence[int], device: str, limits: BatchLimits
    ) -> EquationBatches:
        from seedbed.tasks.equation_batches import EquationBatches

        return EquationBatches(settings, seeds, device, limits)

    def analysis_inputs(self, seed: int, n: int) -> AnalysisInputs:
        table, (_, held_out) = self.build_table(), self.split_rows(seed)
        rows = np.sort(held_out)[evenly_spaced_indices(len(held_out), n)]
        tokens, targets = table.tokens[rows, :-1], table.tokens[rows, 1:]
        scored = np.zeros(targets.shape, dtype=bool)
        is_scored = True if table.is_scored is None else table.is_scored[rows]
        np.put_along_axis(scored, table.scored_positions[rows], is_scored, axis=1)
        kinds = self._token_kinds(tokens)
        non_padding = ~kinds["padding"]
        return AnalysisInputs("val", tokens, targets, scored, non_padding, {k: v for k, v in kinds.items() if v.any()})

    def _token_kinds(self, tokens: Ints) -> dict[str, Bools]:
        n_numbers = len(self.vocabulary()) - 1 - len(SPECIAL_TOKENS)
        operator, equals, bos, _, pad = range(n_numbers, n_numbers + 5)
        after_equals = np.cumsum(tokens == equals, axis=1) > 0
        is_number = tokens < n_numbers
        return {
            "BOS": tokens == bos, "operands": is_number & ~after_equals, "operator": tokens == operator,
            "=": tokens == equals, "result": is_number & after_equals, "padding": tokens == pad,
        }  # fmt: skip


@dataclass(frozen=True)
class EquationTokenizer(PieceTokenizer):
    """Tokenizer of equations as a person types them: `12 + 8 =` to ids and back.

    >>> tokenizer = EquationTokenizer((*map(str, range(31)), "+", *SPECIAL_TOKENS), max_length=6)
    >>> tokenizer.encode("12 + 8 =").tolist()
    [33, 12, 31, 8, 32]
    >>> tokenizer.decode([33, 12, 31, 8, 32, 20, 34])
    '12 + 8 = 20'
    """

    kind: ClassVar[str] = "equations"
    max_length: int
    by_digit: bool = False  # `12` is encoded as the tokens 1 and 2

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        return tuple(f"{text} " for text in self.texts)

    def encode(self, text: str) -> TokenIds:
        """Token ids of an equation or the beginning of one; a missing `BOS` is added."""
        pattern = _DIGIT_PATTERN if self.by_digit else _TOKEN_PATTERN
        ids = [self._token_id(match.group(), match.start(), text) for match in pattern.finditer(text)]
        bos_id = self.texts.index("BOS")
        ids = ids if ids[:1] == [bos_id] else [bos_id, *ids]
        if len(ids) > self.max_length + 1:
            raise UsageError(
                f"{text!r} has {len(ids)} tokens, BOS included; "
                f"an equation of this task has at most {self.max_length + 1}"
            )
        return np.array(ids, dtype=np.uint16)

    def _token_id(self, word: str, start: int, text: str) -> int:
        name = str(int(word)) if word.isdecimal() else word
        if name not in self.texts:
            *numbers, operator = self.texts[: -len(SPECIAL_TOKENS)]
            raise UsageError(
                f"{text!r}: {word!r} (column {start + 1}) is not a token of this task; "
                f"expected 0 … {numbers[-1]}, {operator} or ="
            )
        return self.texts.index(name)

    def decoder(self) -> StreamDecoder:
        return WordStreamDecoder(self._words, lambda words, before: (" " if words and before else "") + " ".join(words))

    def _words(self, ids: Iterable[int]) -> list[str]:
        texts = (self.texts[i] for i in check_ids(ids, self.size))
        return [text for text in texts if text == VISIBLE_SPECIAL_TOKEN or text not in SPECIAL_TOKENS]
