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

from seedbed.data.facts import facts_of
from seedbed.data.prepared import TextPart, prepare_text
from seedbed.data.samples import Batch, Epochs, Part, Rows, Sizes, in_chunks, spread_out
from seedbed.data.text import PAD, Ids, Tokens
from seedbed.data.windows import Sampler, Windows, by_document, by_length, consecutive, overlapping, sliding, take
from seedbed.draws import bits, device_keys
from seedbed.settings import Text

COUNTED_AT_ONCE = 4096  # windows whose characters are counted together


@dataclass(frozen=True, kw_only=True)
class TokenPart(Part):
    """Windows whose tokens readings average over, with what each window's scored targets stand for."""

    length: int
    n_tokens: Int[Tensor, "R N"]
    n_characters: Int[Tensor, "R N"]
    n_bytes: Int[Tensor, "R N"]
    sliding: bool
    batch_sizes: Int[Tensor, "R"]
    padded: bool  # whether the figure that averages padded batches is read too

    def total(self, values: Tensor) -> Float[Tensor, "R"]:
        """The sum over the windows that a run counts."""
        return torch.where(self.counted, values, 0).double().sum(1)


class WindowTable:
    """Windows of one row of ids."""

    def __init__(self, ids: Int[Tensor, "N"], windows: Windows) -> None:
        def held(values: NDArray[np.int64]) -> Int[Tensor, "W"]:
            return torch.from_numpy(values).to(ids.device)

        self.ids, self.n, self.length = ids, windows.n, windows.length
        self._starts, self._first, self._last = held(windows.starts), held(windows.first), held(windows.last)
        self._whole = bool((windows.first == 0).all() and (windows.last == windows.length).all())

    def batch(self, rows: Int[Tensor, "R B"], weights: Float[Tensor, "R B"]) -> Batch:
        if self._whole:
            return cut(self.ids, self._starts[rows], self.length, weights)
        first, last = self._first[rows][..., None], self._last[rows][..., None]
        place = torch.arange(self.length + 1, device=rows.device)
        tokens = self.ids[self._starts[rows][..., None] + torch.minimum(place, last)].long()
        tokens = tokens.masked_fill(place > last, PAD)
        scored = (place[:-1] >= first) & (place[:-1] < last)
        return Batch(tokens[..., :-1], tokens[..., 1:], None, weights, scored)


def cut(ids: Int[Tensor, "N"], starts: Int[Tensor, "R B"], length: int, weights: Float[Tensor, "R B"]) -> Batch:
    """Whole windows from these places on; the targets are the ids after the inputs."""
    tokens = ids[starts[..., None] + torch.arange(length + 1, device=ids.device)].long()
    return Batch(tokens[..., :-1], tokens[..., 1:], None, weights)


class WindowBatches:
    """Every window once an epoch."""

    def __init__(self, table: WindowTable, epochs: Epochs) -> None:
        self._table, self._epochs = table, epochs

    def prepare(self, step: int) -> None:
        self._epochs.prepare(step)

    def draw(self, number: Int[Tensor, "1"]) -> Batch:
        return self._table.batch(*self._epochs.draw(number))


class RandomBatches:
    """A random place of a random document, with replacement."""

    def __init__(
        self, ids: Int[Tensor, "N"], sampler: Sampler, length: int, sizes: Sizes, seeds: Sequence[int]
    ) -> None:
        device = ids.device
        self._ids, self._length, self._sizes = ids, length, sizes
        self._starts = torch.from_numpy(sampler.starts).to(device)
        self._positions = torch.from_numpy(sampler.positions).to(device)
        self._edges = torch.from_numpy(sampler.edges).to(device)
        self._document_keys = device_keys(seeds, "order/document", device)
        self._place_keys = device_keys(seeds, "order/place", device)

    def prepare(self, step: int) -> None:
        """Nothing: every draw is counted by the step."""

    def draw(self, number: Int[Tensor, "1"]) -> Batch:
        """Batch `number` of every run."""
        step, within = self._sizes.places(number)
        weights = (within < self._sizes.sizes[:, None]).double() / self._sizes.sizes[:, None]
        u, v = (self._words(keys, step, within) for keys in (self._document_keys, self._place_keys))
        chosen = torch.searchsorted(self._edges, below(u, self._edges[-1]), right=True)
        return cut(self._ids, self._starts[chosen] + below(v, self._positions[chosen]), self._length, weights)

    def _words(self, keys: Int[Tensor, "R 2"], step: Int[Tensor, "1"], within: Int[Tensor, "B"]) -> Int[Tensor, "R B"]:
        """The random words of some of an update's samples; those past the largest batch are not used."""
        return bits(keys, step, self._sizes.largest)[:, within.clamp(max=self._sizes.largest - 1)]


def below(words: Int[Tensor, "R B"], n: Int[Tensor, "..."]) -> Int[Tensor, "R B"]:
    """A whole number from 0 up to n (at most 2³¹) from each random 32-bit word."""
    return ((words.long() & 0xFFFFFFFF) * n) >> 32


@dataclass(frozen=True)
class Reading:
    """How a text is evaluated."""

    n_batches: int = 0  # of each part, of the run's own batch size; 0: all
    longest: int | None = None  # context, in tokens, that the model can read; None: any
    at_once: int = 2**15  # tokens, of all runs together


