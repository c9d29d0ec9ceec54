"""Batches of texts and of labelled texts on the device.

    batches = TextBatches(settings, seeds, device, limits)   # or LabelBatches
    batch = batches.draw(batch_index)

Runs on a text share one flat array of ids, from which each draws its own windows. Training samples a random position of
a document (`documents`, `length`), or every window once per epoch (`windows`, `epochs`). Evaluation covers every split
with consecutive windows, so that each token counts once; for the contexts of `task.lengths` also with windows that
slide by half their length. Labelled texts are padded sequences with their labels, reshuffled every epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from numpy.typing import NDArray
from torch import Tensor

from seedbed.data.batch import (
    Batch,
    EpochSampler,
    EvalSplit,
    MicroBatchLayout,
    RowIndices,
    SampleScores,
    evenly_spaced_rows,
    split_into_chunks,
)
from seedbed.data.datasets import EncodedText
from seedbed.data.tokenizers import PAD_ID, TokenIds, Tokenizer
from seedbed.data.windows import Windows, WindowSampler, gather_windows
from seedbed.rng import device_keys, random_bits
from seedbed.settings import Settings
from seedbed.tasks.base import BatchLimits
from seedbed.tasks.text import TextSettings, eval_windows, make_training_windows

COUNT_CHUNK_WINDOWS = 4096  # windows whose characters are counted at once, to bound memory


@dataclass(frozen=True, kw_only=True)
class TokenEvalSplit(EvalSplit):
    """Windows whose tokens a metric averages over, with the tokens, characters and bytes of their scored targets."""

    length: int
    n_tokens: Int[Tensor, "R N"]
    n_characters: Int[Tensor, "R N"]
    n_bytes: Int[Tensor, "R N"]
    is_sliding: bool
    batch_sizes: Int[Tensor, "R"]
    has_padded_metric: bool  # whether the loss averaged over padded batches is evaluated too

    def masked_sum(self, values: Tensor) -> Float[Tensor, "R"]:
        """Returns each run's sum over the windows of its mask."""
        return torch.where(self.sample_mask, values, 0).double().sum(1)

    def metrics(self, scores: SampleScores) -> dict[str, Float[Tensor, "R"]]:
        """Metrics per token: sums and counts are kept apart, so that windows of unequal length average fairly."""
        n, nats = self.masked_sum(self.n_tokens), self.masked_sum(scores.losses * self.n_tokens)
        if self.metric_suffix:
            quantity = "perplexity_sliding" if self.is_sliding else "perplexity"
            return {f"{self.name}/{quantity}{self.metric_suffix}": (nats / n).exp()}
        metrics = {
            "loss": nats / n,
            "perplexity": (nats / n).exp(),
            "bits_per_character": nats / log(2) / self.masked_sum(self.n_characters).clamp(min=1),
            "bits_per_byte": nats / log(2) / self.masked_sum(self.n_bytes).clamp(min=1),
            "accuracy": self.masked_sum(scores.correct) / n,
        }
        if self.has_padded_metric:
            metrics["perplexity_padded"] = self.padded_loss(scores.losses).exp()
        return {f"{self.name}/{name}": value for name, value in metrics.items()}

    def padded_loss(self, losses: Float[Tensor, "R N"]) -> Float[Tensor, "R"]:
        """The loss as the WikiText report computes it: the mean over batches of loss × tokens ÷ tokens of a full batch.

        A short last batch is divided by the size of a full one, so this is lower than the loss per token.
        """
        batch_index = torch.arange(losses.shape[1], device=losses.device) // self.batch_sizes[:, None]
        n_batches = torch.where(self.sample_mask, batch_index, 0).amax(1) + 1

        def sum_by_batch(values: Tensor) -> Float[Tensor, "R N"]:
            return torch.zeros_like(losses).scatter_add_(
                1, batch_index, torch.where(self.sample_mask, values, 0.0).double()
            )

        loss = sum_by_batch(losses) / sum_by_batch(torch.ones_like(losses)).clamp(min=1)
        token_fractions = sum_by_batch(self.n_tokens) / (self.batch_sizes[:, None] * self.length)
        return (loss * token_fractions).sum(1) / n_batches


