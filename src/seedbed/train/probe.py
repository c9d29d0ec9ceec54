"""A few real updates, a part of a record, a text and a save of a pack, timed: what its training would cost.

    cost = probe_pack(settings, seeds, placement, seconds=1.0)

Each is done at its real size for about so many seconds; a record or a text that would take longer is done in part and
counted for what it is. Nothing is kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import torch

from seedbed.data.batches import Batches
from seedbed.data.samples import Batch
from seedbed.records import Cost, Placement
from seedbed.settings import Settings, Text
from seedbed.train.meter import Meter
from seedbed.train.readings import Reader
from seedbed.train.step import Trainer, use_precision
from seedbed.train.writing import Writer

LEAST = 3  # updates that are timed, however long they take
WRITTEN = 16  # tokens of a text


def probe_pack(settings: Sequence[Settings], seeds: Sequence[int], placement: Placement, seconds: float) -> Cost:
    """What everything that this pack does costs a time, and its memory."""
    torch.set_num_threads(placement.threads)
    meter = Meter(placement)
    with meter.spending("prepare"):
        trainer = Trainer(settings, seeds, placement.device, getattr(torch, placement.dtype), placement.engine)
    with meter.spending("compute"):  # the warm-up
        trainer.advance()
        _wait(placement)
    _update(trainer, meter, placement, seconds)
    _record(trainer, meter, placement, seconds)
    _write(trainer, meter, settings[0], seeds)
    meter.pause()
    with meter.spending("save"):
        state = {name: held.detach().cpu().numpy().copy() for name, held in trainer.state().items()}
        trainer.kept(range(len(settings)), state)
    return meter.cost()


def _update(trainer: Trainer, meter: Meter, placement: Placement, seconds: float) -> None:
    end, n = time.perf_counter() + seconds, 0
    while n < LEAST or time.perf_counter() < end:
        with meter.spending("compute"):
            trainer.advance()
            _wait(placement)
        n += 1


def _record(trainer: Trainer, meter: Meter, placement: Placement, seconds: float) -> None:
    """Scores chunks, twice since the first time is cold; the second time, as many as the seconds allow.

    Where evaluation is replayed, the first time records it.
    """
    reader, whole = Reader(trainer), trainer.batches
    if reader.records:
        for _ in range(2):
            start = time.perf_counter()
            reader.read()
            _wait(placement)
            spent = time.perf_counter() - start
        meter.book("evaluate", spent)
        return
    use_precision(trainer.precision)
    trainer.model.eval()
    try:
        with torch.no_grad(), trainer.evaluated_weights():
            for allowed in (0.0, seconds):
                some = _Some(whole, allowed)
                trainer.batches = some
                start = time.perf_counter()
                trainer.score_table()
                _wait(placement)
                spent = time.perf_counter() - start
            meter.book("evaluate", spent * some.worth)
    finally:
        trainer.batches = whole


def _write(trainer: Trainer, meter: Meter, settings: Settings, seeds: Sequence[int]) -> None:
    task, dials = settings.task, settings.train
    if isinstance(task, Text) and dials.sample_every:
        n_tokens = min(WRITTEN, dials.sample_tokens)
        writer = Writer(task, dials.model_copy(update={"sample_tokens": n_tokens}), seeds, trainer.step.device)
        start = time.perf_counter()
        with trainer.evaluated_weights():
            list(writer.write(trainer.model, 0, range(len(seeds))))
        meter.book("write", (time.perf_counter() - start) * dials.sample_tokens / n_tokens)


def _wait(placement: Placement) -> None:
    if placement.device == "cuda":
        torch.cuda.synchronize()


class _Some:
    """The evaluated samples of a pack for as long as time allows, one chunk at least; the rest is only counted."""

    def __init__(self, whole: Batches, seconds: float) -> None:
        self._whole, self._seconds = whole, seconds
        self._given = self._left = 0
        self.parts, self.prepare, self.draw = whole.parts, whole.prepare, whole.draw

    @property
    def worth(self) -> float:
        """How often what was given goes into the whole."""
        return (self._given + self._left) / self._given

    def chunks(self) -> Iterator[Batch]:
        end = time.perf_counter() + self._seconds
        for batch in self._whole.chunks():
            if not self._given or time.perf_counter() < end:
                self._given += batch.inputs.numel()
                yield batch
            else:
                self._left += batch.inputs.numel()
