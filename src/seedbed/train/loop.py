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
    Cost,
    Diverged,
    Evaluated,
    Event,
    Finished,
    Measured,
    Placement,
    Saved,
    Stepped,
    Stopped,
)
from seedbed.settings import Settings, Text
from seedbed.train.graphs import Arrival, own_stream
from seedbed.train.meter import Meter
from seedbed.train.readings import Reader
from seedbed.train.step import CAUSES, Trainer, use_precision
from seedbed.train.stopping import Stopping
from seedbed.train.writing import Writer

Values: TypeAlias = NDArray[np.float64]  # (R, readings)


def train_pack(
    settings: Sequence[Settings],
    seeds: Sequence[int],
    placement: Placement,
    resume: Arrays | None = None,
    spent: Cost | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Event]:
    """Trains runs of equal shape together; goes on from `resume` where given; ends early when `stop()` says so."""
    torch.set_num_threads(placement.threads)
    with own_stream(placement.device) as stream:
        meter = Meter(placement, spent)
        with meter.spending("prepare"), torch.cuda.stream(stream):
            dtype = getattr(torch, placement.dtype)
            trainer = Trainer(settings, seeds, placement.device, dtype, placement.engine)
            session = _Session(trainer, settings, seeds, meter, stream)
            if resume is not None:
                session.restore(resume)
        if resume is None:
            yield from session.record(session.live)
        while session.live:
            if stop():
                yield from session.save(())
                yield Stopped(session.step)
                return
            session.advance()
            yield Stepped(session.step)
            yield from session.record(session.due_for_record())
            yield from session.write()
            ended = session.ended()
            yield from session.end(ended)
            if kept := session.due_for_saving(ended):
                yield from session.save(kept)
        yield Measured(session.step, meter.cost())


