"""`seedbed serve` as a program: what it prints, how it ends, and what it keeps to itself."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from seedbed.errors import UsageError
from seedbed.records import RunProgress
from seedbed.web.live import LiveProgress
from seedbed.web.server import serve
from seedbed.web.store_cache import StoreCache
from seedbed.web.study_progress import StepRate, compute_progress

from ..report.factories import fill


def test_a_stream_ends_within_a_moment_though_it_was_closed_before_anybody_looked_again(tmp_path: Path) -> None:
    fill(tmp_path)

    async def follow_and_close() -> list[str]:
        live = LiveProgress(StoreCache(tmp_path))
        stream = live.stream_events(lambda seen: {"n": len(seen.runs)})
        first = await anext(stream)
        live.close()
        async with asyncio.timeout(5):
            return [first] + [event async for event in stream]

    with ThreadPoolExecutor(1) as thread:  # the browser's tests leave a loop in this one
        events = thread.submit(asyncio.run, follow_and_close()).result(timeout=20)
    assert events[0].startswith("event: news")
    assert not any("news" in event for event in events[1:])


def test_it_prints_its_address_answers_and_ends_cleanly_with_a_stream_open(tmp_path: Path) -> None:
    fill(tmp_path)
    command = [sys.executable, "-m", "seedbed", "serve", "--no-browser", "--port", "0", "--home", str(tmp_path)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout
    address = server.stdout.readline().strip()
    found = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/\?token=(\S+)", address)
    assert found
    request = urllib.request.Request(f"{found[1]}/api/live/studies", headers={"X-Seedbed-Token": found[2]})
    with urllib.request.urlopen(request, timeout=20) as stream:
        assert stream.readline() == b"event: news\n"
        server.send_signal(signal.SIGINT)
        began = time.monotonic()
        out, said = server.communicate(timeout=20)
    assert server.returncode == 0
    assert time.monotonic() - began < 8
    assert found[2] not in out + said, "the token is printed once, and in no log"
    assert "Traceback" not in said


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_every_address_at_once_is_refused_with_the_way_out(host: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name the one that people will use"):
        serve(tmp_path, host, 0, browser=False)


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UsageError, match="address already in use"):
        serve(tmp_path, "127.0.0.1", taken.getsockname()[1], browser=False)


def test_progress_counts_open_runs_only_and_tells_the_time_left_at_the_pace_seen() -> None:
    asked = {"a": 100, "b": 100, "c": 100}
    pace = StepRate()
    first = [RunProgress("a", "running", 10), RunProgress("b", "diverged", 40), RunProgress("c", "planned", 0)]
    compute_progress(first, asked, pace, 0.0)
    later = [RunProgress("a", "running", 50), *first[1:]]
    found = compute_progress(later, asked, pace, 4.0)
    assert (found.done_steps, found.total_steps) == (90, 240)  # 50 + 40 + 0 of 100 + 40 + 100
    assert found.seconds_left == 15.0  # 150 steps at 10 a second
    assert found.version == 2
    assert compute_progress(later, asked | {"c": None}, pace, 5.0).total_steps is None
