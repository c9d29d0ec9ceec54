"""`seedbed serve` as a process: what it prints, how it shuts down, and that the token is never logged."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from seedbed.errors import UsageError
from seedbed.records import RunProgress, RunStatus
from seedbed.store import open_store
from seedbed.web.live import LiveProgress, StepRate, compute_progress
from seedbed.web.server import SHUTDOWN_TIMEOUT_SECONDS, serve
from seedbed.web.store_cache import StoreCache

from ..report.factories import fill
from .server import run_server


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
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UsageError, match="address already in use"):
        serve(tmp_path, "127.0.0.1", taken.getsockname()[1], browser=False)


def test_progress_counts_unfinished_runs_and_estimates_the_time_left() -> None:
    target_steps = {"a": 100, "b": 100, "c": 100}
    rate = StepRate()
    first = [RunProgress("a", "running", 10), RunProgress("b", "diverged", 40), RunProgress("c", "planned", 0)]
    compute_progress(first, target_steps, rate, 0.0)
    later = [RunProgress("a", "running", 50), *first[1:]]
    assert compute_progress(later, target_steps, rate, 4.0).seconds_left is None, "too early to tell"
    progress = compute_progress(later, target_steps, rate, 10.0)
    assert (progress.done_steps, progress.total_steps) == (90, 240)  # 50 + 40 + 0 of 100 + 40 + 100
    assert progress.seconds_left == 37.5  # 150 steps at 4 a second
    assert progress.version == 2
    assert compute_progress(later, target_steps | {"c": None}, rate, 15.0).total_steps is None


def test_the_time_left_starts_from_the_estimate_and_forgets_a_pause() -> None:
    def runs(step: int, status: RunStatus = "running") -> list[RunProgress]:
        return [RunProgress("a", status, step)]

    def left(step: int, now: float) -> float | None:
        return compute_progress(runs(step), {"a": 1000}, rate, now).seconds_left

    rate = StepRate(estimate=80.0)
    assert left(0, 0.0) == 80.0
    assert left(10, 3.0) == 77.0, "3 seconds of the estimate have passed, whatever the first steps took"
    assert left(50, 10.0) == pytest.approx(0.5 * 190 + 0.5 * 80 * 0.95)  # at 5 % of the steps half of each
    assert left(200, 20.0) == pytest.approx(80.0)  # 800 steps at 10 a second
    compute_progress(runs(200, "stopped"), {"a": 1000}, rate, 30.0)
    assert left(210, 1000.0) is None, "no rate over the pause, and no estimate of an earlier start"


def test_a_job_has_the_progress_of_its_own_runs(tmp_path: Path) -> None:
    fill(tmp_path, "first", (0.1, 0.5), (0, 1))
    live = LiveProgress(StoreCache(tmp_path))
    with open_store(tmp_path, read_only=True) as store:
        run = store.runs("first")[0].id
    whole = live._read_snapshot().studies["first"]
    part = live.job_progress("3f2a", "first", {run, "not stored yet"})
    assert part is not None
    assert (sum(part.states.values()), part.done_steps * 4) == (1, whole.done_steps)
    assert live.job_progress("3f2a", "other", {run}) is None


# ---- single requests ----


def test_head_is_answered_and_long_responses_are_compressed(client: TestClient) -> None:
    assert client.head("/").status_code == 200
    assert client.get("/static/style.css").headers["content-encoding"] == "gzip"
    assert "content-encoding" not in client.get("/static/icon.svg", headers={"accept-encoding": "identity"}).headers


def test_an_oversized_body_without_a_length_is_refused_as_one(client: TestClient) -> None:
    parts = (b"x" * 100_000 for _ in range(20))
    answer = client.post("/api/start", content=parts, headers={"content-type": "application/json"})
    assert answer.status_code == 413


def test_a_body_that_never_arrives_does_not_delay_the_end(tmp_path: Path) -> None:
    with run_server(tmp_path) as server:
        host, _, port = server.base.removeprefix("http://").partition(":")
        lines = [
            "POST /api/start HTTP/1.1", f"Host: {host}:{port}", f"Origin: {server.base}",
            f"X-Seedbed-Token: {server.token}", "Content-Type: application/json", "Content-Length: 100", "", "{",
        ]  # fmt: skip
        hanging = [socket.create_connection((host, int(port))) for _ in range(5)]
        for one in hanging:
            one.sendall("\r\n".join(lines).encode())
        time.sleep(0.3)
        began = time.monotonic()
    assert time.monotonic() - began < SHUTDOWN_TIMEOUT_SECONDS
    for one in hanging:
        one.close()
