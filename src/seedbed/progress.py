"""What a person sees while a study trains: bars in a terminal, a plain line now and then elsewhere; on stderr only."""

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

from seedbed.engines.local import Failed
from seedbed.pipeline import WorkingPack
from seedbed.records import Diverged, Evaluated, Event, Finished, Saved, Stepped, Stopped

PLAIN_EVERY = 10.0  # seconds between lines when stderr is not a terminal


@dataclass
class _Lane:
    """One pack's progress so far."""

    pack: WorkingPack
    name: str
    start: int
    step: int
    live: int
    bar: TaskID | None = None
    started: bool = False  # its bar
    began: float = 0.0
    losses: str = ""

    def rate(self, now: float) -> float:
        """Updates per second of the whole pack since it began here."""
        return (self.step - self.start) / (now - self.began) if now > self.began else 0.0


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("…" if speed is None else f"{speed:,.0f} steps/s", style="progress.data.speed")


class Watcher:
    """Follows packs; used as `with Watcher(console) as watcher: run_studies(…, watcher, …)`."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._console, self._quiet = console, quiet
        self._lanes: dict[str, _Lane] = {}
        self._said = time.monotonic()
        self._bars: Progress | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._bars = Progress(
                TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), _Rate(),
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

    def begin(self, packs: Sequence[WorkingPack]) -> None:
        self._follow(packs)
        if self._bars is None and packs and not self._quiet:
            n_runs = sum(len(pack.runs) for pack in packs)
            self._say(f"training {n_runs} runs in {len(packs)} {'pack' if len(packs) == 1 else 'packs'}")

    def _follow(self, packs: Sequence[WorkingPack]) -> None:
        n_before = len(self._lanes)
        for number, pack in enumerate(packs, n_before + 1):
            n_live = sum(run.status not in ("finished", "diverged") for run in pack.runs)
            start = pack.stored.step or 0
            name = f"pack {number}/{n_before + len(packs)}, {len(pack.runs)} {'run' if len(pack.runs) == 1 else 'runs'}"
            bar = None
            if self._bars is not None:
                bar = self._bars.add_task(name, total=pack.n_steps, completed=start, losses="waiting", start=False)
            self._lanes[pack.stored.id] = _Lane(pack, name, start, start, n_live, bar)

    def split(self, pack: WorkingPack, parts: Sequence[WorkingPack]) -> None:
        """Tells that a pack goes on as several, each with a bar of its own."""
        sizes = " and ".join(str(len(part.runs)) for part in parts)
        lane = self._lanes[pack.stored.id]
        self._say(f"{lane.name} did not fit into memory; it goes on as packs of {sizes} runs")
        self._follow(parts)
        del self._lanes[pack.stored.id]
        if self._bars is not None and lane.bar is not None:
            self._bars.remove_task(lane.bar)

    def see(self, pack: WorkingPack, event: Event | Failed) -> None:
        lane = self._lanes[pack.stored.id]
        lane.began = lane.began or time.monotonic()
        if isinstance(event, Failed):
            self._say(f"{lane.name} failed: {event.cause}; the other packs go on")
        elif isinstance(event, Diverged):
            self._report_divergence(lane, event)
        elif isinstance(event, Finished):
            lane.live -= 1
        elif isinstance(event, Stepped | Saved | Stopped):
            lane.step = event.step
        elif isinstance(event, Evaluated):
            lane.losses = _losses(event)
        self._show(lane)

    def _report_divergence(self, lane: _Lane, event: Diverged) -> None:
        run = lane.pack.runs[event.slot]
        lane.live -= 1
        neighbours = f"; its {lane.live} neighbours go on" if lane.live else ""
        self._say(
            f"run {run.id} diverged at step {event.step} (lr {run.settings.train.lr:g}): {event.cause}{neighbours}"
        )

    def _show(self, lane: _Lane) -> None:
        if self._bars is not None and lane.bar is not None:
            if not lane.started:
                self._bars.start_task(lane.bar)
                lane.started = True
            self._bars.update(lane.bar, completed=lane.step, losses=lane.losses)
        elif not self._quiet and time.monotonic() - self._said > PLAIN_EVERY:
            self._said = time.monotonic()
            for lane in self._lanes.values():
                if lane.began and lane.step < lane.pack.n_steps:
                    self._say(_in_one_line(lane, self._said))

    def say(self, text: str) -> None:
        """Tells what goes on before the packs do."""
        if not self._quiet:
            self._say(text)

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _in_one_line(lane: _Lane, now: float) -> str:
    rate = lane.rate(now)
    left = f", {(lane.pack.n_steps - lane.step) / rate:.0f} s left" if rate else ""
    return f"{lane.name}: step {lane.step:,} of {lane.pack.n_steps:,}, {rate:,.0f} steps/s{left}, {lane.losses}"


def _losses(event: Evaluated) -> str:
    """The pack's mean losses and accuracies now, as far as they are read."""
    said = []
    for name, short in (("train/loss", "loss"), ("val/loss", "val"), ("val/accuracy", "acc")):
        if name in event.names:
            said.append(f"{short} {event.values[:, event.names.index(name)].mean():.3g}")
    return " ".join(said)
