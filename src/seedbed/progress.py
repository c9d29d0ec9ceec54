"""Progress of a study on stderr: bars in a terminal, otherwise a plain line at intervals.

In a terminal there is a line for all runs together, with the time left, and one for each pack that is training, named
by the settings that tell it from the others. A line fits into 80 columns.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from seedbed.engines.base import JobFailure
from seedbed.format import escape_controls, pluralise, short_setting_name
from seedbed.pipeline import ActivePack
from seedbed.records import (
    ENDED_STATUSES,
    CheckpointEvent,
    DivergenceEvent,
    EvaluationEvent,
    Event,
    FinishEvent,
    StepEvent,
    StopEvent,
)
from seedbed.report.study_runs import differing_settings
from seedbed.stats.metric_registry import training_metric
from seedbed.study.conditions import format_filter_value

PLAIN_LINE_INTERVAL_SECONDS = 10.0  # when stderr is not a terminal
TRUSTED_FRACTION = 0.1  # of a pack's updates, after which its own speed says how long it takes, and not the estimate
MAX_NAME_CHARACTERS = 25  # of a pack, in a terminal of 80 columns
MAX_FINISHED_BARS = 6  # with more packs, bars disappear when they are full


@dataclass
class _PackProgress:
    """Progress of one pack."""

    pack: ActivePack
    name: str
    start_step: int
    step: int
    n_active: int
    bar: TaskID | None = None
    bar_started: bool = False
    start_time: float = 0.0  # 0: waiting
    losses: str = ""

    def steps_per_second(self, now: float) -> float:
        """Updates per second of the whole pack in this session."""
        return (self.step - self.start_step) / (now - self.start_time) if now > self.start_time else 0.0

    def seconds_left(self, now: float) -> float | None:
        """Until its training ends in this command: the estimate at first, then what the speed so far says."""
        elapsed, estimated = now - self.start_time if self.start_time else 0.0, self.pack.estimated_seconds
        if self.pack.n_remaining_steps is None:  # a time budget
            return None if estimated is None else max(0.0, estimated - elapsed)
        n_session = self.pack.n_steps - self.start_step
        done = (self.step - self.start_step) / n_session if n_session else 1.0
        measured = elapsed * (1 - done) / done if done else None
        if estimated is None or measured is None:
            return measured if estimated is None else max(0.0, estimated - elapsed)
        trust = min(1.0, done / TRUSTED_FRACTION)
        return trust * measured + (1 - trust) * estimated * (1 - done)


class _StepColumn(ProgressColumn):
    """Steps done and planned; empty for the line of all packs, whose steps differ."""

    def render(self, task: Task) -> Text:
        if task.fields["is_total"]:
            return Text(f"{task.percentage:.0f} %", style="progress.percentage")
        return Text(f"{task.completed:,.0f}/{task.total or 0:,.0f}", style="progress.download")


class _SpeedColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        is_hidden = speed is None or task.fields["is_total"]
        return Text("" if is_hidden else f"{speed:,.0f}/s", style="progress.data.speed")


class _LossColumn(ProgressColumn):
    """The one column that is shortened where a line is too long."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["losses"], no_wrap=True, overflow="ellipsis")


class _TimeLeftColumn(TimeRemainingColumn):
    """The time left of a pack, from its estimate before it has a speed; of all packs, from their speed."""

    def render(self, task: Task) -> Text:
        seconds = task.fields.get("seconds_left")
        if task.fields["is_total"] or seconds is None:
            return super().render(task)
        minutes, rest = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        clock = f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"
        return Text(clock, style="progress.remaining")


def _make_bars(console: Console) -> Progress:
    name = Column(no_wrap=True, overflow="ellipsis", max_width=MAX_NAME_CHARACTERS)
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=name), BarColumn(10, table_column=Column(width=10)),
        _StepColumn(Column(no_wrap=True, justify="right")), _SpeedColumn(Column(no_wrap=True, justify="right")),
        _TimeLeftColumn(compact=True, table_column=Column(no_wrap=True)), _LossColumn(),
        console=console, refresh_per_second=4,
    )  # fmt: skip


