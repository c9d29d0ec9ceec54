"""Text on the device: one row of ids for all runs, and windows of it where each run's own stream says.

    batches = TextBatches(task, seeds, batch_sizes, device)
    batch = batches.draw(number)

Training draws a place of a document (`documents`, `length`), or takes every window once an epoch (`windows`, `epochs`).
Evaluation reads every part in windows side by side, so that each token counts once; at the contexts of `task.lengths`
also in windows that slide by half their length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from seedbed.data.batch import (
    Batch,
    EpochSampler,
    EvalSplit,
    MicroBatchLayout,
    RowIndices,
    evenly_spaced_rows,
    split_into_chunks,
)
from seedbed.data.dataset_info import get_dataset_info
from seedbed.data.datasets import TextSplit, load_text_dataset
from seedbed.data.tokenizers import PAD_ID, TokenIds, Tokenizer
from seedbed.data.windows import (
    Windows,
    WindowSampler,
    consecutive_windows,
    gather_windows,
    overlapping_windows,
    sliding_windows,
    uniform_document_sampler,
    uniform_position_sampler,
)
from seedbed.rng import device_keys, random_bits
from seedbed.settings import TextSettings

COUNT_CHUNK_WINDOWS = 4096  # windows whose characters are counted together


@dataclass(frozen=True, kw_only=True)
class TokenEvalSplit(EvalSplit):
    """Windows whose tokens readings average over, with what each window's scored targets stand for."""

    length: int
    n_tokens: Int[Tensor, "R N"]
    n_characters: Int[Tensor, "R N"]
    n_bytes: Int[Tensor, "R N"]
    is_sliding: bool
    batch_sizes: Int[Tensor, "R"]
    has_padded_metric: bool  # whether the figure that averages padded batches is read too

    def masked_sum(self, values: Tensor) -> Float[Tensor, "R"]:
        """The sum over the windows that a run counts."""
        return torch.where(self.sample_mask, values, 0).double().sum(1)


class WindowTable:
    """Windows of one row of ids."""

    def __init__(self, ids: Int[Tensor, "N"], windows: Windows) -> None:
        def held(values: NDArray[np.int64]) -> Int[Tensor, "W"]:
            return torch.from_numpy(values).to(ids.device)

        self.ids, self.n, self.length = ids, windows.n_windows, windows.length
        self._starts, self._scored_start, self._scored_end = (
            held(windows.starts),
            held(windows.scored_start),
            held(windows.scored_end),
        )
        self._all_scored = bool((windows.scored_start == 0).all() and (windows.scored_end == windows.length).all())

    def gather_batch(self, rows: Int[Tensor, "R B"], weights: Float[Tensor, "R B"]) -> Batch:
        if self._all_scored:
            return gather_full_windows(self.ids, self._starts[rows], self.length, weights)
        first, last = self._scored_start[rows][..., None], self._scored_end[rows][..., None]
        place = torch.arange(self.length + 1, device=rows.device)
        tokens = self.ids[self._starts[rows][..., None] + torch.minimum(place, last)].long()
        tokens = tokens.masked_fill(place > last, PAD_ID)
        scored = (place[:-1] >= first) & (place[:-1] < last)
        return Batch(tokens[..., :-1], tokens[..., 1:], None, weights, scored)


def gather_full_windows(
    ids: Int[Tensor, "N"], starts: Int[Tensor, "R B"], length: int, weights: Float[Tensor, "R B"]
) -> Batch:
    """Whole windows from these places on; the targets are the ids after the inputs."""
    tokens = ids[starts[..., None] + torch.arange(length + 1, device=ids.device)].long()
    return Batch(tokens[..., :-1], tokens[..., 1:], None, weights)


class WindowBatches:
    """Every window once an epoch."""

    def __init__(self, table: WindowTable, epochs: EpochSampler) -> None:
        self._table, self._epoch_sampler = table, epochs

    def prepare(self, step: int) -> None:
        self._epoch_sampler.prepare(step)

    def draw(self, batch_index: Int[Tensor, "1"]) -> Batch:
        return self._table.gather_batch(*self._epoch_sampler.draw(batch_index))


