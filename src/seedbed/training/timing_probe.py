"""A few real updates, a part of a record, a text and a save of a pack, timed: what its training would cost.

    cost = probe_pack(settings, seeds, placement, seconds=1.0)

Each is done at its real size for about so many seconds; a record or a text that would take longer is done in part and
counted for what it is. Nothing is kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import torch

from seedbed.data.batch import Batch
from seedbed.data.batches import Batches
from seedbed.records import Cost, Placement
from seedbed.settings import Settings, TextSettings
from seedbed.training.evaluate import Evaluator
from seedbed.training.sample_logger import SampleLogger
from seedbed.training.timer import Timer
from seedbed.training.trainer import Trainer, set_matmul_precision

MIN_TIMED_UPDATES = 3  # updates that are timed, however long they take
MAX_SAMPLED_TOKENS = 16  # tokens of a text


def probe_pack(settings: Sequence[Settings], seeds: Sequence[int], placement: Placement, seconds: float) -> Cost:
    """What everything that this pack does costs a time, and its memory."""
    torch.set_num_threads(placement.threads)
    meter = Timer(placement)
    with meter.section("prepare"):
        trainer = Trainer(settings, seeds, placement.device, getattr(torch, placement.dtype), placement.mode)
    with meter.section("compute"):  # the warm-up
        trainer.train_step()
        _synchronize(placement)
    _time_updates(trainer, meter, placement, seconds)
    _time_evaluation(trainer, meter, placement, seconds)
    _time_sampling(trainer, meter, settings[0], seeds)
    meter.skip_elapsed()
    with meter.section("save"):
        state = {name: held.detach().cpu().numpy().copy() for name, held in trainer.state().items()}
        trainer.weights_by_slot(range(len(settings)), state)
    return meter.cost()


def _time_updates(trainer: Trainer, meter: Timer, placement: Placement, seconds: float) -> None:
    end, n = time.perf_counter() + seconds, 0
    while n < MIN_TIMED_UPDATES or time.perf_counter() < end:
        with meter.section("compute"):
            trainer.train_step()
            _synchronize(placement)
        n += 1


def _time_evaluation(trainer: Trainer, meter: Timer, placement: Placement, seconds: float) -> None:
    """Scores chunks, twice since the first time is cold; the second time, as many as the seconds allow.

    Where evaluation is replayed, the first time records it.
    """
    reader, whole = Evaluator(trainer), trainer.batches
    if reader.uses_cuda_graph:
        for _ in range(2):
            start = time.perf_counter()
            reader.evaluate()
            _synchronize(placement)
            spent = time.perf_counter() - start
        meter.add("evaluate", spent)
        return
    set_matmul_precision(trainer.precision)
    trainer.model.eval()
    try:
        with torch.no_grad(), trainer.use_ema_weights():
            for allowed in (0.0, seconds):
                some = _TimeLimitedBatches(whole, allowed)
                trainer.batches = some
                start = time.perf_counter()
                trainer.score_samples()
                _synchronize(placement)
                spent = time.perf_counter() - start
            meter.add("evaluate", spent * some.extrapolation_factor)
    finally:
        trainer.batches = whole


def _time_sampling(trainer: Trainer, meter: Timer, settings: Settings, seeds: Sequence[int]) -> None:
    task, dials = settings.task, settings.train
    if isinstance(task, TextSettings) and dials.sample_every:
        n_tokens = min(MAX_SAMPLED_TOKENS, dials.sample_tokens)
        writer = SampleLogger(task, dials.model_copy(update={"sample_tokens": n_tokens}), seeds, trainer.step.device)
        start = time.perf_counter()
        with trainer.use_ema_weights():
            list(writer.sample(trainer.model, 0, range(len(seeds))))
        meter.add("write", (time.perf_counter() - start) * dials.sample_tokens / n_tokens)


def _synchronize(placement: Placement) -> None:
    if placement.device == "cuda":
        torch.cuda.synchronize()


class _TimeLimitedBatches:
    """The evaluated samples of a pack for as long as time allows, one chunk at least; the rest is only counted."""

    def __init__(self, batches: Batches, seconds: float) -> None:
        self._batches, self._seconds = batches, seconds
        self._n_yielded = self._n_skipped = 0
        self.eval_splits, self.prepare, self.draw = batches.eval_splits, batches.prepare, batches.draw

    @property
    def extrapolation_factor(self) -> float:
        """How often what was given goes into the whole."""
        return (self._n_yielded + self._n_skipped) / self._n_yielded

    def eval_chunks(self) -> Iterator[Batch]:
        end = time.perf_counter() + self._seconds
        for batch in self._batches.eval_chunks():
            if not self._n_yielded or time.perf_counter() < end:
                self._n_yielded += batch.inputs.numel()
                yield batch
            else:
                self._n_skipped += batch.inputs.numel()
