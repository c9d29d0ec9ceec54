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

RETURNED = """
from pathlib import Path
import numpy
from seedbed.engines.child_process import kept_heap
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
with kept_heap():
    numpy.ones(10**7).sum()
    kept = resident()
print(kept - resident())
"""


def page_faults(setup: str) -> int:
    process = subprocess.run([sys.executable, "-c", FAULTS.format(setup=setup)], capture_output=True, check=True)
    return int(process.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these parameters")
def test_kept_memory_is_reused_without_page_faults():
    assert page_faults(KEEP) < 100
    assert page_faults("") > 100  # control: by default it is not


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these parameters")
def test_memory_that_was_kept_for_a_while_goes_back_to_the_system():
    process = subprocess.run([sys.executable, "-c", RETURNED], capture_output=True, check=True)
    assert int(process.stdout) > 60 * 2**20  # of 80 MB
    control = RETURNED.replace("with kept_heap():", "if True:")
    process = subprocess.run([sys.executable, "-c", control], capture_output=True, check=True)
    assert int(process.stdout) == 0  # was not kept at all


def test_a_job_in_the_process_of_the_command_keeps_its_memory(monkeypatch):
    from contextlib import contextmanager

    from seedbed.engines import local
    from seedbed.engines.base import EngineResources

    inside = []

    @contextmanager
    def noted():
        inside.append("begin")
        yield
        inside.append("end")

    monkeypatch.setattr(local, "kept_heap", noted)
    local.LocalEngine(EngineResources()).run([], lambda job, stop: iter(()), lambda index, event: None, lambda: False)
    assert inside == ["begin", "end"]