class RandomBatches:
    """A random place of a random document, with replacement."""

    def __init__(
        self, ids: Int[Tensor, "N"], sampler: WindowSampler, length: int, layout: MicroBatchLayout, seeds: Sequence[int]
    ) -> None:
        device = ids.device
        self._ids, self._length, self._layout = ids, length, layout
        self._starts = torch.from_numpy(sampler.starts).to(device)
        self._n_starts = torch.from_numpy(sampler.n_starts).to(device)
        self._cumulative_weights = torch.from_numpy(sampler.cumulative_weights).to(device)
        self._document_keys = device_keys(seeds, "order/document", device)
        self._position_keys = device_keys(seeds, "order/place", device)

    def prepare(self, step: int) -> None:
        """Nothing: every draw is counted by the step."""

    def draw(self, batch_index: Int[Tensor, "1"]) -> Batch:
        """Batch `number` of every run."""
        step, within = self._layout.locate_batch(batch_index)
        weights = (within < self._layout.update_sizes[:, None]).double() / self._layout.update_sizes[:, None]
        u, v = (self._random_words(keys, step, within) for keys in (self._document_keys, self._position_keys))
        chosen = torch.searchsorted(
            self._cumulative_weights, scale_to_range(u, self._cumulative_weights[-1]), right=True
        )
        return gather_full_windows(
            self._ids, self._starts[chosen] + scale_to_range(v, self._n_starts[chosen]), self._length, weights
        )

    def _random_words(
        self, keys: Int[Tensor, "R 2"], step: Int[Tensor, "1"], within: Int[Tensor, "B"]
    ) -> Int[Tensor, "R B"]:
        """The random words of some of an update's samples; those past the largest batch are not used."""
        return random_bits(keys, step, self._layout.max_update_size)[
            :, within.clamp(max=self._layout.max_update_size - 1)
        ]


def scale_to_range(words: Int[Tensor, "R B"], n: Int[Tensor, "..."]) -> Int[Tensor, "R B"]:
    """A whole number from 0 up to n (at most 2³¹) from each random 32-bit word."""
    return ((words.long() & 0xFFFFFFFF) * n) >> 32


@dataclass(frozen=True)
class EvalOptions:
    """How a text is evaluated."""

    n_batches: int = 0  # of each part, of the run's own batch size; 0: all
    max_context: int | None = None  # context, in tokens, that the model can read; None: any
    max_chunk_tokens: int = 2**15  # tokens, of all runs together


EVALUATE_ALL = EvalOptions()


