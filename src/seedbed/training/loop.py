"""The training loop: update, now and then evaluate, write and save; events out, nothing kept.

    for event in train_pack(settings, seeds, placement):
        ...

Recorded steps: 0 (before training), every step up to `eval_first`, every multiple of `eval_every`, a run's last step,
and, where asked for, one closing record of the same weights labelled last step + 1. A run ends after its last step; at
a record also when its seconds are spent or its validation reading has stopped improving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from seedbed.errors import UsageError
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
from seedbed.settings import Settings, TextSettings
from seedbed.training.cuda_graphs import HostCopy, acquire_stream
from seedbed.training.early_stopping import EarlyStopping
from seedbed.training.evaluate import Evaluator
from seedbed.training.sample_logger import SampleLogger
from seedbed.training.timer import Timer
from seedbed.training.trainer import DIVERGENCE_CAUSES, Trainer, set_matmul_precision

MetricValues: TypeAlias = NDArray[np.float64]  # (R, readings)


def train_pack(
    settings: Sequence[Settings],
    seeds: Sequence[int],
    placement: Placement,
    resume_state: Arrays | None = None,
    previous_cost: Cost | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[Event]:
    """Trains runs of equal shape together; goes on from `resume` where given; ends early when `stop()` says so."""
    torch.set_num_threads(placement.threads)
    with acquire_stream(placement.device) as stream:
        meter = Timer(placement, previous_cost)
        with meter.section("prepare"), torch.cuda.stream(stream):
            dtype = getattr(torch, placement.dtype)
            trainer = Trainer(settings, seeds, placement.device, dtype, placement.mode)
            session = _TrainingSession(trainer, settings, seeds, meter, stream)
            if resume_state is not None:
                session.restore(resume_state)
        if resume_state is None:
            yield from session.evaluate(session.active_slots)
        while session.active_slots:
            if should_stop():
                yield from session.save_checkpoint(())
                yield StopEvent(session.step)
                return
            session.train_step()
            yield StepEvent(session.step)
            yield from session.evaluate(session.slots_to_evaluate())
            yield from session.sample()
            ended = session.end_events()
            yield from session.finish_slots(ended)
            if kept := session.slots_to_save(ended):
                yield from session.save_checkpoint(kept)
        yield CostEvent(session.step, meter.cost())


@dataclass
class _TrainingSession:
    """A trainer with its calendar: which slots are live, what is due at which step."""

    trainer: Trainer
    settings: Sequence[Settings]
    seeds: Sequence[int]
    timer: Timer
    stream: torch.cuda.Stream | None = None  # of its own on a GPU, so that packs train side by side there
    step: int = 0

    def __post_init__(self) -> None:
        self.train_settings = self.settings[0].train  # the calendar is the same for all runs of a pack
        self.active_slots = list(range(len(self.settings)))
        self.early_stopping = EarlyStopping(self.train_settings, len(self.settings))
        self.evaluator = Evaluator(self.trainer)
        self.improved_slots: list[int] = []  # the slots whose last record is their best one
        self.diverged_at = self.divergence_causes = [-1] * len(self.settings)  # as of the last record
        task, device = self.settings[0].task, self.trainer.step.device
        self.sample_logger: SampleLogger | None = None
        if isinstance(task, TextSettings) and self.train_settings.sample_every:
            self.sample_logger = SampleLogger(task, self.train_settings, self.seeds, device)
        self._check_validation_metrics()

    def _check_validation_metrics(self) -> None:
        """Refuses to watch the validation of a task that holds nothing out."""
        watched: dict[str, Sequence[str | None]] = {"train.plateau_metric": self.trainer.schedule.plateau_metrics}
        watched |= {"train.stop_metric": [self.early_stopping.metric]} if self.early_stopping.patience else {}
        splits = {part.name for part in self.trainer.batches.eval_splits}
        for dial, name in ((dial, name) for dial, names in watched.items() for name in names):
            if name and name.partition("/")[0] not in splits:
                raise UsageError(f"{dial} = {name} needs a validation set; set task.val_fraction above 0")

    def restore(self, state: Arrays) -> None:
        device = self.trainer.step.device
        with torch.cuda.stream(self.stream):
            self.trainer.restore({name: torch.from_numpy(np.array(held)).to(device) for name, held in state.items()})
            self.step = int(self.trainer.step)
        self.early_stopping.restore(state)
        self.active_slots = [slot for slot in self.active_slots if self.trainer.n_steps[slot] > self.step]

    def train_step(self) -> None:
        with self.timer.section("compute"), torch.cuda.stream(self.stream):
            self.trainer.train_step()
        self.step += 1

    def slots_to_evaluate(self) -> list[int]:
        dials, step = self.train_settings, self.step
        if step <= dials.eval_first or step % dials.eval_every == 0:
            return self.active_slots
        return [slot for slot in self.active_slots if self.trainer.n_steps[slot] == step]

    def evaluate(self, slots: Sequence[int]) -> Iterator[Event]:
        """Evaluates the pack; tells schedules and early stopping; repeats a run's last record as its closing one."""
        self.improved_slots = []
        if not slots:
            return
        yield from self._wait_for_device("compute")
        with self.timer.section("evaluate"), torch.cuda.stream(self.stream):
            readings, columns = self.evaluator.evaluate()
            if self.step % self.train_settings.eval_every == 0:
                self._update_plateau_schedules(readings)
            arrival = HostCopy({"columns": columns})
        yield from self._wait_for_device("evaluate", arrival)
        table = arrival.tensors()["columns"].numpy()
        values, (self.diverged_at, self.divergence_causes) = table[:, :-2], table[:, -2:].astype(int).T.tolist()
        names = tuple(readings)
        yield EvaluationEvent(self.step, tuple(slots), names, values[list(slots)])
        self._stop_early(slots, names, values)
        closing = [slot for slot in slots if self.trainer.n_steps[slot] == self.step]
        if closing and self.train_settings.final_evaluation:
            yield EvaluationEvent(self.step + 1, tuple(closing), names, values[closing])

    def sample(self) -> Iterator[Event]:
        """What the runs write, when it is time to."""
        if self.sample_logger is None or self.step % self.train_settings.sample_every:
            return
        yield from self._wait_for_device("compute")
        set_matmul_precision(self.trainer.precision)
        with self.timer.section("write"), torch.cuda.stream(self.stream), self.trainer.use_ema_weights():
            written = list(self.sample_logger.sample(self.trainer.model, self.step, self.active_slots))
        yield from written

    def _wait_for_device(self, section: str, host_copy: HostCopy | None = None) -> Iterator[Event]:
        """Lets the device come to its end of what was queued, and others have their turn meanwhile."""
        with torch.cuda.stream(self.stream):
            host_copy = host_copy or HostCopy({"step": self.trainer.step})
        while not host_copy.is_ready:
            yield StepEvent(self.step)
        self.timer.add_device_wait(section)

    def _update_plateau_schedules(self, metrics: dict[str, torch.Tensor]) -> None:
        watches = self.trainer.schedule.plateau_metrics
        if any(watches):
            watched = [metrics[name][slot] if name else metrics["norm"][slot] for slot, name in enumerate(watches)]
            self.trainer.schedule.update_plateau(torch.stack(watched))

    def _stop_early(self, slots: Sequence[int], names: Sequence[str], values: MetricValues) -> None:
        """Makes this step the last one of the runs that have no seconds left or make no progress."""
        ending: list[int] = []
        if self.early_stopping.patience:
            self.improved_slots = self.early_stopping.update(
                slots, values[list(slots), names.index(self.early_stopping.metric)]
            )
            ending += self.early_stopping.slots_to_stop(slots)
        if self.train_settings.seconds is not None and self.timer.seconds["compute"] >= self.train_settings.seconds:
            ending = list(slots)
        with torch.cuda.stream(self.stream):
            for slot in ending:
                self.trainer.freeze_run(slot)

    def end_events(self) -> list[DivergenceEvent | FinishEvent]:
        """The slots that end at this step: diverged (looked at when something is recorded) or done."""
        totals, step = self.trainer.n_steps, self.step
        ends: list[DivergenceEvent | FinishEvent] = []
        looked = bool(self.slots_to_evaluate())
        for slot in self.active_slots:
            if looked and self.diverged_at[slot] >= 0:
                ends.append(
                    DivergenceEvent(slot, self.diverged_at[slot], DIVERGENCE_CAUSES[self.divergence_causes[slot]])
                )
            elif totals[slot] == step:
                ends.append(FinishEvent(slot, step))
        return ends

    def finish_slots(self, events: Sequence[DivergenceEvent | FinishEvent]) -> Iterator[Event]:
        gone = {event.slot for event in events}
        self.active_slots = [slot for slot in self.active_slots if slot not in gone]
        with torch.cuda.stream(self.stream):
            for slot in gone:  # who goes on from here knows that it was told, and of those that were not yet
                self.trainer.freeze_run(slot)
        yield from events

    def slots_to_save(self, events: Sequence[DivergenceEvent | FinishEvent]) -> list[int]:
        """The slots whose weights are kept at this step: those that are done, and of the others all or the best."""
        done = [event.slot for event in events if isinstance(event, FinishEvent)]
        others = (
            self.active_slots
            if self.step % self.train_settings.save_every == 0
            else set(self.active_slots).intersection(self.improved_slots)
        )
        return done + sorted(others)

    def save_checkpoint(self, slots: Sequence[int]) -> Iterator[Event]:
        """Everything to go on from, after what it has cost to come here."""
        yield from self._wait_for_device("compute")
        with self.timer.section("save"), torch.cuda.stream(self.stream):
            arrival = HostCopy(self.trainer.state())
        yield from self._wait_for_device("save", arrival)
        with self.timer.section("save", count=0):
            state = {name: held.numpy() for name, held in arrival.tensors().items()}
            weights = self.trainer.weights_by_slot(slots, state)
        yield CostEvent(self.step, self.timer.cost())
        yield CheckpointEvent(self.step, state | dict(self.early_stopping.state()), weights)
        self.timer.skip_elapsed()
