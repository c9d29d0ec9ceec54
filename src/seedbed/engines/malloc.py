"""Memory that a process has given back to the C library stays with the process, so that it need not be fetched again.

An update asks for the same large tensors each time; by default those above 32 MB go back to the system at once and
come back as fresh pages, one fault for every 4 kB (docs/log.md). Only glibc has these dials; elsewhere nothing is done.
"""

from __future__ import annotations

import ctypes
import platform

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of mallopt(3)
MAX_INT32 = 2**31 - 1


def keep_freed_heap() -> bool:
    """Makes it so for this process; says whether it could."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, MAX_INT32))
