"""Sides of a comparison in processes of their own, told by pipe how many updates to make, so that rounds interleave.

    sides = [Side(plan) for plan in plans]      # all make ready at the same time
    for side in sides:
        side.wait()
    took = sides[0].work(5)                     # seconds by the clock, and of all its processors
    end(sides)

A side is one process (a plain loop with all threads, a pack on a GPU) or several at once (our workers on a CPU). A
process waits for its turn without computing.
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


PATIENCE = 5.0  # seconds that a process has for its end


@dataclass(frozen=True)
class Plan:
    """What a side computes, and on how much of the machine."""

    name: str
    kind: str  # ours, plain, hugging_face, matmul
    dials: Mapping[str, Any] = field(default_factory=dict)
    n_processes: int = 1
    threads: int = 1
    device: str = "cpu"
    engine: str = "plain"
    n_runs: int = 1  # of a pack of ours
    each: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # dials in which the pack's runs differ, run by run

    @property
    def n_models(self) -> int:
        """Models that one turn moves by one update."""
        return self.n_processes * self.n_runs

    def settings(self) -> list[Settings]:
        """Those of every run of a pack."""
        from seedbed.settings import Settings

        own = [{name: values[i] for name, values in self.each.items()} for i in range(self.n_runs)]
        return [Settings.from_flat({**self.dials, **dials}) for dials in own]


@dataclass(frozen=True)
class Took:
    """Of one turn: seconds by the clock, and processor seconds of all processes together."""

    seconds: float
    processor: float


class SideFailed(Exception):
    """A side's process raised, or died; the message says what."""


class Side:
    """Its processes, started; they are warm after `wait`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.warm_seconds: float | None = None
        self._failure: SideFailed | None = None
        context = mp.get_context("spawn")
        pipes = [context.Pipe() for _ in range(plan.n_processes)]
        self._pipes = [ours for ours, _ in pipes]
        self._processes = [context.Process(target=_serve, args=(theirs, plan), daemon=True) for _, theirs in pipes]
        for process, (_, theirs) in zip(self._processes, pipes, strict=True):
            process.start()
            theirs.close()  # so that the end of the process is the end of the pipe

    def settle(self) -> None:
        """Until all its processes are ready, or one has failed."""
        if self.warm_seconds is None and self._failure is None:
            try:
                self.warm_seconds = max(self._answers())
            except SideFailed as failure:
                self._failure = failure

    def wait(self) -> None:
        """Until all its processes are ready; SideFailed where one is not."""
        self.settle()
        if self._failure is not None:
            raise self._failure

    def _answers(self) -> list[float]:
        try:
            answers = [pipe.recv() for pipe in self._pipes]
        except EOFError:
            raise SideFailed(f"{self.plan.name}: its process died") from None
        for answer in answers:
            if isinstance(answer, str):
                raise SideFailed(f"{self.plan.name}: {answer}")
        return answers

    def work(self, n: int) -> Took:
        """Makes n updates in every process at once."""
        start = time.perf_counter()
        for pipe in self._pipes:
            pipe.send(n)
        processor = sum(self._answers())
        return Took(time.perf_counter() - start, processor)

    def close(self) -> None:
        """Lets its processes end."""
        for pipe in self._pipes:
            pipe.close()

    def join(self) -> None:
        """Until its processes have ended; those that take long are ended."""
        for process in self._processes:
            process.join(PATIENCE)
            process.terminate()
            process.join()


def end(sides: Sequence[Side]) -> None:
    """Ends all their processes, whatever they are at."""
    for side in sides:
        side.close()
    for side in sides:
        side.join()


def _serve(pipe: Connection, plan: Plan) -> None:
    """The life of a process: makes ready, then as many updates as each message says, until the pipe ends."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")  # several sides compile at the same time
    try:
        start = time.perf_counter()
        step = _step(plan)
        step()
        _wait(plan.device)
        pipe.send(time.perf_counter() - start)
        while True:
            n, begin = pipe.recv(), time.process_time()
            for _ in range(n):
                step()
            _wait(plan.device)
            pipe.send(time.process_time() - begin)
    except (EOFError, BrokenPipeError):  # the parent is done, or gone
        return
    except Exception:  # as text, since not every exception can be sent
        pipe.send(traceback.format_exc())


def _step(plan: Plan) -> Callable[[], object]:
    import torch

    from seedbed.training.trainer import Trainer, set_matmul_precision

    torch.set_num_threads(plan.threads)
    settings = plan.settings()
    first = settings[0]
    set_matmul_precision(first.train.precision)
    if plan.kind == "matmul":
        return _matmul(plan, torch.bfloat16 if first.train.precision == "bf16" else torch.float32)
    if plan.kind != "ours":
        from loops import plain_loop

        return plain_loop(first, plan.device, plan.kind)
    from seedbed.engines.malloc import keep_freed_heap

    keep_freed_heap()  # as workers do
    return Trainer(settings, range(plan.n_runs), plan.device, torch.float32, plan.engine).train_step


MATMUL_WIDTH = {"cpu": 2048, "cuda": 8192}


def matmul_operations(plan: Plan) -> int:
    """Of one turn's product."""
    return 2 * MATMUL_WIDTH[plan.device] ** 3


def _matmul(plan: Plan, dtype: Any) -> Callable[[], object]:
    import torch

    n = MATMUL_WIDTH[plan.device]
    a, b = (torch.randn(n, n, device=plan.device).to(dtype) for _ in range(2))
    return lambda: a @ b


def _wait(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
