"""`seedbed serve` as a process: what it prints, how it shuts down, and that the token is never logged."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from seedbed.errors import UsageError
from seedbed.records import RunProgress
from seedbed.web.live import LiveProgress, StepRate, compute_progress
from seedbed.web.server import serve
from seedbed.web.store_cache import StoreCache

from ..report.factories import fill


def test_a_stream_ends_soon_when_closed_before_the_next_poll(tmp_path: Path) -> None:
    fill(tmp_path)

    async def follow_and_close() -> list[str]:
        live = LiveProgress(StoreCache(tmp_path))
        stream = live.stream_events(lambda now: {"n": len(now.runs)})
        first = await anext(stream)
        live.close()
        async with asyncio.timeout(5):
            return [first] + [event async for event in stream]

    with ThreadPoolExecutor(1) as thread:  # the browser tests leave an event loop in the main thread
        events = thread.submit(asyncio.run, follow_and_close()).result(timeout=120)
    assert events[0].startswith("event: update")
    assert not any("update" in event for event in events[1:])


def test_it_prints_its_url_and_shuts_down_cleanly_with_an_open_stream(tmp_path: Path) -> None:
    fill(tmp_path)
    command = [sys.executable, "-m", "seedbed", "serve", "--no-browser", "--port", "0", "--home", str(tmp_path)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout
    address = server.stdout.readline().strip()
    found = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/\?token=(\S+)", address)
    assert found
    request = urllib.request.Request(f"{found[1]}/api/live/studies", headers={"X-Seedbed-Token": found[2]})
    with urllib.request.urlopen(request, timeout=120) as stream:
        assert stream.readline() == b"event: update\n"
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=120)  # an open stream would keep it for ever
    assert server.returncode == 0
    assert found[2] not in out + err, "the token is printed once and never logged"
    assert "Traceback" not in err


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_a_wildcard_host_is_rejected_with_advice(host: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give the one that people will use"):
        serve(tmp_path, host, 0, browser=False)


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UsageError, match="address already in use"):
        serve(tmp_path, "127.0.0.1", taken.getsockname()[1], browser=False)


def test_progress_counts_unfinished_runs_and_estimates_the_time_left() -> None:
    target_steps = {"a": 100, "b": 100, "c": 100}
    rate = StepRate()
    first = [RunProgress("a", "running", 10), RunProgress("b", "diverged", 40), RunProgress("c", "planned", 0)]
    compute_progress(first, target_steps, rate, 0.0)
    later = [RunProgress("a", "running", 50), *first[1:]]
    progress = compute_progress(later, target_steps, rate, 4.0)
    assert (progress.done_steps, progress.total_steps) == (90, 240)  # 50 + 40 + 0 of 100 + 40 + 100
    assert progress.seconds_left == 15.0  # 150 steps at 10 a second
    assert progress.version == 2
    assert compute_progress(later, target_steps | {"c": None}, rate, 5.0).total_steps is None
