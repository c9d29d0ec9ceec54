"""The training loop: update, evaluate, sample and save at their intervals; yields events, stores nothing.

    for event in train_pack(settings, seeds, placement):
        ...

Evaluated steps: 0 (before training), every step up to `eval_first`, every multiple of `eval_every`, a run's last step
and, with `final_evaluation`, the same weights once more as last step + 1. A run ends after its last step, or at an
evaluation when its time budget is used up or its validation metric has stopped improving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from seedbed.records import (
    Arrays,
    CheckpointEvent,
    Cost,
    CostEvent,
    DivergenceEvent,
    EvaluationEvent,
    Event,
    FinishEvent,
    Placement,
    StepEvent,
    StopEvent,
)
from seedbed.settings import RUNNING_LOSS, Settings
from seedbed.study.pack import has_twin
from seedbed.tasks.base import check_monitored_metrics
from seedbed.training.cuda_graphs import HostCopy, acquire_stream
from seedbed.training.early_stopping import EarlyStopping
from seedbed.training.evaluate import Evaluator
from seedbed.training.sample_logger import SampleLogger
from seedbed.training.timer import Timer
from seedbed.training.trainer import DIVERGENCE_CAUSES, Trainer

MetricValues: TypeAlias = NDArray[np.float64]  # (R, metrics)


def train_pack(
    settings: Sequence[Settings],
    seeds: Sequence[int],
    placement: Placement,
    resume_state: Arrays | None = None,
    previous_cost: Cost | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    until: int | None = None,
) -> Iterator[Event]:
    """Trains runs of equal shape together, from `resume_state` if given; saves and ends at `until` or `should_stop()`.

    Schedules see the whole run whatever `until` is, so a run that is resumed from there equals one that never stopped.
    """
    torch.set_num_threads(placement.threads)
    with acquire_stream(placement.device) as stream:
        timer = Timer(placement, previous_cost)
        with timer.section("prepare"), torch.cuda.stream(stream):
            dtype, n_runs = getattr(torch, placement.dtype), len(settings)
            if has_twin(settings[0], n_runs, placement.device):
                settings, seeds = [*settings] * 2, [*seeds] * 2
            trainer = Trainer(settings, seeds, placement.device, dtype, placement.mode)
            session = _TrainingSession(trainer, settings, seeds, timer, stream, n_runs=n_runs)
            if resume_state is not None:
                session.restore(resume_state)
        if resume_state is None:
            yield from session.evaluate(session.active_slots)
        while session.active_slots:
            if should_stop() or (until is not None and session.step >= until):
                yield from session.save_checkpoint(())
                yield StopEvent(session.step)
                return
            session.train_step()
            yield StepEvent(session.step)
            yield from session.evaluate(session.slots_to_evaluate())
            yield from session.sample()
            end_events = session.end_events()
            yield from session.finish_slots(end_events)
            if slots := session.slots_to_save(end_events):
                yield from session.save_checkpoint(slots)
        yield CostEvent(session.step, timer.cost())


@dataclass
class _TrainingSession:
    """A trainer with its schedule of events: which slots are active, and what is due at which step."""

    trainer: Trainer
    settings: Sequence[Settings]
    seeds: Sequence[int]
    timer: Timer
    stream: torch.cuda.Stream | None = None  # one per pack on a GPU, so that packs train concurrently
    step: int = 0
    n_runs: int | None = None  # the first slots, of which events are; None: all

    def __post_init__(self) -> None:
        self.train_settings = self.settings[0].train  # intervals are equal for all runs of a pack
        self.active_slots = list(range(len(self.settings)))[: self.n_runs]
        self.early_stopping = EarlyStopping(self.train_settings, len(self.settings))
        self.evaluator = Evaluator(self.trainer)
        self.improved_slots: list[int] = []  # slots whose latest evaluation is their best
        self.diverged_at = self.divergence_causes = [-1] * len(self.settings)  # as of the last evaluation
        self.sample_logger: SampleLogger | None = None
        if self.settings[0].task.generates_text and self.train_settings.sample_every:
            self.sample_logger = SampleLogger(self.settings[0], self.seeds, self.trainer)
        for settings in self.settings:
            check_monitored_metrics(settings, {split.name for split in self.trainer.batches.eval_splits})

    def restore(self, state: Arrays) -> None:
        device = self.trainer.step.device
        with torch.cuda.stream(self.stream):
            self.trainer.restore({name: torch.from_numpy(np.array(array)).to(device) for name, array in state.items()})
            self.step = int(self.trainer.step)
        self.early_stopping.restore(state)
        self.active_slots = [slot for slot in self.active_slots if self.trainer.n_steps[slot] > self.step]

    def train_step(self) -> None:
        with self.timer.section("compute"), torch.cuda.stream(self.stream):
            self.trainer.train_step()
        self.step += 1

    def slots_to_evaluate(self) -> list[int]:
        train, step = self.train_settings, self.step
        if step <= train.eval_first or step % train.eval_every == 0:
            return self.active_slots
        return [slot for slot in self.active_slots if self.trainer.n_steps[slot] == step]

    def evaluate(self, slots: Sequence[int]) -> Iterator[Event]:
        """Evaluates the pack, updates plateau schedules and early stopping, repeats a run's last evaluation if set."""
        self.improved_slots = []
        if not slots:
            return
        yield from self._wait_for_device("compute")
        with self.timer.section("evaluate"), torch.cuda.stream(self.stream):
            metrics, columns = self.evaluator.evaluate()
            if self.step % self.train_settings.eval_every == 0:
                self._update_plateau_schedules(metrics)
            host_copy = HostCopy({"columns": columns})
            if self.trainer.running_loss is not None:
                self.trainer.running_loss.reset(slots)
        yield from self._wait_for_device("evaluate", host_copy)
        table = host_copy.tensors["columns"].numpy()
        values, (self.diverged_at, self.divergence_causes) = table[:, :-2], table[:, -2:].astype(int).T.tolist()
        # before the first update there is no running loss
        kept = [i for i, name in enumerate(metrics) if self.step or not name.startswith("train/running_")]
        names, values = tuple(list(metrics)[i] for i in kept), values[:, kept]
        yield EvaluationEvent(self.step, tuple(slots), names, values[list(slots)])
        self._stop_early(slots, names, values)
        final = [slot for slot in slots if self.trainer.n_steps[slot] == self.step]
        if final and self.train_settings.final_evaluation:
            yield EvaluationEvent(self.step + 1, tuple(final), names, values[final])

    def sample(self) -> Iterator[Event]:
        """Starts a sample of every active run, if it is due at this step; yields earlier ones when they are ready."""
        logger = self.sample_logger
        if logger is None:
            return
        if logger.is_ready:
            yield from logger.collect()
        if self.step % self.train_settings.sample_every == 0:
            yield from self.finish_samples()
            with self.timer.section("write"), torch.cuda.stream(self.stream):
                logger.start(self.step, self.active_slots)
            if logger.is_ready:
                yield from logger.collect()

    def finish_samples(self) -> Iterator[Event]:
        """Waits for the samples that were started; yields meanwhile, so that other packs get their turn."""
        logger = self.sample_logger
        if logger is not None and logger.is_pending:
            while not logger.is_ready:
                yield StepEvent(self.step)
            yield from logger.collect()

    def _wait_for_device(self, section: str, host_copy: HostCopy | None = None) -> Iterator[Event]:
        """Waits until the device has done the queued work; yields meanwhile, so that other packs get their turn."""
        with torch.cuda.stream(self.stream):
            host_copy = host_copy or HostCopy({"step": self.trainer.step})
        while not host_copy.is_ready:
            yield StepEvent(self.step)
        self.timer.add_device_wait(section)

    def _update_plateau_schedules(self, metrics: dict[str, torch.Tensor]) -> None:
        names = self.trainer.schedule.plateau_metrics
        if any(names):
            # Runs without a plateau schedule ignore their value; the norm exists for every run.
            found = [name if name is None or name in metrics else RUNNING_LOSS for name in names]
            values = [metrics[name or "norm"][slot] for slot, name in enumerate(found)]
            self.trainer.schedule.update_plateau(torch.stack(values))

    def _stop_early(self, slots: Sequence[int], names: Sequence[str], values: MetricValues) -> None:
        """Makes this the last step of runs whose time budget is used up or whose metric has stopped improving."""
        stopped: list[int] = []
        if self.early_stopping.patience:
            self.improved_slots = self.early_stopping.update(
                slots, values[list(slots), names.index(self.early_stopping.metric)]
            )
            stopped += self.early_stopping.slots_to_stop(slots)
        if self.train_settings.seconds is not None and self.timer.seconds["compute"] >= self.train_settings.seconds:
            stopped = list(slots)
        with torch.cuda.stream(self.stream):
            for slot in stopped:
                self.trainer.freeze_run(slot)

    def end_events(self) -> list[DivergenceEvent | FinishEvent]:
        """One event for each slot that ends at this step, finished or diverged."""
        events: list[DivergenceEvent | FinishEvent] = []
        was_evaluated = bool(self.slots_to_evaluate())  # divergence reaches the host only with an evaluation
        for slot in self.active_slots:
            if was_evaluated and self.diverged_at[slot] >= 0:
                cause = DIVERGENCE_CAUSES[self.divergence_causes[slot]]
                events.append(DivergenceEvent(slot, self.diverged_at[slot], cause))
            elif self.trainer.n_steps[slot] == self.step:
                events.append(FinishEvent(slot, self.step))
        return events

    def finish_slots(self, events: Sequence[DivergenceEvent | FinishEvent]) -> Iterator[Event]:
        if events:
            yield from self.finish_samples()
        finished = {event.slot for event in events}
        self.active_slots = [slot for slot in self.active_slots if slot not in finished]
        with torch.cuda.stream(self.stream):
            # The saved last step of these runs tells a resumed session that their end was already reported.
            for slot in finished:
                self.trainer.freeze_run(slot)
        yield from events

    def slots_to_save(self, events: Sequence[DivergenceEvent | FinishEvent]) -> list[int]:
        """Slots whose weights are kept at this step: finished ones, and all others if due, else the improved ones."""
        finished = [event.slot for event in events if isinstance(event, FinishEvent)]
        others = (
            self.active_slots
            if self.train_settings.keeps_checkpoint(self.step)
            else set(self.active_slots).intersection(self.improved_slots)
        )
        return finished + sorted(others)

    def save_checkpoint(self, slots: Sequence[int]) -> Iterator[Event]:
        """Yields the cost so far, then the full state with the weights of these slots.

        Samples of earlier steps come first: a session that resumes from this state would not make them again.
        """
        yield from self.finish_samples()
        yield from self._wait_for_device("compute")
        with self.timer.section("save"), torch.cuda.stream(self.stream):
            host_copy = HostCopy(self.trainer.state())
        yield from self._wait_for_device("save", host_copy)
        with self.timer.section("save", count=0):
            state = {name: tensor.numpy() for name, tensor in host_copy.tensors.items()}
            weights = self.trainer.weights_by_slot(slots, state)
        yield CostEvent(self.step, self.timer.cost())
        yield CheckpointEvent(self.step, state | dict(self.early_stopping.state()), weights)
        self.timer.skip_elapsed()
