"""`make bench`: it runs, compares what is the same function, and writes figures that can be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_a_quick_run_writes_ratios_and_what_they_depend_on(tmp_path):
    out = tmp_path / "figures.json"
    words = [
        sys.executable,
        BENCHMARKS / "bench.py",
        "--quick",
        "--device",
        "cpu",
        "--only",
        "arithmetic-gpt",
        "--out",
        out,
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(out.read_text())
    assert {"command", "machine", "versions", "load_before", "load_after"} <= report.keys()
    assert all(check["difference"] < 1e-9 for check in report["checks"])
    (comparison,) = report["comparisons"]
    rows = {row["plan"]["name"]: row for row in comparison["sides"]}
    ratio = rows["seedbed"]["against"]["plain"]
    assert 0 < ratio["lowest"] <= ratio["ratio"] <= ratio["highest"]
    assert rows["plain"]["lowest"] <= rows["plain"]["rate"] <= rows["plain"]["highest"]
    assert f"{ratio['ratio']:.2f}× plain" in done.stdout


@pytest.mark.parametrize("kind", ["gpt", "lstm"])
def test_a_peer_that_is_another_function_is_found_out(benchmarks, kind, monkeypatch):
    import check
    import peers

    from seedbed.settings import Settings

    settings = Settings.of({"model.kind": kind, "model.dim": 8, "model.layers": 1, "task.p": 11})
    assert check.difference_to("plain", settings, "cpu") < check.AGREE

    def off_by_little(given):
        model = peers.plain_model(given)
        model.head.register_forward_hook(lambda _, __, logits: logits * (1 + 1e-6))
        return model

    monkeypatch.setitem(peers.MODELS, "plain", off_by_little)
    assert check.difference_to("plain", settings, "cpu") > check.AGREE
