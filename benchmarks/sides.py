"""Sides of a comparison in processes of their own, told by pipe how many updates to make, so that rounds interleave.

    with Side(plan) as side:
        took = side.work(5)      # seconds by the clock, and of all its processors

A side is one process (a plain loop with all threads, a pack on a GPU) or several at once (our workers on a CPU, one
thread each). A process waits for its turn without computing.
"""

from __future__ import annotations

import multiprocessing as mp
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any


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

    @property
    def n_models(self) -> int:
        """Models that one turn moves by one update."""
        return self.n_processes * self.n_runs


@dataclass(frozen=True)
class Took:
    """Of one turn: seconds by the clock, and processor seconds of all processes together."""

    seconds: float
    processor: float


class Side:
    """Its processes, started and warm."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        context = mp.get_context("spawn")
        pipes = [context.Pipe() for _ in range(plan.n_processes)]
        self._pipes = [ours for ours, _ in pipes]
        self._processes = [context.Process(target=_serve, args=(theirs, plan), daemon=True) for _, theirs in pipes]
        for process in self._processes:
            process.start()
        self.warm_seconds = max(self._answers())

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.send(0)
        for process in self._processes:
            process.join()

    def _answers(self) -> list[Any]:
        answers = [pipe.recv() for pipe in self._pipes]
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def work(self, n: int) -> Took:
        """Makes n updates in every process at once."""
        start = time.perf_counter()
        for pipe in self._pipes:
            pipe.send(n)
        processor = sum(self._answers())
        return Took(time.perf_counter() - start, processor)


def _serve(pipe: Connection, plan: Plan) -> None:
    """The life of a process: makes ready, then as many updates as each message says; 0 ends it."""
    try:
        start = time.perf_counter()
        step = _step(plan)
        step()
        step()
        pipe.send(time.perf_counter() - start)
    except Exception as error:  # told to the parent, who raises it
        pipe.send(error)
        return
    while n := _next(pipe):
        begin = time.process_time()
        for _ in range(n):
            step()
        _wait(plan.device)
        pipe.send(time.process_time() - begin)


def _next(pipe: Connection) -> int:
    try:
        return pipe.recv()
    except EOFError:  # the parent is gone
        return 0


def _step(plan: Plan) -> Callable[[], object]:
    import torch

    torch.set_num_threads(plan.threads)
    if plan.kind == "matmul":
        return _matmul(plan)
    from peers import plain_loop

    from seedbed.settings import Settings

    settings = Settings.of(plan.dials)
    if plan.kind != "ours":
        torch.set_float32_matmul_precision("highest" if settings.train.precision == "fp32" else "high")
        return plain_loop(settings, plan.device, plan.kind)
    from seedbed.engines.memory import keep_freed_memory
    from seedbed.train.step import Trainer

    keep_freed_memory()  # as workers do
    trainer = Trainer([settings] * plan.n_runs, range(plan.n_runs), plan.device, torch.float32, plan.engine)
    return trainer.advance


MATMUL_WIDTH = 2048
MATMUL_OPERATIONS = 2 * MATMUL_WIDTH**3


def _matmul(plan: Plan) -> Callable[[], object]:
    import torch

    a, b = (torch.randn(MATMUL_WIDTH, MATMUL_WIDTH, device=plan.device) for _ in range(2))
    return lambda: a @ b


def _wait(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
