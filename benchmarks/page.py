"""What the page costs: how fast it is over a big store, and what a hundred viewers take from a study that trains.

    python benchmarks/page.py big         a store of 1,000 runs × 200 records in a real browser
    python benchmarks/page.py viewers     a study trained alone, then with 100 viewers who follow it; same seeds

Viewers are streams and requests as the page's scripts make them, from a process of the lowest priority, since in life
they are other people's machines. The server is `seedbed serve` itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
N_VIEWERS = 100
STUDY = ("quickstart", "seeds=8", "train.steps=3001")


@contextmanager
def serving(home: Path) -> Iterator[tuple[subprocess.Popen[str], str, int, str]]:
    """The page of a home: its process, host, port and token."""
    command = [sys.executable, "-m", "seedbed", "serve", "--no-browser", "--port", "0", "--home", str(home)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        found = re.fullmatch(r"http://([\d.]+):(\d+)/\?token=(\S+)", server.stdout.readline().strip())
        assert found, "the server said no address"
        yield server, found[1], int(found[2]), found[3]
    finally:
        server.terminate()
        server.wait(20)


def memory_of(process: int) -> float:
    """Resident megabytes of a process and its children."""
    import psutil

    top = psutil.Process(process)
    return sum(one.memory_info().rss for one in [top, *top.children(recursive=True)]) / 1e6


def _used(process: int) -> float:
    """Seconds of a core that a process has used."""
    import psutil

    times = psutil.Process(process).cpu_times()
    return times.user + times.system


# ---- a hundred viewers ----


async def view(host: str, port: int, token: str, study: str, counts: dict[str, int]) -> None:
    """One viewer: the page's first requests, then its stream, and after each event the figure on the screen."""
    head = {"x-seedbed-token": token}
    for place in (
        f"/study/{study}",
        "/static/page.js",
        "/static/study.js",
        *(f"/api/{part}/{study}" for part in ("study", "answers", "configs", "tables", "figure")),
    ):
        await ask(host, port, place, head, counts)
    while True:
        try:
            await follow(host, port, study, head, counts)
        except OSError as error:
            counts["errors"] += 1
            counts[f"error {error}"] = counts.get(f"error {error}", 0) + 1
            await asyncio.sleep(1)


