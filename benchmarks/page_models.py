"""Latency of the web page's model views: attention over a 128-token text, and the first sampled token.

    python benchmarks/page_models.py [--rounds 20]

Report A's model (12 layers, width 192, 6 heads, 128 characters of context) with random weights, behind the real server
and over HTTP. "Cold" is the very first request, which starts the worker and loads the model.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

from seedbed.models.build import build_pack
from seedbed.models.model_size import count_parameters
from seedbed.records import CheckpointEvent, FinishEvent, Pack, Placement, Plan, Run
from seedbed.settings import Settings
from seedbed.store import open_store
from seedbed.study.plan import compute_run_id
from seedbed.web.guard import Guard
from seedbed.web.server import Server, make_app
from seedbed.web.store_cache import StoreCache

TEXT = (
    "To be, or not to be, that is the question: whether 'tis nobler in the mind "
    "to suffer the slings and arrows of outrageous fortune"
)
OVERRIDES = {
    "task.kind": "text", "task.length": 128, "model.layers": 12, "model.dim": 192, "model.heads": 6,
    "model.positions": "learned", "model.norm": "pre", "model.final_norm": True, "model.mlp_bias": True,
}  # fmt: skip
LIMITS = {"attention": 0.5, "first token": 0.3}  # seconds


def store_model(home: Path) -> str:
    """Stores report A's model with initial weights as if it had been trained, and returns the run's id."""
    corpus = home / "play.txt"
    corpus.write_text(f"{TEXT}\n" * 40, encoding="utf-8")
    settings = Settings.from_flat(OVERRIDES | {"task.corpus": str(corpus)})
    dataset_info = settings.task.dataset_info()
    run = Run(compute_run_id(settings, 0), 0, {}, settings, count_parameters(settings, dataset_info), dataset_info)
    _, bank = build_pack([settings], [0], torch.zeros(1, dtype=torch.int64), torch.float32, dataset_info)
    with open_store(home) as store:
        store.register(Plan("report-a", "", (), (run,)))
        (pack,) = store.claim([Pack("a", (run,), 1)], lambda _: Placement())
        with store.lock(pack.id):
            store.resume(pack.id)
            store.save(pack.id, CheckpointEvent(1, {"x": bank.weights.numpy()}, {0: bank.get_arrays(0)}))
            store.record(pack.id, [FinishEvent(0, 1)])
            store.finish(pack.id)
    return run.id


class PageClient:
    """A client of the web page's API."""

    def __init__(self, port: int, guard: Guard) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._headers = {
            "X-Seedbed-Token": guard.token, "Origin": f"http://127.0.0.1:{port}", "Content-Type": "application/json"
        }  # fmt: skip

    def post(self, path: str, body: dict[str, Any], until: bytes = b"") -> tuple[float, bytes]:
        """Seconds until the whole response, or these bytes, have arrived; and the response."""
        start = time.perf_counter()
        self._connection.request("POST", path, json.dumps(body), self._headers)
        response = self._connection.getresponse()
        body_read = b""
        while (part := response.read1(1 << 20)) and not (until and until in body_read + part):
            body_read += part
        seconds = time.perf_counter() - start
        body_read += part + response.read()
        assert response.status == 200, body_read
        return seconds, body_read


def measure_latencies(client: PageClient, run: str, rounds: int) -> dict[str, list[float]]:
    attention = {"run": run, "text": TEXT}
    writing = {"run": run, "given": TEXT[:20], "tokens": 100}
    cold, _ = client.post("/api/attention", attention)
    seconds: dict[str, list[float]] = {"cold": [cold], "attention": [], "first token": [], "100 tokens": []}
    for _ in range(rounds):
        seconds["attention"].append(client.post("/api/attention", attention)[0])
        # the first event is the prompt, the second the first sampled token
        seconds["first token"].append(client.post("/api/write", writing, until=b'\ndata: {"token"')[0])
        seconds["100 tokens"].append(client.post("/api/write", writing)[0])
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listening:
        run = store_model(Path(folder))
        port = listening.getsockname()[1]
        guard = Guard.create("127.0.0.1", port)
        server = Server(make_app(StoreCache(Path(folder)), guard))
        serving = threading.Thread(target=server.run, args=([listening],), daemon=True)
        serving.start()
        seconds = measure_latencies(PageClient(port, guard), run, options.rounds)
        server.stop()
        serving.join()
    for name, times in seconds.items():
        limit = f", target {1000 * LIMITS[name]:.0f}" if name in LIMITS else ""
        median, maximum = 1000 * statistics.median(times), 1000 * max(times)
        print(f"{name:12} median {median:6.0f} ms, max {maximum:6.0f} ms of {len(times)}{limit}")


if __name__ == "__main__":
    main()
