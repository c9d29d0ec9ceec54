"""CUDA streams and graphs: concurrent packs train on separate streams, each replaying a captured graph.

    with acquire_stream("cuda") as stream, torch.cuda.stream(stream):
        update = CapturedGraph(fn, pool)     # calls fn() a few times to warm up, then captures it
        update.replay()

On the CPU there are no streams and nothing is captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

ResultT = TypeVar("ResultT")
N_WARMUP_CALLS = 2
_free_streams: list[torch.cuda.Stream] = []


@contextmanager
def acquire_stream(device: str) -> Iterator[torch.cuda.Stream | None]:
    """A CUDA stream for exclusive use, or None on the CPU.

    Streams are reused: torch has a pool of 32 and hands out the same ones again after that.
    """
    if device != "cuda":
        yield None
        return
    stream = _free_streams.pop() if _free_streams else torch.cuda.Stream()
    try:
        yield stream
    finally:
        _free_streams.append(stream)


class CapturedGraph(Generic[ResultT]):
    """A function captured as a CUDA graph; every replay writes its result to the same tensors.

    Captured on the current stream: cuBLAS keeps one workspace per capture stream, and packs that shared a stream would
    overwrite each other's (docs/log.md). Graphs of one `pool` share memory, so only one of them may run at a time.
    """

    def __init__(self, fn: Callable[[], ResultT], pool: Any) -> None:
        current = torch.cuda.current_stream()
        # The default stream does not support capture.
        stream = torch.cuda.Stream() if current == torch.cuda.default_stream() else current
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(N_WARMUP_CALLS):
                fn()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool, stream=stream):
            self._result = fn()
        current.wait_stream(stream)

    def replay(self) -> ResultT:
        self._graph.replay()
        return self._result


class HostCopy:
    """An asynchronous copy of tensors to the host, ordered after all work queued on the current stream."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = {
            name: tensor.detach().to("cpu", non_blocking=True, copy=True) for name, tensor in tensors.items()
        }
        self._event: torch.cuda.Event | None = None
        if any(tensor.is_cuda for tensor in tensors.values()):
            self._event = torch.cuda.Event()
            self._event.record()

    @property
    def is_ready(self) -> bool:
        return self._event is None or self._event.query()
