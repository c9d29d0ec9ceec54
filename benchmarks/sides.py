"""The sides of a comparison, each in its own processes that receive update counts by pipe, so that rounds interleave.

    sides = [Side(spec) for spec in specs]      # all of them warm up concurrently
    for side in sides:
        side.wait_until_ready()
    turn_time = sides[0].run_updates(5)                     # wall-clock and CPU seconds
    stop_sides(sides)

A side is one process (a plain loop with all threads, a pack on a GPU) or several (our workers on a CPU). A process
blocks while it waits for its turn.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seedbed.settings import Settings


EXIT_TIMEOUT_SECONDS = 5.0  # before a process is terminated


@dataclass(frozen=True)
class SideSpec:
    """What a side computes, and the resources it uses."""

    name: str
    kind: str  # ours, plain, hugging_face, matmul
    overrides: Mapping[str, Any] = field(default_factory=dict)
    n_processes: int = 1
    threads: int = 1
    device: str = "cpu"
    mode: str = "plain"
    n_runs: int = 1  # in our pack
    per_run: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # settings that differ within the pack

    @property
    def n_models(self) -> int:
        """Models updated by one step of the side."""
        return self.n_processes * self.n_runs

    def settings(self) -> list[Settings]:
        """The settings of every run of the pack."""
        from seedbed.settings import Settings

        run_overrides = [{name: values[i] for name, values in self.per_run.items()} for i in range(self.n_runs)]
        return [Settings.from_flat({**self.overrides, **own}) for own in run_overrides]


@dataclass(frozen=True)
class TurnTime:
    """Wall-clock seconds of one turn, and CPU seconds of all processes together."""

    seconds: float
    processor: float


class SideError(Exception):
    """A process of a side raised or died."""


class Side:
    """A side's running processes; warmed up after `wait_until_ready`."""

    def __init__(self, spec: SideSpec) -> None:
        self.spec = spec
        self.warm_seconds: float | None = None
        self._failure: SideError | None = None
        context = mp.get_context("spawn")
        pipes = [context.Pipe() for _ in range(spec.n_processes)]
        self._pipes = [ours for ours, _ in pipes]
        self._processes = [
            context.Process(target=_run_side_process, args=(theirs, spec), daemon=True) for _, theirs in pipes
        ]
        for process, (_, theirs) in zip(self._processes, pipes, strict=True):
            process.start()
            theirs.close()  # so that the pipe closes when the process ends

    def wait_until_settled(self) -> None:
        """Waits until all processes are ready or one has failed."""
        if self.warm_seconds is None and self._failure is None:
            try:
                self.warm_seconds = max(self._receive())
            except SideError as failure:
                self._failure = failure

    def wait_until_ready(self) -> None:
        """Waits until all processes are ready; raises SideError if one failed."""
        self.wait_until_settled()
        if self._failure is not None:
            raise self._failure

    def _receive(self) -> list[float]:
        try:
            answers = [pipe.recv() for pipe in self._pipes]
        except EOFError:
            raise SideError(f"{self.spec.name}: its process died") from None
        for answer in answers:
            if isinstance(answer, str):
                raise SideError(f"{self.spec.name}: {answer}")
        return answers

    def run_updates(self, n: int) -> TurnTime:
        """Runs n updates in every process concurrently."""
        start = time.perf_counter()
        for pipe in self._pipes:
            pipe.send(n)
        processor = sum(self._receive())
        return TurnTime(time.perf_counter() - start, processor)

    def close(self) -> None:
        """Closes the pipes, upon which the processes exit."""
        for pipe in self._pipes:
            pipe.close()

    def join(self) -> None:
        """Waits for the processes to exit, and terminates those that do not."""
        for process in self._processes:
            process.join(EXIT_TIMEOUT_SECONDS)
            process.terminate()
            process.join()


def stop_sides(sides: Sequence[Side]) -> None:
    """Stops the processes of all sides."""
    for side in sides:
        side.close()
    for side in sides:
        side.join()


def _run_side_process(pipe: Connection, spec: SideSpec) -> None:
    """Main function of a process: warms up, then runs as many updates as each message says, until the pipe closes."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")  # several sides compile concurrently
    try:
        start = time.perf_counter()
        step = _make_step(spec)
        step()
        _synchronize(spec.device)
        pipe.send(time.perf_counter() - start)
        while True:
            n, begin = pipe.recv(), time.process_time()
            for _ in range(n):
                step()
            _synchronize(spec.device)
            pipe.send(time.process_time() - begin)
    except (EOFError, BrokenPipeError):  # the parent has finished or died
        return
    except Exception:  # as text, since not every exception can be pickled
        pipe.send(traceback.format_exc())


def _make_step(spec: SideSpec) -> Callable[[], object]:
    import torch

    from seedbed.training.trainer import Trainer, set_matmul_precision

    torch.set_num_threads(spec.threads)
    settings = spec.settings()
    first = settings[0]
    set_matmul_precision(first.train.precision)
    if spec.kind == "matmul":
        return _make_matmul(spec, torch.bfloat16 if first.train.precision == "bf16" else torch.float32)
    if spec.kind != "ours":
        from loops import make_plain_step

        return make_plain_step(first, spec.device, spec.kind)
    from seedbed.engines.child_process import keep_freed_heap

    keep_freed_heap()  # as the engine's workers do
    return Trainer(settings, range(spec.n_runs), spec.device, torch.float32, spec.mode).train_step


MATMUL_WIDTH = {"cpu": 2048, "cuda": 8192}


def matmul_flops(spec: SideSpec) -> int:
    """FLOPs of one matrix product."""
    return 2 * MATMUL_WIDTH[spec.device] ** 3


def _make_matmul(spec: SideSpec, dtype: Any) -> Callable[[], object]:
    import torch

    n = MATMUL_WIDTH[spec.device]
    a, b = (torch.randn(n, n, device=spec.device).to(dtype) for _ in range(2))
    return lambda: a @ b


def _synchronize(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
