"""Streams and graphs of a GPU: packs side by side, each on a stream of its own, its work recorded once and replayed.

    with own_stream("cuda") as stream:
        update = Recorded(work, pool)     # work() is done a few times, then recorded
        update.replay()

Elsewhere than on a GPU there are no streams, and nothing is recorded.
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
    """A stream that nobody else uses meanwhile; streams go from hand to hand, since torch has 32 and then repeats."""
    if device != "cuda":
        yield None
        return
    stream = _free_streams.pop() if _free_streams else torch.cuda.Stream()
    try:
        yield stream
    finally:
        _free_streams.append(stream)


class CapturedGraph(Generic[ResultT]):
    """Work as a CUDA graph; its result lies in the same tensors after every replay.

    It is recorded on the stream in use: matrix products keep scratch memory for each stream that they are recorded on,
    and packs that shared one would overwrite it (docs/log.md). Graphs of one `pool` share memory, so only one of them
    may be under way at a time.
    """

    def __init__(self, fn: Callable[[], ResultT], pool: Any) -> None:
        now = torch.cuda.current_stream()
        stream = torch.cuda.Stream() if now == torch.cuda.default_stream() else now  # that one cannot be recorded
        stream.wait_stream(now)
        with torch.cuda.stream(stream):
            for _ in range(N_WARMUP_CALLS):
                fn()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool, stream=stream):
            self._result = fn()
        now.wait_stream(stream)

    def replay(self) -> ResultT:
        self._graph.replay()
        return self._result


class HostCopy:
    """Tensors on their way to the host, in order with all work of the stream in use."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = {name: held.detach().to("cpu", non_blocking=True, copy=True) for name, held in tensors.items()}
        self._event: torch.cuda.Event | None = None
        if any(held.is_cuda for held in tensors.values()):
            self._event = torch.cuda.Event()
            self._event.record()

    @property
    def is_ready(self) -> bool:
        return self._event is None or self._event.query()

    def tensors(self) -> dict[str, Tensor]:
        return self._tensors
