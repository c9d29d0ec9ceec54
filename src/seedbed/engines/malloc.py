"""Makes malloc keep freed memory in the process instead of returning it to the system.

Every update allocates the same large tensors; by default those above 32 MB are unmapped when freed and come back as
fresh pages, with one page fault per 4 kB (docs/log.md). Only glibc has these parameters; elsewhere nothing is changed.
"""

from __future__ import annotations

import ctypes
import platform

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of mallopt(3)
MAX_INT32 = 2**31 - 1


def keep_freed_heap() -> bool:
    """Never trims the heap of this process, nor allocates by mmap; returns whether that could be set."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, MAX_INT32))