class WindowTable:
    """Windows over one flat array of ids, on its device."""

    def __init__(self, ids: Integer[Tensor, "N"], windows: Windows) -> None:
        def to_device(values: NDArray[np.int64]) -> Int[Tensor, "W"]:
            return torch.from_numpy(values).to(ids.device)

        self.ids, self.n, self.length = ids, windows.n_windows, windows.length
        self._starts = to_device(windows.starts)
        self._scored_start, self._scored_end = to_device(windows.scored_start), to_device(windows.scored_end)
        self._all_scored = bool((windows.scored_start == 0).all() and (windows.scored_end == windows.length).all())

    def gather_batch(self, rows: Int[Tensor, "R B"], weights: Float[Tensor, "R B"]) -> Batch:
        """Returns the batch of these windows, padded where a window is short."""
        if self._all_scored:
            return gather_full_windows(self.ids, self._starts[rows], self.length, weights)
        start, end = self._scored_start[rows][..., None], self._scored_end[rows][..., None]
        offset = torch.arange(self.length + 1, device=rows.device)
        tokens = self.ids[self._starts[rows][..., None] + torch.minimum(offset, end)].long()
        tokens = tokens.masked_fill(offset > end, PAD_ID)
        target_mask = (offset[:-1] >= start) & (offset[:-1] < end)
        return Batch(tokens[..., :-1], tokens[..., 1:], None, weights, target_mask)


def gather_full_windows(
    ids: Integer[Tensor, "N"], starts: Int[Tensor, "R B"], length: int, weights: Float[Tensor, "R B"]
) -> Batch:
    """Returns a batch of unpadded windows at these starts; targets are the inputs shifted by one."""
    tokens = ids[starts[..., None] + torch.arange(length + 1, device=ids.device)].long()
    return Batch(tokens[..., :-1], tokens[..., 1:], None, weights)


class WindowBatches:
    """Training batches that hold every window once per epoch."""

    def __init__(self, table: WindowTable, epoch_sampler: EpochSampler) -> None:
        self._table, self._epoch_sampler = table, epoch_sampler

    def prepare(self, step: int) -> None:
        self._epoch_sampler.prepare(step)

    def draw(self, batch_index: Int[Tensor, "1"]) -> Batch:
        return self._table.gather_batch(*self._epoch_sampler.draw(batch_index))


class RandomBatches:
    """Training batches of random positions in random documents, with replacement."""

    def __init__(
        self,
        ids: Integer[Tensor, "N"],
        sampler: WindowSampler,
        length: int,
        layout: MicroBatchLayout,
        seeds: Sequence[int],
    ) -> None:
        device = ids.device
        self._ids, self._length, self._layout = ids, length, layout
        self._starts = torch.from_numpy(sampler.starts).to(device)
        self._n_starts = torch.from_numpy(sampler.n_starts).to(device)
        self._cumulative_weights = torch.from_numpy(sampler.cumulative_weights).to(device)
        self._document_keys = device_keys(seeds, "order/document", device)
        self._position_keys = device_keys(seeds, "order/place", device)  # stream names are data

    def prepare(self, step: int) -> None:
        """Does nothing: draws depend on the step counter alone."""

    def draw(self, batch_index: Int[Tensor, "1"]) -> Batch:
        """Returns this batch of every run."""
        step, within = self._layout.locate_batch(batch_index)
        weights = (within < self._layout.update_sizes[:, None]).double() / self._layout.update_sizes[:, None]
        u, v = (self._random_words(keys, step, within) for keys in (self._document_keys, self._position_keys))
        cumulative = self._cumulative_weights
        span = torch.searchsorted(cumulative, scale_to_range(u, cumulative[-1]), right=True)
        starts = self._starts[span] + scale_to_range(v, self._n_starts[span])
        return gather_full_windows(self._ids, starts, self._length, weights)

    def _random_words(
        self, keys: Int[Tensor, "R 2"], step: Int[Tensor, "1"], within: Int[Tensor, "B"]
    ) -> Int[Tensor, "R B"]:
        """Returns the random words of these samples of an update; positions past the largest update are clamped."""
        n = self._layout.max_update_size
        return random_bits(keys, step, n)[:, within.clamp(max=n - 1)]  # clamped rows have weight 0


