"""Memory that is freed and asked for again is there at once."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, numpy
{before}
def use():
    numpy.ones(10**7).sum()  # 80 MB, more than glibc keeps by itself
use()
start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use(); use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start)
"""
KEEP = "from seedbed.engines.malloc import keep_freed_memory; assert keep_freed_memory()"


def faults(before: str) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS.format(before=before)], capture_output=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_kept_memory_is_not_fetched_from_the_system_again():
    assert faults(KEEP) < 100
    assert faults("") > 100  # the control: untold, it is
