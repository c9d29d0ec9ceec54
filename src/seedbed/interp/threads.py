"""Independent computations side by side, each on one core: a small model gains nothing from several.

for analysis in map_in_threads(analyze, checkpoints, max_threads=8):
    ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_threads(function: Callable[[Item], Result], items: Sequence[Item], max_threads: int) -> Iterator[Result]:
    """Yields the function of each item in order; as many threads as torch would use for one of them."""
    n_before = torch.get_num_threads()
    n_threads = max(1, min(len(items), max_threads, n_before))
    pool = ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield from pool.map(function, items)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(n_before)  # the workers' calls also set MKL's, which all threads share