async def ask(host: str, port: int, place: str, head: dict[str, str], counts: dict[str, int]) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    lines = [
        f"GET {place} HTTP/1.1",
        f"Host: {host}:{port}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in head.items()),
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    began = time.perf_counter()
    answer = await reader.read(-1)
    writer.close()
    counts["requests"] += 1
    counts["errors"] += not answer.startswith(b"HTTP/1.1 200")
    counts["slowest ms"] = max(counts["slowest ms"], int(1000 * (time.perf_counter() - began)))
    return answer


async def follow(host: str, port: int, study: str, head: dict[str, str], counts: dict[str, int]) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    place = f"/api/live/study/{study}?figures=1"
    lines = [f"GET {place} HTTP/1.1", f"Host: {host}:{port}", *(f"{name}: {value}" for name, value in head.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    try:
        while line := await reader.readline():
            counts["bytes"] += len(line)
            counts["events"] += line.startswith(b"event: ")
            counts["rows"] += line.startswith(b"event: rows")
    finally:
        writer.close()


async def watch(host: str, port: int, token: str, study: str, ended: Path) -> dict[str, int]:
    counts = dict.fromkeys(("requests", "errors", "slowest ms", "events", "rows", "bytes"), 0)
    viewers = [asyncio.create_task(view(host, port, token, study, counts)) for _ in range(N_VIEWERS)]
    while not ended.exists():
        await asyncio.sleep(0.2)
    for viewer in viewers:
        viewer.cancel()
    await asyncio.gather(*viewers, return_exceptions=True)
    return counts


def watch_aside(*given: Any) -> dict[str, int]:
    """`watch` in a process that leaves the machine to the others; on other cores, where this one is kept to some."""
    os.nice(19)
    if others := set(range(os.cpu_count() or 1)) - os.sched_getaffinity(0):
        os.sched_setaffinity(0, others)
    return asyncio.run(watch(*given))


def train(home: Path) -> subprocess.Popen[bytes]:
    """The study in a process of its own."""
    command = [sys.executable, "-m", "seedbed", "run", *STUDY, "--home", str(home), "--mode", "plain", "-q"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def seconds_of(home: Path) -> float:
    """What the runs' updates and evaluations took, by the clock of the processes that trained them."""
    from seedbed.store.store import Store

    with Store.open_read_only(home) as store:
        packs = store.study_packs(STUDY[0])
    return sum(pack.cost.seconds.get("compute", 0) + pack.cost.seconds.get("evaluate", 0) for pack in packs)


def measure_viewers(rounds: int) -> dict[str, object]:
    """Seconds of the same study alone and watched, turn by turn; medians of each."""
    alone: list[float] = []
    watched: list[float] = []
    seen: list[dict[str, float]] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            trained = train(Path(folder))
            trained.wait()
            alone.append(seconds_of(Path(folder)))
        with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as (server, host, port, token):
            trained = train(Path(folder))
            while not (Path(folder) / "store.db").exists():
                time.sleep(0.05)
            time.sleep(1)
            before, started = _used(server.pid), time.perf_counter()
            with ProcessPoolExecutor(1) as aside:
                seeing = aside.submit(watch_aside, host, port, token, STUDY[0], Path(folder) / "ended")
                trained.wait()
                share, memory = (_used(server.pid) - before) / (time.perf_counter() - started), memory_of(server.pid)
                (Path(folder) / "ended").touch()
                counts = seeing.result()
            watched.append(seconds_of(Path(folder)))
            seen.append({**counts, "server's share of a core": share, "server MB": memory})
    loss = 1 - statistics.median(alone) / statistics.median(watched)
    return {"alone s": alone, "watched s": watched, "throughput loss": loss, "viewers": seen}


# ---- a big store in a browser ----


def measure_big(rounds: int) -> dict[str, object]:
    """Milliseconds until a study of 1,000 runs is drawn, by a server that was just started, and until it answers."""
    from playwright.sync_api import sync_playwright

    sys.path.insert(0, str(ROOT))
    from tests.web.factories import fill_large

    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        fill_large(Path(folder))
        chromium = shutil.which("chromium") or os.environ["CHROMIUM"]
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(rounds):
            with serving(Path(folder)) as (_, host, port, token):
                page = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
                page.goto(f"http://{host}:{port}/?token={token}")
                page.wait_for_selector("[data-ready=true]", state="attached")
                for name, took in _clicks(page, f"http://{host}:{port}/study/big"):
                    found.setdefault(name, []).append(round(1000 * took))
        browser.close()
    return dict(found)


def _clicks(page: Any, address: str) -> Iterator[tuple[str, float]]:
    """What a viewer does, and how long each takes until it is seen."""
    redrawn = "document.querySelector('#figure-1 .drawing') !== window.before"
    mark = "() => { window.before = document.querySelector('#figure-1 .drawing'); }"
    for name in ("first", "again"):
        began = time.perf_counter()
        yield (
            f"drawn, {name}",
            _took(page, lambda: page.goto(address), "document.querySelector('#body:not([hidden]) .drawn')"),
        )
        page.wait_for_selector("#study[data-ready=true]", state="attached")
        yield f"all there, {name}", time.perf_counter() - began
    page.wait_for_timeout(1000)
    column = page.locator("th[data-key='val/loss'] button")
    yield "sort", _took(page, column.click, "document.querySelector('th[data-key=\"val/loss\"][aria-sort]')")
    opening = page.locator("tr.config button").first
    yield "open a point", _took(page, opening.click, "document.querySelectorAll('tr.run').length === 10")
    search = page.locator("#find")
    yield (
        "find",
        _took(page, lambda: search.fill("layers=3"), "document.querySelector('#count').textContent.startsWith('25 ')"),
    )
    page.evaluate(
        "() => { const figure = document.querySelector('#figure-1').figure, redraw = figure.redraw; window.hid = 0; "
        "figure.redraw = async function () { await redraw.call(this); window.hid += 1; }; }"
    )
    button = page.locator("#figure-1 .series button").first
    yield "hide a series", _took(page, button.click, "window.hid === 1")
    page.evaluate(mark)
    yield "colour by a setting", _took(page, lambda: page.select_option("[name=colour]", "train.lr"), redrawn)


def _took(page: Any, act: Callable[[], object], done: str) -> float:
    began = time.perf_counter()
    act()
    while not page.evaluate(f"Boolean({done})"):
        time.sleep(0.005)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("big", "viewers"))
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    measure = {"big": measure_big, "viewers": measure_viewers}[given.what]
    print(json.dumps({"load": os.getloadavg(), **measure(given.rounds)}, indent=1))


if __name__ == "__main__":
    main()