class ProgressDisplay:
    """Displays packs while they train: `with ProgressDisplay(console) as display: run_studies(…, display, …)`."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._console, self._quiet = console, quiet
        self._packs: dict[str, _PackProgress] = {}
        self._last_printed = time.monotonic()
        self._bars: Progress | None = None
        self._total: TaskID | None = None
        self._is_stopping = False

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._bars = _make_bars(self._console)
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def on_start(self, packs: Sequence[ActivePack]) -> None:
        self._add_packs(packs)
        if self._bars is None and packs and not self._quiet:
            n_runs = sum(len(pack.runs) for pack in packs)
            self._print(f"training {pluralise(n_runs, 'run')} in {pluralise(len(packs), 'pack')}")

    def _add_packs(self, packs: Sequence[ActivePack]) -> None:
        n_before = len(self._packs)
        labels = _distinguish_packs([*(progress.pack for progress in self._packs.values()), *packs])[n_before:]
        for number, (pack, label) in enumerate(zip(packs, labels, strict=True), n_before + 1):
            n_active = sum(run.status not in ENDED_STATUSES for run in pack.runs)
            start_step = pack.stored.step or 0
            name = f"pack {number}/{n_before + len(packs)}, {label}"
            bar = None
            if self._bars is not None:
                bar = self._bars.add_task(
                    label,
                    total=pack.n_steps,
                    completed=start_step,
                    losses="",
                    is_total=False,
                    start=False,
                    visible=False,
                )
            self._packs[pack.stored.id] = _PackProgress(pack, name, start_step, start_step, n_active, bar)
        self._refresh_total()

    def _refresh_total(self) -> None:
        """Updates the line of all packs: the steps of all runs, of which a run of any pack counts alike."""
        if self._bars is None or len(self._packs) < 2:
            return
        progresses = self._packs.values()
        done = sum(one.step * len(one.pack.runs) for one in progresses)
        planned = sum(one.pack.n_steps * len(one.pack.runs) for one in progresses)
        name = f"all {sum(len(one.pack.runs) for one in progresses):,} runs"
        n_ended = sum(one.step >= one.pack.n_steps for one in progresses)
        status = f"{n_ended} of {len(self._packs)} packs done"
        if self._total is None:
            self._total = self._bars.add_task(name, total=planned, completed=done, losses=status, is_total=True)
        self._bars.update(self._total, description=name, total=planned, completed=done, losses=status)

    def on_split(self, pack: ActivePack, parts: Sequence[ActivePack]) -> None:
        """Prints that a pack was split, and replaces its bar by one for each part."""
        sizes = " and ".join(str(len(part.runs)) for part in parts)
        progress = self._packs[pack.stored.id]
        self._print(f"{progress.name} did not fit into memory; it continues as packs of {sizes} runs")
        self._add_packs(parts)
        del self._packs[pack.stored.id]
        if self._bars is not None and progress.bar is not None:
            self._bars.remove_task(progress.bar)

    def on_event(self, pack: ActivePack, event: Event | JobFailure) -> None:
        progress = self._packs[pack.stored.id]
        progress.start_time = progress.start_time or time.monotonic()
        if isinstance(event, JobFailure):
            self._print(f"{progress.name} failed: {event.cause}; the other packs continue")
        elif isinstance(event, DivergenceEvent):
            self._print_divergence(progress, event)
        elif isinstance(event, FinishEvent):
            progress.n_active -= 1
        elif isinstance(event, StepEvent | CheckpointEvent | StopEvent):
            progress.step = event.step
        elif isinstance(event, EvaluationEvent):
            progress.losses = _format_losses(event)
        self._refresh(progress)

    def _print_divergence(self, progress: _PackProgress, event: DivergenceEvent) -> None:
        run = progress.pack.runs[event.slot]
        progress.n_active -= 1
        n = progress.n_active
        others = f"; the rest of its pack continues ({n} run{'s' * (n != 1)})" if n else ""
        self._print(f"run {run.id} diverged at step {event.step} (lr {run.settings.train.lr:g}): {event.cause}{others}")

    def _refresh(self, progress: _PackProgress) -> None:
        if self._bars is not None and progress.bar is not None:
            if not progress.bar_started:
                self._bars.start_task(progress.bar)
                progress.bar_started = True
            is_shown = progress.step < progress.pack.n_steps or len(self._packs) <= MAX_FINISHED_BARS
            left = progress.seconds_left(time.monotonic())
            self._bars.update(
                progress.bar, completed=progress.step, losses=progress.losses, visible=is_shown, seconds_left=left
            )
            self._refresh_total()
        elif not self._quiet and time.monotonic() - self._last_printed > PLAIN_LINE_INTERVAL_SECONDS:
            self._last_printed = time.monotonic()
            for progress in self._packs.values():
                if progress.start_time and progress.step < progress.pack.n_steps:
                    self._print(_format_progress(progress, self._last_printed))

    def report(self, text: str) -> None:
        """Prints a message, such as what happens before the packs start."""
        if not self._quiet:
            self._print(text)

    def announce_stop(self) -> None:
        """Prints, the first time, that training is about to stop."""
        if not self._is_stopping:
            self._is_stopping = True
            self._print("finishing this step and saving; press Ctrl-C again to abort at once")

    def _print(self, text: str) -> None:
        self._console.print(escape_controls(text), markup=False, highlight=False, soft_wrap=True)


def _distinguish_packs(packs: Sequence[ActivePack]) -> list[str]:
    """A label for each pack: its model, the settings by which it differs from other packs, and how many runs it has."""
    differing = differing_settings([run for pack in packs for run in pack.runs])
    labels = []
    for pack in packs:
        flat = [run.settings.flat() for run in pack.runs]
        names = [name for name in differing if name in flat[0] and len({one[name] for one in flat}) == 1]
        others = (name for name in names if name != "model.kind")  # as in a filter, since a line is short of room
        filters = (f"{short_setting_name(name)}={format_filter_value(flat[0][name])}" for name in others)
        n_runs = len(pack.runs)
        label = " ".join([pack.runs[0].settings.model.kind, *filters])
        labels.append(escape_controls(f"{label}{f', {n_runs} runs' if n_runs > 1 else f' seed={pack.runs[0].seed}'}"))
    return labels


def _format_progress(progress: _PackProgress, now: float) -> str:
    n_steps, speed = progress.pack.n_steps, progress.steps_per_second(now)
    seconds = progress.seconds_left(now)
    left = f", {seconds:.0f} s left" if seconds is not None else ""
    return f"{progress.name}: step {progress.step:,} of {n_steps:,}, {speed:,.0f} steps/s{left}, {progress.losses}"


def _format_losses(event: EvaluationEvent) -> str:
    """The mean losses and accuracy of the pack, of the metrics that it has."""
    parts = []
    train = training_metric("loss", event.metrics)
    for name, label in ((train, "loss"), ("val/loss", "val"), ("val/accuracy", "acc")):
        if name in event.metrics:
            parts.append(f"{label} {event.values[:, event.metrics.index(name)].mean():.3g}")
    return " ".join(parts)
