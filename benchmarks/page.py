"""Performance of the web page: its latency over a big store, and how much a hundred viewers slow down training.

    python benchmarks/page.py big         a store of 1,000 runs × 200 evaluations in a real browser
    python benchmarks/page.py viewers     a study trained alone, then with 100 viewers who follow it; same seeds
    python benchmarks/page.py views --home lab --axe axe.min.js
                                          every view of a home in both themes and at 1280 and 390 px: violations that
                                          axe-core finds (npm pack axe-core), and whether the page scrolls sideways

Viewers send the requests and hold the event streams of the page's scripts, from a process of the lowest priority, since
real viewers are on other machines. The server is `seedbed serve` itself.
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

from seedbed.store import store_exists

ROOT = Path(__file__).parent.parent
N_VIEWERS = 100
STUDY = ("quickstart", "seeds=8", "train.steps=3001")


@contextmanager
def serve_page(home: Path) -> Iterator[tuple[subprocess.Popen[str], str, int, str]]:
    """Serves the page of a home; yields the process, host, port and token."""
    command = [sys.executable, "-m", "seedbed", "serve", "--no-browser", "--port", "0", "--home", str(home)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        match = re.fullmatch(r"http://([\d.]+):(\d+)/\?token=(\S+)", server.stdout.readline().strip())
        assert match, "the server printed no address"
        yield server, match[1], int(match[2]), match[3]
    finally:
        server.terminate()
        server.wait(20)


def resident_megabytes(process: int) -> float:
    """Resident megabytes of a process and its children."""
    import psutil

    top = psutil.Process(process)
    return sum(child.memory_info().rss for child in [top, *top.children(recursive=True)]) / 1e6


def cpu_seconds(process: int) -> float:
    """CPU seconds that a process has used."""
    import psutil

    times = psutil.Process(process).cpu_times()
    return times.user + times.system


# ---- a hundred viewers ----


async def simulate_viewer(host: str, port: int, token: str, study: str, counts: dict[str, int]) -> None:
    """One viewer: the page's initial requests, then its event stream."""
    headers = {"x-seedbed-token": token}
    for path in (
        f"/study/{study}",
        "/static/page.js",
        "/static/study.js",
        *(f"/api/{part}/{study}" for part in ("study", "answers", "configs", "tables", "figure")),
    ):
        await send_request(host, port, path, headers, counts)
    while True:
        try:
            await follow_stream(host, port, study, headers, counts)
        except OSError as error:
            counts["errors"] += 1
            counts[f"error {error}"] = counts.get(f"error {error}", 0) + 1
            await asyncio.sleep(1)


async def send_request(host: str, port: int, path: str, headers: dict[str, str], counts: dict[str, int]) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: {host}:{port}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    start = time.perf_counter()
    answer = await reader.read(-1)
    writer.close()
    counts["requests"] += 1
    counts["errors"] += not answer.startswith(b"HTTP/1.1 200")
    counts["slowest ms"] = max(counts["slowest ms"], int(1000 * (time.perf_counter() - start)))
    return answer


async def follow_stream(host: str, port: int, study: str, headers: dict[str, str], counts: dict[str, int]) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    path = f"/api/live/study/{study}?figures=1"
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}:{port}", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    try:
        while line := await reader.readline():
            counts["bytes"] += len(line)
            counts["events"] += line.startswith(b"event: ")
            counts["rows"] += line.startswith(b"event: rows")
    finally:
        writer.close()


async def run_viewers(host: str, port: int, token: str, study: str, stop_file: Path) -> dict[str, int]:
    counts = dict.fromkeys(("requests", "errors", "slowest ms", "events", "rows", "bytes"), 0)
    viewers = [asyncio.create_task(simulate_viewer(host, port, token, study, counts)) for _ in range(N_VIEWERS)]
    while not stop_file.exists():
        await asyncio.sleep(0.2)
    for viewer in viewers:
        viewer.cancel()
    await asyncio.gather(*viewers, return_exceptions=True)
    return counts


