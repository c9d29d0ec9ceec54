"""Times a few updates, an evaluation, a sample and a save of a pack, to estimate what its training would take.

    cost = probe_pack(settings, seeds, placement, seconds=1.0)

Each runs at its real size for about that long; an evaluation or sample that would take longer is timed in part and
extrapolated. Nothing is stored.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import torch

from seedbed.data.batch import Batch, Batches
from seedbed.records import Cost, Placement
from seedbed.settings import Settings
from seedbed.training.evaluate import Evaluator
from seedbed.training.sample_logger import SampleLogger
from seedbed.training.timer import Timer
from seedbed.training.trainer import Trainer

MIN_TIMED_UPDATES = 3  # however long they take
MAX_SAMPLED_TOKENS = 16  # the time of longer samples is extrapolated


def probe_pack(settings: Sequence[Settings], seeds: Sequence[int], placement: Placement, seconds: float) -> Cost:
    """The measured cost of a pack: seconds of each section, and memory."""
    torch.set_num_threads(placement.threads)
    timer = Timer(placement)
    with timer.section("prepare"):
        trainer = Trainer(settings, seeds, placement.device, getattr(torch, placement.dtype), placement.mode)
    with timer.section("compute"):  # the warm-up
        trainer.train_step()
        _synchronize(placement)
    _time_updates(trainer, timer, placement, seconds)
    _time_evaluation(trainer, timer, placement, seconds)
    _time_sampling(trainer, timer, settings[0], seeds)
    timer.skip_elapsed()
    with timer.section("save"):
        state = {name: tensor.detach().cpu().numpy().copy() for name, tensor in trainer.state().items()}
        trainer.weights_by_slot(range(len(settings)), state)
    return timer.cost()


def _time_updates(trainer: Trainer, timer: Timer, placement: Placement, seconds: float) -> None:
    end, n = time.perf_counter() + seconds, 0
    while n < MIN_TIMED_UPDATES or time.perf_counter() < end:
        with timer.section("compute"):
            trainer.train_step()
            _synchronize(placement)
        n += 1


def _time_evaluation(trainer: Trainer, timer: Timer, placement: Placement, seconds: float) -> None:
    """Times an evaluation, the second of two since the first is a warm-up; as many chunks as the seconds allow."""
    evaluator, all_batches = Evaluator(trainer), trainer.batches
    if evaluator.uses_cuda_graph:
        for _ in range(2):  # the first call captures the graph
            start = time.perf_counter()
            evaluator.evaluate()
            _synchronize(placement)
            elapsed = time.perf_counter() - start
        timer.add("evaluate", elapsed)
        return
    trainer.set_arithmetic()
    trainer.model.eval()
    try:
        with torch.no_grad(), trainer.use_ema_weights():
            for time_limit in (0.0, seconds):
                limited_batches = _TimeLimitedBatches(all_batches, time_limit)
                trainer.batches = limited_batches
                start = time.perf_counter()
                trainer.score_samples()
                _synchronize(placement)
                elapsed = time.perf_counter() - start
            timer.add("evaluate", elapsed * limited_batches.extrapolation_factor)
    finally:
        trainer.batches = all_batches


def _time_sampling(trainer: Trainer, timer: Timer, settings: Settings, seeds: Sequence[int]) -> None:
    task, train = settings.task, settings.train
    if task.generates_text and train.sample_every:
        n_tokens = min(MAX_SAMPLED_TOKENS, train.sample_tokens)
        short = settings.model_copy(update={"train": train.model_copy(update={"sample_tokens": n_tokens})})
        sample_logger = SampleLogger(short, seeds, trainer)
        for _ in range(2 if trainer.uses_cuda_graphs else 1):  # the first captures the graphs
            start = time.perf_counter()
            sample_logger.start(0, range(len(seeds)))
            queued = time.perf_counter()
            while not sample_logger.is_ready:
                time.sleep(1e-4)
            sample_logger.collect()
        # samples that are generated beside training cost it only the time to queue them
        elapsed = queued - start if trainer.uses_cuda_graphs else time.perf_counter() - start
        timer.add("write", elapsed * train.sample_tokens / n_tokens)


def _synchronize(placement: Placement) -> None:
    if placement.device == "cuda":
        torch.cuda.synchronize()


class _TimeLimitedBatches:
    """Yields evaluation chunks until the time is up, at least one; the rest is only counted."""

    def __init__(self, batches: Batches, seconds: float) -> None:
        self._batches, self._seconds = batches, seconds
        self._n_yielded = self._n_skipped = 0
        self.eval_splits, self.prepare, self.draw = batches.eval_splits, batches.prepare, batches.draw

    @property
    def extrapolation_factor(self) -> float:
        """Size of the whole evaluation divided by the part that was yielded."""
        return (self._n_yielded + self._n_skipped) / self._n_yielded

    def eval_chunks(self) -> Iterator[Batch]:
        end = time.perf_counter() + self._seconds
        for batch in self._batches.eval_chunks():
            if not self._n_yielded or time.perf_counter() < end:
                self._n_yielded += batch.inputs.numel()
                yield batch
            else:
                self._n_skipped += batch.inputs.numel()