class TextBatches:
    """Training batches, and the windows of every part that are evaluated."""

    def __init__(
        self,
        task: TextSettings,
        seeds: Sequence[int],
        batch_sizes: Sequence[int],
        device: torch.device,
        accumulate: int = 1,
        eval_options: EvalOptions = EVALUATE_ALL,
    ) -> None:
        text = load_text_dataset(task)
        self._task, self._tokenizer, self._eval_options = task, text.tokenizer, eval_options
        self._device_ids = {
            id(part.ids): _ids_to_device(part.ids, text.tokenizer.size, device) for part in text.splits.values()
        }
        self._training = self._make_training_batches(text.splits["train"], seeds, batch_sizes, accumulate)
        self.eval_splits: list[TokenEvalSplit] = []
        self._eval_windows: list[tuple[WindowTable, Int[Tensor, "R N"]]] = []
        for name, part in text.splits.items():
            for group, windows in _eval_windows(task, name, part, eval_options.max_context):
                self._add_eval_split(name, group, part, windows, batch_sizes)

    def _make_training_batches(
        self, train: TextSplit, seeds: Sequence[int], batch_sizes: Sequence[int], accumulate: int
    ) -> WindowBatches | RandomBatches:
        task, ids = self._task, self._device_ids[id(train.ids)]
        n_samples = [get_dataset_info(task).n_train] * len(seeds)
        if task.sampler in ("documents", "length"):
            sampler = (uniform_document_sampler if task.sampler == "documents" else uniform_position_sampler)(
                train.spans, task.length
            )
            sizes = MicroBatchLayout(n_samples, batch_sizes, accumulate, ids.device)
            return RandomBatches(ids, sampler, task.length, sizes, seeds)
        windows = (overlapping_windows if task.sampler == "windows" else consecutive_windows)(train.spans, task.length)
        return WindowBatches(
            WindowTable(ids, windows), EpochSampler(n_samples, batch_sizes, accumulate, seeds, ids.device)
        )

    def _add_eval_split(
        self, name: str, metric_suffix: str, split: TextSplit, windows: Windows, batch_sizes: Sequence[int]
    ) -> None:
        ids = self._device_ids[id(split.ids)]
        rows, counted = evenly_spaced_rows(
            windows.n_windows, [self._eval_options.n_batches * size for size in batch_sizes]
        )
        start = self.eval_splits[-1].sample_slice.stop if self.eval_splits else 0
        counts = _count_targets(split.ids, windows, self._tokenizer, rows)
        n_tokens, n_characters, n_bytes = torch.from_numpy(counts).to(ids.device)
        self._eval_windows.append((WindowTable(ids, windows), torch.from_numpy(rows).to(ids.device)))
        self.eval_splits.append(
            TokenEvalSplit(
                name,
                metric_suffix,
                slice(start, start + rows.shape[1]),
                torch.from_numpy(counted).to(ids.device),
                length=windows.length,
                n_tokens=n_tokens,
                n_characters=n_characters,
                n_bytes=n_bytes,
                is_sliding=bool(windows.scored_start.any()),
                has_padded_metric=self._task.sampler == "epochs" and not metric_suffix,
                batch_sizes=torch.tensor(batch_sizes, device=ids.device),
            )
        )

    def prepare(self, step: int) -> None:
        self._training.prepare(step)

    def draw(self, batch_index: Int[Tensor, "1"]) -> Batch:
        """Batch `number` of every run."""
        return self._training.draw(batch_index)

    def eval_chunks(self) -> Iterator[Batch]:
        """The windows that are evaluated, part after part, some at a time."""
        for table, chosen in self._eval_windows:
            for rows in split_into_chunks(chosen, self._eval_options.max_chunk_tokens // (len(chosen) * table.length)):
                yield table.gather_batch(rows, torch.ones_like(rows, dtype=torch.get_default_dtype()))


def _ids_to_device(ids: TokenIds, vocab_size: int, device: torch.device) -> Int[Tensor, "N"]:
    """The ids in the smallest type that every device can index by."""
    kind = np.uint8 if vocab_size <= 2**8 else np.int16 if vocab_size <= 2**15 else np.int32
    return torch.from_numpy(np.array(ids, dtype=kind)).to(device)


def _eval_windows(
    task: TextSettings, name: str, split: TextSplit, max_context: int | None
) -> Iterator[tuple[str, Windows]]:
    """What is read of a part, by the group of its readings: at the trained length; but for training, at others too."""
    yield "", consecutive_windows(split.spans, task.length)
    if name == "train":
        return
    for length in dict.fromkeys((task.length, *task.lengths) if task.lengths else ()):
        if max_context is not None and length > max_context:
            continue
        if length != task.length:
            yield f"[length={length}]", consecutive_windows(split.spans, length)
        if length > 1:
            yield f"[length={length}]", sliding_windows(split.spans, length, length // 2)


def _count_targets(ids: TokenIds, windows: Windows, tokenizer: Tokenizer, rows: RowIndices) -> NDArray[np.int64]:
    """Tokens, characters and bytes (3, R, N) of the scored targets of the chosen windows."""
    wanted, place = np.unique(rows, return_inverse=True)
    counts = np.zeros((3, len(wanted)), dtype=np.int64)
    for start in range(0, len(wanted), COUNT_CHUNK_WINDOWS):
        which = slice(start, start + COUNT_CHUNK_WINDOWS)
        taken, mask = gather_windows(ids, windows, wanted[which])
        targets = taken[:, 1:]
        counts[0, which] = mask.sum(1)
        counts[1, which] = (tokenizer.character_counts[targets] * mask).sum(1)
        counts[2, which] = (tokenizer.byte_counts[targets] * mask).sum(1)
    return counts[:, place.reshape(rows.shape)]
