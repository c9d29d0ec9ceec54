"""The progress display of packs, including one that is split."""

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


def displayed(terminal: bool, quiet: bool = False) -> str:
    out = io.StringIO()
    with ProgressDisplay(Console(file=out, force_terminal=terminal, width=100, no_color=True), quiet) as display:
        display.report("timing first")
        large, parts = pack("large", 5), [pack("first", 3), pack("second", 2)]
        display.on_start([large])
        display.on_event(large, StepEvent(7))
        display.on_split(large, parts)
        for part in parts:
            display.on_event(part, StepEvent(50))
            display.on_event(part, FinishEvent(0, 50))
    return out.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_split_pack_is_reported_in_one_line_and_its_parts_are_displayed(terminal: bool) -> None:
    text = displayed(terminal)
    assert "timing first" in text
    assert "pack 1/1, 5 runs did not fit into memory; it continues as packs of 3 and 2 runs" in text
    last = text.rpartition("pack 2/3")[2] if terminal else ""
    assert ("pack 3/3, 2 runs" in last and "50/50" in last and "5 runs" not in last) or not terminal


def test_quiet_prints_only_problems() -> None:
    assert displayed(terminal=True, quiet=True).splitlines() == [
        "pack 1/1, 5 runs did not fit into memory; it continues as packs of 3 and 2 runs"
    ]