EVERYTHING = Reading()


class TextBatches:
    """Training batches, and the windows of every part that are evaluated."""

    def __init__(
        self,
        task: Text,
        seeds: Sequence[int],
        batch_sizes: Sequence[int],
        device: torch.device,
        accumulate: int = 1,
        reading: Reading = EVERYTHING,
    ) -> None:
        text = prepare_text(task)
        self._task, self._tokens, self._reading = task, text.tokens, reading
        self._rows = {id(part.ids): _on_device(part.ids, text.tokens.size, device) for part in text.parts.values()}
        self._training = self._training_batches(text.parts["train"], seeds, batch_sizes, accumulate)
        self.parts: list[TokenPart] = []
        self._tables: list[tuple[WindowTable, Int[Tensor, "R N"]]] = []
        for name, part in text.parts.items():
            for group, windows in _evaluated(task, name, part, reading.longest):
                self._add_part(name, group, part, windows, batch_sizes)

    def _training_batches(
        self, train: TextPart, seeds: Sequence[int], batch_sizes: Sequence[int], accumulate: int
    ) -> WindowBatches | RandomBatches:
        task, ids = self._task, self._rows[id(train.ids)]
        n_samples = [facts_of(task).n_train] * len(seeds)
        if task.sampler in ("documents", "length"):
            sampler = (by_document if task.sampler == "documents" else by_length)(train.spans, task.length)
            sizes = Sizes(n_samples, batch_sizes, accumulate, ids.device)
            return RandomBatches(ids, sampler, task.length, sizes, seeds)
        windows = (overlapping if task.sampler == "windows" else consecutive)(train.spans, task.length)
        return WindowBatches(WindowTable(ids, windows), Epochs(n_samples, batch_sizes, accumulate, seeds, ids.device))

    def _add_part(self, name: str, group: str, part: TextPart, windows: Windows, batch_sizes: Sequence[int]) -> None:
        ids = self._rows[id(part.ids)]
        rows, counted = spread_out(windows.n, [self._reading.n_batches * size for size in batch_sizes])
        start = self.parts[-1].span.stop if self.parts else 0
        counts = _counts(part.ids, windows, self._tokens, rows)
        n_tokens, n_characters, n_bytes = torch.from_numpy(counts).to(ids.device)
        self._tables.append((WindowTable(ids, windows), torch.from_numpy(rows).to(ids.device)))
        self.parts.append(
            TokenPart(
                name,
                group,
                slice(start, start + rows.shape[1]),
                torch.from_numpy(counted).to(ids.device),
                length=windows.length,
                n_tokens=n_tokens,
                n_characters=n_characters,
                n_bytes=n_bytes,
                sliding=bool(windows.first.any()),
                padded=self._task.sampler == "epochs" and not group,
                batch_sizes=torch.tensor(batch_sizes, device=ids.device),
            )
        )

    def prepare(self, step: int) -> None:
        self._training.prepare(step)

    def draw(self, number: Int[Tensor, "1"]) -> Batch:
        """Batch `number` of every run."""
        return self._training.draw(number)

    def chunks(self) -> Iterator[Batch]:
        """The windows that are evaluated, part after part, some at a time."""
        for table, chosen in self._tables:
            for rows in in_chunks(chosen, self._reading.at_once // (len(chosen) * table.length)):
                yield table.batch(rows, torch.ones_like(rows, dtype=torch.get_default_dtype()))


def _on_device(ids: Ids, size: int, device: torch.device) -> Int[Tensor, "N"]:
    """The ids in the smallest type that every device can index by."""
    kind = np.uint8 if size <= 2**8 else np.int16 if size <= 2**15 else np.int32
    return torch.from_numpy(np.array(ids, dtype=kind)).to(device)


def _evaluated(task: Text, name: str, part: TextPart, longest: int | None) -> Iterator[tuple[str, Windows]]:
    """What is read of a part, by the group of its readings: at the trained length; but for training, at others too."""
    yield "", consecutive(part.spans, task.length)
    if name == "train":
        return
    for length in dict.fromkeys((task.length, *task.lengths) if task.lengths else ()):
        if longest is not None and length > longest:
            continue
        if length != task.length:
            yield f"[length={length}]", consecutive(part.spans, length)
        if length > 1:
            yield f"[length={length}]", sliding(part.spans, length, length // 2)


def _counts(ids: Ids, windows: Windows, tokens: Tokens, rows: Rows) -> NDArray[np.int64]:
    """Tokens, characters and bytes (3, R, N) of the scored targets of the chosen windows."""
    wanted, place = np.unique(rows, return_inverse=True)
    counts = np.zeros((3, len(wanted)), dtype=np.int64)
    for start in range(0, len(wanted), COUNTED_AT_ONCE):
        which = slice(start, start + COUNTED_AT_ONCE)
        taken, mask = take(ids, windows, wanted[which])
        targets = taken[:, 1:]
        counts[0, which] = mask.sum(1)
        counts[1, which] = (tokens.character_counts[targets] * mask).sum(1)
        counts[2, which] = (tokens.byte_counts[targets] * mask).sum(1)
    return counts[:, place.reshape(rows.shape)]
