"""Progress of a study on stderr: bars in a terminal, otherwise a plain line at intervals."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from seedbed.engines.base import JobFailure
from seedbed.pipeline import ActivePack
from seedbed.records import CheckpointEvent, DivergenceEvent, EvaluationEvent, Event, FinishEvent, StepEvent, StopEvent

PLAIN_LINE_INTERVAL_SECONDS = 10.0  # when stderr is not a terminal


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


class _SpeedColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("…" if speed is None else f"{speed:,.0f} steps/s", style="progress.data.speed")


class ProgressDisplay:
    """Displays packs while they train: `with ProgressDisplay(console) as display: run_studies(…, display, …)`."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._console, self._quiet = console, quiet
        self._packs: dict[str, _PackProgress] = {}
        self._last_printed = time.monotonic()
        self._bars: Progress | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._bars = Progress(
                TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), _SpeedColumn(),
                TimeRemainingColumn(compact=True), TextColumn("{task.fields[losses]}"), console=self._console,
                refresh_per_second=4,
            )  # fmt: skip
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
            self._print(f"training {n_runs} runs in {len(packs)} {'pack' if len(packs) == 1 else 'packs'}")

    def _add_packs(self, packs: Sequence[ActivePack]) -> None:
        n_before = len(self._packs)
        for number, pack in enumerate(packs, n_before + 1):
            n_active = sum(run.status not in ("finished", "diverged") for run in pack.runs)
            start_step = pack.stored.step or 0
            name = f"pack {number}/{n_before + len(packs)}, {len(pack.runs)} {'run' if len(pack.runs) == 1 else 'runs'}"
            bar = None
            if self._bars is not None:
                bar = self._bars.add_task(name, total=pack.n_steps, completed=start_step, losses="waiting", start=False)
            self._packs[pack.stored.id] = _PackProgress(pack, name, start_step, start_step, n_active, bar)

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
            self._bars.update(progress.bar, completed=progress.step, losses=progress.losses)
        elif not self._quiet and time.monotonic() - self._last_printed > PLAIN_LINE_INTERVAL_SECONDS:
            self._last_printed = time.monotonic()
            for progress in self._packs.values():
                if progress.start_time and progress.step < progress.pack.n_steps:
                    self._print(_format_progress(progress, self._last_printed))

    def report(self, text: str) -> None:
        """Prints a message, such as what happens before the packs start."""
        if not self._quiet:
            self._print(text)

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _format_progress(progress: _PackProgress, now: float) -> str:
    n_steps, speed = progress.pack.n_steps, progress.steps_per_second(now)
    left = f", {(n_steps - progress.step) / speed:.0f} s left" if speed else ""
    return f"{progress.name}: step {progress.step:,} of {n_steps:,}, {speed:,.0f} steps/s{left}, {progress.losses}"


def _format_losses(event: EvaluationEvent) -> str:
    """The mean losses and accuracy of the pack, of the metrics that it has."""
    parts = []
    for name, label in (("train/loss", "loss"), ("val/loss", "val"), ("val/accuracy", "acc")):
        if name in event.metrics:
            parts.append(f"{label} {event.values[:, event.metrics.index(name)].mean():.3g}")
    return " ".join(parts)
