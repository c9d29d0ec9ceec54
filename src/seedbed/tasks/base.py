"""The Task contract: what a kind of task has to say about its data, and the records it says it with.

A kind of task is a frozen group of settings with methods, in one file of its own. It becomes usable in study files with
`@register_settings` and one line in `tasks/__init__.py`; `tests/contracts/task.py` holds each to this contract.

    info = settings.task.dataset_info()
    batches = make_batches([settings], [seed], "cpu")        # of its task, within the limits of its model and device

No caller asks which kind a task is. Settings, counts of samples and conflicts are declared in `settings.TaskSettings`,
of which this is the part that knows data. A kind's file imports torch only indirectly, inside `make_batches`, so that
plans stay fast; `data/` holds what knows no task.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from seedbed.data.datasets import LabelledDataset, TextDataset, tokenizer_to_vocabulary
from seedbed.data.tokenizers import Tokenizer
from seedbed.errors import MissingData, UsageError
from seedbed.records import StoredRun, Vocabulary
from seedbed.settings import DatasetInfo, Settings, TaskSettings, TrainSettings, Value

if TYPE_CHECKING:
    from seedbed.data.batch import Batches

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
HELD_OUT_SPLITS = ("val", "test")
# Roughly: sizes of the evaluated sets relative to the training set, and how many there are of each.
RELATIVE_SET_SIZES = {"train": 1.0, "val": 0.2, "test": 0.3}
SET_COUNTS = {"train": 1, "val": 1, "test": 2}
# Activations of the widest layers that one evaluation chunk may hold: of each run, as chunks of other sizes round
# differently; on a GPU of all runs together, unless they are to be reproducible.
MAX_EVAL_ACTIVATIONS = 2**20
MAX_GPU_EVAL_ACTIVATIONS = 2**28


@dataclass(frozen=True)
class BatchLimits:
    """What a model and its device allow the batches of a task."""

    max_context: int | None = None  # tokens that the model can process; None: unlimited
    activations_per_token: int = 2**8  # in the model's widest layers, without logits
    max_activations: int = MAX_EVAL_ACTIVATIONS  # of each run that one evaluation chunk may hold
    can_share_prefixes: bool = False  # equal beginnings of samples may be computed once for all

    @classmethod
    def of_pack(cls, settings: Sequence[Settings], device: str) -> BatchLimits:
        """What the model of a pack and its device allow."""
        first, is_per_run = settings[0], device == "cpu" or settings[0].train.reproducible
        return cls(
            max_context=first.model.max_context(first.task.dataset_info().context_length),
            activations_per_token=first.model.widest_activations(),
            max_activations=MAX_EVAL_ACTIVATIONS if is_per_run else MAX_GPU_EVAL_ACTIVATIONS // len(settings),
            can_share_prefixes=all(run.model.can_share_prefixes for run in settings),
        )

    def max_chunk_tokens(self, n_logits: int = 0) -> int:
        """Tokens of each run in one evaluation chunk, if every token has this many logits."""
        return self.max_activations // (n_logits + self.activations_per_token)


@dataclass(frozen=True)
class AnalysisInputs:
    """B inputs of T tokens; targets are the next tokens, or one label per input."""

    split: str
    tokens: Ints  # (B, T)
    targets: Ints  # (B, T) or (B, 1)
    scored: Bools  # same shape as targets: which count in the loss
    non_padding: Bools  # (B, T)
    token_kinds: Mapping[str, Bools]  # name → (B, T) mask
    word_indices: Ints | None = None  # (B, T) index of each token's word in its row; None if every token is a word

    @property
    def n_inputs(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class OperandPairs:
    """Every pair (a, b) of n numbers as the beginning of an equation, both in the order of `Task.cyclic_order`."""

    prompts: Ints  # (n², T) tokens up to `=`, sorted by a, then b
    results: Ints  # (n, n)
    in_training_set: Bools  # (n, n)
    b_sign: int  # 1: positions in the cyclic order are added (a + b, a · b), −1: subtracted (a − b, a / b)


class Task(TaskSettings):
    """A kind of task: its fields are its settings; `predicts` and the other class variables say what its runs do."""

    # ---- data ----

    @abstractmethod
    def dataset_info(self) -> DatasetInfo:
        """Vocabulary, context, samples and digest; MissingData or UsageError if the data is unreadable or too small."""

    def check_data(self, settings: Settings) -> None:
        """UsageError if a run of these settings could not be trained on its data, or not evaluated."""

    def shape_key(self) -> tuple[Value, ...]:
        """What runs of one pack must share besides the settings that are not per run."""
        return ()

    @abstractmethod
    def load_tokenizer(self) -> Tokenizer:
        """The tokenizer of prompts and samples; where `completes_prompts`, it begins every text with BOS."""

    def dataset_vocabulary(self) -> Vocabulary | None:
        """What the store keeps so that runs can be used without their corpus; None if settings make the tokenizer."""
        return tokenizer_to_vocabulary(self.load_tokenizer(), self.label_names()) if self.has_corpus else None

    @abstractmethod
    def make_batches(
        self, settings: Sequence[Settings], seeds: Sequence[int], device: str, limits: BatchLimits
    ) -> Batches:
        """Batches of a pack on the device; `settings` differ only in per-run settings, and the first holds this task.

        A batch depends only on its run's own settings and seed and on the batch index, never on the other runs.
        """

    def chance_loss(self, info: DatasetInfo) -> float | None:
        """Loss per scored token of guessing uniformly among the answers; None if that is not meaningful."""
        return log(info.n_classes) if info.n_classes else None

    # ---- work, for estimates ----

    def n_eval_samples(self, train: TrainSettings, info: DatasetInfo) -> int:
        """Samples that one evaluation scores; approximate, since `info` does not hold the sizes of held-out splits."""
        sets = RELATIVE_SET_SIZES.keys() & set(train.eval_sets)
        n_all = round(info.n_train * sum(RELATIVE_SET_SIZES[name] for name in sets))
        n_batches = train.eval_batches * sum(SET_COUNTS[name] for name in sets)
        return min(n_all, n_batches * train.batch_size) if train.eval_batches else n_all

    def n_scored_positions(self, info: DatasetInfo) -> int:
        """Positions of a sample at which logits are computed."""
        return info.context_length

    def computed_fraction(self, n_samples: int) -> float:
        """Fraction of the tokens of that many samples that is computed where equal beginnings are computed once."""
        return 1.0

    # ---- analysis ----

    @abstractmethod
    def analysis_inputs(self, seed: int, n: int) -> AnalysisInputs:
        """Up to n inputs that a run with this seed was not trained on, evenly spaced over its validation split.

        Without a validation split, inputs come from the test split, or else the training split.
        """

    def label_names(self) -> tuple[str, ...]:
        """Names of the labels by id, of a task that predicts labels."""
        return ()

    def text_dataset(self) -> TextDataset:
        """The tokenized text by split, of a task that `generates_text`."""
        raise UsageError(f"task.kind = {self.kind} has no text")

    def labelled_dataset(self) -> LabelledDataset:
        """The labelled texts by split, of a task that predicts labels."""
        raise UsageError(f"task.kind = {self.kind} has no labels")

    def cyclic_order(self) -> tuple[int, ...] | None:
        """Token ids of the numbers, in the order in which the task's operation adds positions; None if there is none.

        Over this order embeddings have a Fourier basis: 0 … p − 1 for sums, powers of a generator for products.
        """
        return None

    def operand_pairs(self, seed: int) -> OperandPairs | None:
        """All pairs of the numbers in `cyclic_order`, of a task with equations of two operands; None otherwise."""
        return None


def make_batches(settings: Sequence[Settings], seeds: Sequence[int], device: str) -> Batches:
    """The batches of a pack, whose tasks differ only in per-run settings."""
    limits = BatchLimits.of_pack(settings, device)
    batches: Batches = settings[0].task.make_batches(settings, seeds, device, limits)
    return batches


def check_monitored_metrics(settings: Settings, splits: Collection[str]) -> None:
    """UsageError if a setting monitors a validation metric and there is no validation split."""
    for name in ("train.plateau_metric", "train.stop_metric"):
        metric = str(settings.get(name))
        if settings.is_active(name) and metric.startswith("val/") and "val" not in splits:
            raise UsageError(f"{name} = {metric} needs a validation set; set task.val_fraction above 0")


def evenly_spaced_indices(total: int, n: int) -> Ints:
    """Up to n indices below `total`, the first and the last among them."""
    return np.unique(np.linspace(0, total - 1, min(n, total)).round().astype(np.int64))


def stored_dataset_info(run: StoredRun) -> DatasetInfo | None:
    """Returns the dataset info of a stored run, as stored or else recomputed; None if the corpus is missing."""
    if run.dataset_info is not None:
        return run.dataset_info
    try:
        info: DatasetInfo = run.settings.task.dataset_info()
    except (MissingData, UsageError):
        return None
    return info