def run_viewers_at_low_priority(*args: Any) -> dict[str, int]:
    """`run_viewers` at the lowest priority, and on cores outside this process's CPU affinity if there are any."""
    os.nice(19)
    if others := set(range(os.cpu_count() or 1)) - os.sched_getaffinity(0):
        os.sched_setaffinity(0, others)
    return asyncio.run(run_viewers(*args))


def start_training(home: Path) -> subprocess.Popen[bytes]:
    """Trains the study in its own process."""
    command = [sys.executable, "-m", "seedbed", "run", *STUDY, "--home", str(home), "--mode", "plain", "-q"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def training_seconds(home: Path) -> float:
    """Seconds of the runs' updates and evaluations, as timed by the training processes."""
    from seedbed.store import open_store

    with open_store(home, read_only=True) as store:
        packs = store.study_packs(STUDY[0])
    return sum(pack.cost.seconds.get("compute", 0) + pack.cost.seconds.get("evaluate", 0) for pack in packs)


def measure_viewers(rounds: int) -> dict[str, object]:
    """Training seconds of the same study alone and watched, in alternating rounds."""
    alone: list[float] = []
    watched: list[float] = []
    viewer_stats: list[dict[str, float]] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            training = start_training(Path(folder))
            training.wait()
            alone.append(training_seconds(Path(folder)))
        with tempfile.TemporaryDirectory() as folder, serve_page(Path(folder)) as (server, host, port, token):
            training = start_training(Path(folder))
            while not store_exists(folder):
                time.sleep(0.05)
            time.sleep(1)
            before, started = cpu_seconds(server.pid), time.perf_counter()
            with ProcessPoolExecutor(1) as pool:
                viewing = pool.submit(run_viewers_at_low_priority, host, port, token, STUDY[0], Path(folder) / "ended")
                training.wait()
                share = (cpu_seconds(server.pid) - before) / (time.perf_counter() - started)
                memory = resident_megabytes(server.pid)
                (Path(folder) / "ended").touch()
                counts = viewing.result()
            watched.append(training_seconds(Path(folder)))
            viewer_stats.append({**counts, "server's share of a core": share, "server MB": memory})
    loss = 1 - statistics.median(alone) / statistics.median(watched)
    return {"alone s": alone, "watched s": watched, "throughput loss": loss, "viewers": viewer_stats}


# ---- a big store in a browser ----


def measure_big(rounds: int) -> dict[str, object]:
    """Milliseconds until a freshly started server has drawn a study of 1,000 runs, and of interactions with it."""
    from playwright.sync_api import sync_playwright

    sys.path.insert(0, str(ROOT))
    from tests.web.factories import fill_large

    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        fill_large(Path(folder))
        chromium = shutil.which("chromium") or os.environ["CHROMIUM"]
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(rounds):
            with serve_page(Path(folder)) as (_, host, port, token):
                page = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
                page.goto(f"http://{host}:{port}/?token={token}")
                page.wait_for_selector("[data-ready=true]", state="attached")
                for name, seconds in _time_interactions(page, f"http://{host}:{port}/study/big"):
                    times.setdefault(name, []).append(round(1000 * seconds))
        browser.close()
    return dict(times)


def _time_interactions(page: Any, address: str) -> Iterator[tuple[str, float]]:
    """Interactions of a viewer, and the seconds until their result is visible."""
    redrawn = "document.querySelector('#figure-1 .drawing') !== window.before"
    mark = "() => { window.before = document.querySelector('#figure-1 .drawing'); }"
    for name in ("first", "again"):
        start = time.perf_counter()
        yield (
            f"drawn, {name}",
            _seconds_until(page, lambda: page.goto(address), "document.querySelector('#body:not([hidden]) .drawn')"),
        )
        page.wait_for_selector("#study[data-ready=true]", state="attached")
        yield f"complete, {name}", time.perf_counter() - start
    page.wait_for_timeout(1000)
    column = page.locator("th[data-key='val/loss'] button")
    yield "sort", _seconds_until(page, column.click, "document.querySelector('th[data-key=\"val/loss\"][aria-sort]')")
    opening = page.locator("tr.config button").first
    yield "open a config", _seconds_until(page, opening.click, "document.querySelectorAll('tr.run').length === 10")
    search = page.locator("#find")
    yield (
        "find",
        _seconds_until(
            page, lambda: search.fill("layers=3"), "document.querySelector('#count').textContent.startsWith('25 ')"
        ),
    )
    page.evaluate("scrollTo(0, 0)")  # a figure that cannot be seen is not drawn
    page.wait_for_timeout(1000)
    page.evaluate(mark)
    colour = page.locator("[name=colour]")
    yield "colour by a setting", _seconds_until(page, lambda: colour.select_option("model.layers"), redrawn)
    page.wait_for_timeout(1000)
    page.evaluate(
        "() => { const figure = document.querySelector('#figure-1').figure, redraw = figure.redraw; window.hid = 0; "
        "figure.redraw = async function () { await redraw.call(this); window.hid += 1; }; }"
    )
    button = page.locator("#figure-1 .series button").first
    yield "hide a series", _seconds_until(page, button.click, "window.hid === 1")


# ---- every view: accessibility, and narrow screens ----

AXE_CALL = "axe.run(document, {resultTypes: ['violations']}).then((found) => JSON.stringify(found.violations))"


def measure_views(home: Path, axe: Path) -> dict[str, object]:
    """What axe-core finds in every view of a home, and the views that scroll sideways."""
    from playwright.sync_api import sync_playwright

    violations: dict[str, list[str]] = {}
    sideways: list[str] = []
    n_views = 0
    with sync_playwright() as playwright, serve_page(home) as (_, host, port, token):
        chromium = shutil.which("chromium") or os.environ["CHROMIUM"]
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme, width in ((scheme, width) for scheme in ("light", "dark") for width in (1280, 390)):
            page = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 844}).new_page()
            page.goto(f"http://{host}:{port}/?token={token}")
            for path in _views_of(home):
                page.goto(f"http://{host}:{port}{path}")
                page.wait_for_load_state("load")
                page.wait_for_timeout(4000)  # live streams are open for ever, so the network is never idle
                session, view = page.context.new_cdp_session(page), f"{path} {scheme} {width}"
                session.send("Runtime.evaluate", {"expression": axe.read_text(encoding="utf-8")})
                answer = session.send(
                    "Runtime.evaluate", {"expression": AXE_CALL, "awaitPromise": True, "returnByValue": True}
                )
                found = json.loads(answer["result"]["value"])
                if found:
                    violations[view] = [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]
                if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                    sideways.append(view)
                n_views += 1
                print(f"{view}: {len(found)} violations", file=sys.stderr)
        browser.close()
    return {"views": n_views, "violations": violations, "scroll sideways": sideways}