@dataclass
class _Session:
    """A trainer with its calendar: which slots are live, what is due at which step."""

    trainer: Trainer
    settings: Sequence[Settings]
    seeds: Sequence[int]
    meter: Meter
    stream: torch.cuda.Stream | None = None  # of its own on a GPU, so that packs train side by side there
    step: int = 0

    def __post_init__(self) -> None:
        self.dials = self.settings[0].train  # the calendar is the same for all runs of a pack
        self.live = list(range(len(self.settings)))
        self.stopping = Stopping(self.dials, len(self.settings))
        self.reader = Reader(self.trainer)
        self.best: list[int] = []  # the slots whose last record is their best one
        self.broken = self.cause = [-1] * len(self.settings)  # as of the last record
        task, device = self.settings[0].task, self.trainer.step.device
        self.writer: Writer | None = None
        if isinstance(task, Text) and self.dials.sample_every:
            self.writer = Writer(task, self.dials, self.seeds, device)
        self._check_watched()

    def _check_watched(self) -> None:
        """Refuses to watch the validation of a task that holds nothing out."""
        watched: dict[str, Sequence[str | None]] = {"train.watch": self.trainer.schedule.watches}
        watched |= {"train.stop_metric": [self.stopping.metric]} if self.stopping.patience else {}
        splits = {part.name for part in self.trainer.batches.parts}
        for dial, name in ((dial, name) for dial, names in watched.items() for name in names):
            if name and name.partition("/")[0] not in splits:
                raise UsageError(f"{dial} = {name} needs a validation set; set task.val_fraction above 0")

    def restore(self, state: Arrays) -> None:
        device = self.trainer.step.device
        with torch.cuda.stream(self.stream):
            self.trainer.restore({name: torch.from_numpy(np.array(held)).to(device) for name, held in state.items()})
            self.step = int(self.trainer.step)
        self.stopping.restore(state)
        self.live = [slot for slot in self.live if self.trainer.totals[slot] > self.step]

    def advance(self) -> None:
        with self.meter.spending("compute"), torch.cuda.stream(self.stream):
            self.trainer.advance()
        self.step += 1

    def due_for_record(self) -> list[int]:
        dials, step = self.dials, self.step
        if step <= dials.eval_first or step % dials.eval_every == 0:
            return self.live
        return [slot for slot in self.live if self.trainer.totals[slot] == step]

    def record(self, slots: Sequence[int]) -> Iterator[Event]:
        """Evaluates the pack; tells schedules and early stopping; repeats a run's last record as its closing one."""
        self.best = []
        if not slots:
            return
        yield from self._wait("compute")
        with self.meter.spending("evaluate"), torch.cuda.stream(self.stream):
            readings, columns = self.reader.read()
            if self.step % self.dials.eval_every == 0:
                self._tell_schedules(readings)
            arrival = Arrival({"columns": columns})
        yield from self._wait("evaluate", arrival)
        table = arrival.tensors()["columns"].numpy()
        values, (self.broken, self.cause) = table[:, :-2], table[:, -2:].astype(int).T.tolist()
        names = tuple(readings)
        yield Evaluated(self.step, tuple(slots), names, values[list(slots)])
        self._end_early(slots, names, values)
        closing = [slot for slot in slots if self.trainer.totals[slot] == self.step]
        if closing and self.dials.closing_record:
            yield Evaluated(self.step + 1, tuple(closing), names, values[closing])

    def write(self) -> Iterator[Event]:
        """What the runs write, when it is time to."""
        if self.writer is None or self.step % self.dials.sample_every:
            return
        yield from self._wait("compute")
        use_precision(self.trainer.precision)
        with self.meter.spending("write"), torch.cuda.stream(self.stream), self.trainer.evaluated_weights():
            written = list(self.writer.write(self.trainer.model, self.step, self.live))
        yield from written

    def _wait(self, on: str, arrival: Arrival | None = None) -> Iterator[Event]:
        """Lets the device come to its end of what was queued, and others have their turn meanwhile."""
        with torch.cuda.stream(self.stream):
            arrival = arrival or Arrival({"step": self.trainer.step})
        while not arrival.is_here:
            yield Stepped(self.step)
        self.meter.wait(on)

    def _tell_schedules(self, readings: dict[str, torch.Tensor]) -> None:
        watches = self.trainer.schedule.watches
        if any(watches):
            watched = [readings[name][slot] if name else readings["norm"][slot] for slot, name in enumerate(watches)]
            self.trainer.schedule.observe(torch.stack(watched))

    def _end_early(self, slots: Sequence[int], names: Sequence[str], values: Values) -> None:
        """Makes this step the last one of the runs that have no seconds left or make no progress."""
        ending: list[int] = []
        if self.stopping.patience:
            self.best = self.stopping.observe(slots, values[list(slots), names.index(self.stopping.metric)])
            ending += self.stopping.due(slots)
        if self.dials.seconds is not None and self.meter.seconds["compute"] >= self.dials.seconds:
            ending = list(slots)
        with torch.cuda.stream(self.stream):
            for slot in ending:
                self.trainer.end(slot)

    def ended(self) -> list[Diverged | Finished]:
        """The slots that end at this step: diverged (looked at when something is recorded) or done."""
        totals, step = self.trainer.totals, self.step
        ends: list[Diverged | Finished] = []
        looked = bool(self.due_for_record())
        for slot in self.live:
            if looked and self.broken[slot] >= 0:
                ends.append(Diverged(slot, self.broken[slot], CAUSES[self.cause[slot]]))
            elif totals[slot] == step:
                ends.append(Finished(slot, step))
        return ends

    def end(self, ended: Sequence[Diverged | Finished]) -> Iterator[Event]:
        gone = {event.slot for event in ended}
        self.live = [slot for slot in self.live if slot not in gone]
        with torch.cuda.stream(self.stream):
            for slot in gone:  # who goes on from here knows that it was told, and of those that were not yet
                self.trainer.end(slot)
        yield from ended

    def due_for_saving(self, ended: Sequence[Diverged | Finished]) -> list[int]:
        """The slots whose weights are kept at this step: those that are done, and of the others all or the best."""
        done = [event.slot for event in ended if isinstance(event, Finished)]
        others = self.live if self.step % self.dials.save_every == 0 else set(self.live).intersection(self.best)
        return done + sorted(others)

    def save(self, kept: Sequence[int]) -> Iterator[Event]:
        """Everything to go on from, after what it has cost to come here."""
        yield from self._wait("compute")
        with self.meter.spending("save"), torch.cuda.stream(self.stream):
            arrival = Arrival(self.trainer.state())
        yield from self._wait("save", arrival)
        with self.meter.spending("save", times=0):
            state = {name: held.numpy() for name, held in arrival.tensors().items()}
            weights = self.trainer.kept(kept, state)
        yield Measured(self.step, self.meter.cost())
        yield Saved(self.step, state | dict(self.stopping.state()), weights)
        self.meter.pause()
