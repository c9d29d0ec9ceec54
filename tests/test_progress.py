"""What a person sees of packs: also of one that goes on as two."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from seedbed.pipeline import ActivePack
from seedbed.progress import ProgressDisplay
from seedbed.records import FinishEvent, ParameterCounts, Placement, StepEvent, StoredPack, StoredRun
from seedbed.settings import Settings


def pack(name: str, n_runs: int) -> ActivePack:
    settings = Settings.from_flat({"train.steps": 50})
    runs = [StoredRun(f"{name}{n}", n, settings, ParameterCounts(1, 1), "running", 0, name) for n in range(n_runs)]
    return ActivePack(StoredPack(name, tuple(run.id for run in runs), Placement(), None), runs)


def watched(terminal: bool, quiet: bool = False) -> str:
    out = io.StringIO()
    with ProgressDisplay(Console(file=out, force_terminal=terminal, width=100, no_color=True), quiet) as watcher:
        watcher.report("measuring first")
        large, parts = pack("large", 5), [pack("first", 3), pack("second", 2)]
        watcher.on_start([large])
        watcher.on_event(large, StepEvent(7))
        watcher.on_split(large, parts)
        for part in parts:
            watcher.on_event(part, StepEvent(50))
            watcher.on_event(part, FinishEvent(0, 50))
    return out.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_pack_that_does_not_fit_is_told_in_one_line_and_its_parts_are_followed(terminal: bool) -> None:
    text = watched(terminal)
    assert "measuring first" in text
    assert "pack 1/1, 5 runs did not fit into memory; it goes on as packs of 3 and 2 runs" in text
    last = text.rpartition("pack 2/3")[2] if terminal else ""
    assert ("pack 3/3, 2 runs" in last and "50/50" in last and "5 runs" not in last) or not terminal


def test_quiet_tells_only_what_matters() -> None:
    assert watched(terminal=True, quiet=True).splitlines() == [
        "pack 1/1, 5 runs did not fit into memory; it goes on as packs of 3 and 2 runs"
    ]