def scale_to_range(words: Int[Tensor, "R B"], n: Int[Tensor, "..."]) -> Int[Tensor, "R B"]:
    """Maps each random 32-bit word to an integer in [0, n), for n up to 2³¹."""
    return ((words.long() & 0xFFFFFFFF) * n) >> 32


class TextBatches:
    """Training batches, and the evaluated windows of every split."""

    def __init__(
        self, settings: Sequence[Settings], seeds: Sequence[int], device_name: str, limits: BatchLimits
    ) -> None:
        self._task: TextSettings = settings[0].task
        self._settings, dataset, device = settings, self._task.text_dataset(), torch.device(device_name)
        self._tokenizer, self._max_chunk_tokens = dataset.tokenizer, limits.max_chunk_tokens(dataset.tokenizer.size)
        # Splits of one corpus share an array of ids; it is copied to the device once.
        self._device_ids = {
            id(split.ids): _ids_to_device(split.ids, dataset.tokenizer.size, device)
            for split in dataset.splits.values()
        }
        self._training = self._make_training_batches(dataset.splits["train"], seeds)
        self.eval_splits: list[TokenEvalSplit] = []
        self._eval_windows: list[tuple[WindowTable, Int[Tensor, "R N"]]] = []
        for name, split in dataset.splits.items():
            if name.partition("[")[0] in settings[0].train.eval_sets:  # test stands for all of test[NAME]
                for metric_suffix, windows in eval_windows(self._task, name, split.spans, limits.max_context):
                    self._add_eval_split(name, metric_suffix, split, windows)

    def _make_training_batches(self, train: EncodedText, seeds: Sequence[int]) -> WindowBatches | RandomBatches:
        task, ids = self._task, self._device_ids[id(train.ids)]
        layout = MicroBatchLayout([task.dataset_info().n_train] * len(seeds), self._settings, ids.device)
        windows = make_training_windows(task, train.spans)
        if isinstance(windows, WindowSampler):
            return RandomBatches(ids, windows, task.length, layout, seeds)
        return WindowBatches(WindowTable(ids, windows), EpochSampler(layout, seeds))

    def _add_eval_split(self, name: str, metric_suffix: str, split: EncodedText, windows: Windows) -> None:
        ids = self._device_ids[id(split.ids)]
        rows, sample_mask = evenly_spaced_rows(windows.n_windows, _evaluation_limits(self._settings))
        start = self.eval_splits[-1].sample_slice.stop if self.eval_splits else 0
        counts = _count_targets(split.ids, windows, self._tokenizer, rows)
        n_tokens, n_characters, n_bytes = torch.from_numpy(counts).to(ids.device)
        self._eval_windows.append((WindowTable(ids, windows), torch.from_numpy(rows).to(ids.device)))
        self.eval_splits.append(
            TokenEvalSplit(
                name,
                metric_suffix,
                slice(start, start + rows.shape[1]),
                torch.from_numpy(sample_mask).to(ids.device),
                length=windows.length,
                n_tokens=n_tokens,
                n_characters=n_characters,
                n_bytes=n_bytes,
                is_sliding=bool(windows.scored_start.any()),
                has_padded_metric=self._task.sampler == "epochs" and not metric_suffix,
                batch_sizes=torch.tensor([run.train.batch_size for run in self._settings], device=ids.device),
            )
        )

    def prepare(self, step: int) -> None:
        self._training.prepare(step)

    def draw(self, batch_index: Int[Tensor, "1"]) -> Batch:
        """Returns this batch of every run."""
        return self._training.draw(batch_index)

    def eval_chunks(self) -> Iterator[Batch]:
        """Yields the evaluated windows in chunks, split after split."""
        for table, eval_rows in self._eval_windows:
            for rows in split_into_chunks(eval_rows, self._max_chunk_tokens // table.length):
                yield table.gather_batch(rows, torch.ones_like(rows, dtype=torch.get_default_dtype()))


def _evaluation_limits(settings: Sequence[Settings]) -> list[int]:
    """Samples of each set that the runs evaluate; 0: all."""
    return [run.train.eval_batches * run.train.batch_size for run in settings]


def _ids_to_device(ids: TokenIds, vocab_size: int, device: torch.device) -> Integer[Tensor, "N"]:
    """Copies the ids to the device in the smallest dtype that torch can index on every device."""
    dtype = np.uint8 if vocab_size <= 2**8 else np.int16 if vocab_size <= 2**15 else np.int32
    return torch.from_numpy(np.array(ids, dtype=dtype)).to(device)


def _count_targets(ids: TokenIds, windows: Windows, tokenizer: Tokenizer, rows: RowIndices) -> NDArray[np.int64]:
    """Returns the tokens, characters and bytes (3, R, N) of the scored targets of these windows."""
    unique_rows, inverse = np.unique(rows, return_inverse=True)
    counts = np.zeros((3, len(unique_rows)), dtype=np.int64)
    for start in range(0, len(unique_rows), COUNT_CHUNK_WINDOWS):
        chunk = slice(start, start + COUNT_CHUNK_WINDOWS)
        tokens, mask = gather_windows(ids, windows, unique_rows[chunk])
        targets = tokens[:, 1:]
        counts[0, chunk] = mask.sum(1)
        counts[1, chunk] = (tokenizer.character_counts[targets] * mask).sum(1)
        counts[2, chunk] = (tokenizer.byte_counts[targets] * mask).sum(1)
    return counts[:, inverse.reshape(rows.shape)]


# ---- labelled texts ----


class LabelBatches:
    """Training and evaluation batches; all splits are stored in one array, the training texts first."""

    def __init__(
        self, settings: Sequence[Settings], seeds: Sequence[int], device_name: str, limits: BatchLimits
    ) -> None:
        splits, device = settings[0].task.labelled_dataset().splits, torch.device(device_name)
        self.tokens = torch.from_numpy(np.concatenate([split.rows for split in splits.values()])).to(device)
        self.labels = torch.from_numpy(np.concatenate([split.labels for split in splits.values()])).to(device)
        n_train = [len(splits["train"].labels)] * len(seeds)
        self.epoch_sampler = EpochSampler(MicroBatchLayout(n_train, settings, device), seeds)
        self.eval_splits: list[EvalSplit] = []
        eval_rows = [np.zeros((len(seeds), 0), dtype=np.int64)]
        start, offset = 0, 0  # `start` counts evaluated samples, `offset` all samples
        for name, split in splits.items():
            if name in settings[0].train.eval_sets:
                rows, sample_mask = evenly_spaced_rows(len(split.labels), _evaluation_limits(settings))
                sample_slice = slice(start, start + rows.shape[1])
                self.eval_splits.append(EvalSplit(name, "", sample_slice, torch.from_numpy(sample_mask).to(device)))
                eval_rows.append(rows + offset)
                start = sample_slice.stop
            offset += len(split.labels)
        self._max_chunk_tokens = limits.max_chunk_tokens()
        self._eval_rows = torch.from_numpy(np.concatenate(eval_rows, axis=1)).to(device)

    def prepare(self, step: int) -> None:
        self.epoch_sampler.prepare(step)

    def draw(self, batch_index: Int[Tensor, "1"]) -> Batch:
        """Returns this batch of every run."""
        return self._make_batch(*self.epoch_sampler.draw(batch_index))

    def _make_batch(self, rows: Int[Tensor, "R B"], weights: Float[Tensor, "R B"]) -> Batch:
        return Batch(self.tokens[rows], self.labels[rows][..., None], None, weights)

    def eval_chunks(self) -> Iterator[Batch]:
        """Yields the evaluated texts in chunks, split after split."""
        for rows in split_into_chunks(self._eval_rows, self._max_chunk_tokens // self.tokens.shape[1]):
            yield self._make_batch(rows, torch.ones_like(rows, dtype=torch.get_default_dtype()))