def _views_of(home: Path) -> Iterator[str]:
    """The paths of every kind of view: all studies, one run of each with its models, comparisons, and the form."""
    from seedbed.store import open_store

    yield from ("/", "/start", "/compare", "/inside", "/playground")
    with open_store(home, read_only=True) as store:
        for study in store.studies():
            run = store.runs(study.name)[-1].id
            yield from (f"/study/{study.name}", f"/run/{run}", f"/inside?run={run}", f"/playground?run={run}")
            if study.axes:
                yield f"/compare?a={study.name}&by={study.axes[0]}"


def _seconds_until(page: Any, act: Callable[[], object], done: str) -> float:
    start = time.perf_counter()
    act()
    while not page.evaluate(f"Boolean({done})"):
        assert time.perf_counter() - start < 60, f"still not true after a minute: {done}"
        time.sleep(0.005)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("big", "viewers", "views"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--home", type=Path, help="of views")
    parser.add_argument("--axe", type=Path, help="axe.min.js, of views")
    args = parser.parse_args()
    if args.what == "views":
        if not (args.home and args.axe):
            parser.error("views needs --home and --axe")
        found = measure_views(args.home, args.axe)
    else:
        found = {"big": measure_big, "viewers": measure_viewers}[args.what](args.rounds)
    print(json.dumps({"load": os.getloadavg(), **found}, indent=1))


if __name__ == "__main__":
    main()
