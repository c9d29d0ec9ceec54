"""Freed memory is reused without page faults."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, numpy
{setup}
def use():
    numpy.ones(10**7).sum()  # 80 MB, more than glibc keeps by default
use()
start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use(); use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start)
"""
KEEP = "from seedbed.engines.child_process import keep_freed_heap; assert keep_freed_heap()"


def page_faults(setup: str) -> int:
    process = subprocess.run([sys.executable, "-c", FAULTS.format(setup=setup)], capture_output=True, check=True)
    return int(process.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these parameters")
def test_kept_memory_is_reused_without_page_faults():
    assert page_faults(KEEP) < 100
    assert page_faults("") > 100  # control: by default it is not
