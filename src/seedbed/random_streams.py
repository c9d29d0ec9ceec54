"""Named random streams on the host: a NumPy generator for each (seed, stream name); no torch.

>>> make_generator(42, "init/embed").standard_normal() == make_generator(42, "init/embed").standard_normal()
True
"""

from __future__ import annotations

import hashlib

import numpy as np


def stream_key(seed: int, stream: str) -> int:
    """Returns the 64-bit key of a named stream for one seed."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{stream}".encode(), digest_size=8).digest(), "little")


def make_generator(seed: int, stream: str) -> np.random.Generator:
    """Returns a NumPy generator for a named stream of one seed."""
    return np.random.Generator(np.random.Philox(key=stream_key(seed, stream)))
