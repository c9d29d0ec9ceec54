"""The progress display of packs, including one that is split."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from seedbed.pipeline import ActivePack
from seedbed.progress import ProgressDisplay, _PackProgress
from seedbed.records import EvaluationEvent, FinishEvent, ParameterCounts, Placement, StepEvent, StoredPack, StoredRun
from seedbed.settings import Settings, Value


def pack(name: str, n_runs: int, **settings_of: Value) -> ActivePack:
    flat = {key.replace("__", "."): value for key, value in settings_of.items()}
    settings = Settings.from_flat({"train.steps": 50} | flat)
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
    assert "pack 1/1, gpt, 5 runs did not fit into memory; it continues as packs of 3 and 2 runs" in text
    last = text.rpartition("gpt, 3 runs")[2] if terminal else ""
    assert ("gpt, 2 runs" in last and "50/50" in last and "gpt, 5 runs" not in last) or not terminal


def test_quiet_prints_only_problems() -> None:
    assert displayed(terminal=True, quiet=True).splitlines() == [
        "pack 1/1, gpt, 5 runs did not fit into memory; it continues as packs of 3 and 2 runs"
    ]


def test_lines_fit_into_80_columns_and_name_what_trains() -> None:
    out = io.StringIO()
    evaluated = EvaluationEvent(40, (0, 1, 2), ("train/loss", "val/loss", "val/accuracy"), np.full((3, 3), 0.123456))
    packs = [
        pack("a", 3, model__kind="gpt", task__p=29, train__steps=1_000_000),
        pack("b", 3, model__kind="lstm", task__p=29, task__train_fraction=0.123456789, train__steps=1_000_000),
    ]
    with ProgressDisplay(Console(file=out, force_terminal=True, width=80, no_color=True)) as display:
        display.on_start(packs)
        for one in packs:
            display.on_event(one, StepEvent(300_000))
            display.on_event(one, evaluated)
    screen = [re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", line) for line in out.getvalue().replace("\r", "\n").splitlines()]
    assert max(map(len, screen)) <= 80
    gpt, lstm, total = [line for line in screen if line.strip()][-3:]
    assert total.startswith("all 6 runs")
    assert "30 %" in total
    assert "0 of 2 packs done" in total
    assert gpt.startswith("gpt train_fraction=0.5")
    assert lstm.startswith("lstm train_fraction=0.12")
    assert "━" in lstm
    assert "300,000/1,000,000" in lstm
    assert "loss 0.123" in lstm


def test_few_bars_are_left_of_many_packs() -> None:
    out = io.StringIO()
    packs = [pack(f"p{n}", 1, train__lr=0.001 * (n + 1)) for n in range(20)]
    with ProgressDisplay(Console(file=out, force_terminal=True, width=80, no_color=True)) as display:
        display.on_start(packs)
        for one in packs[:19]:
            display.on_event(one, StepEvent(50))
        display.on_event(packs[19], StepEvent(10))
    *_, bar, total = [line for line in out.getvalue().splitlines() if "━" in line]
    assert "19 of 20 packs done" in total
    assert "lr=0.02 seed=0" in bar
    assert "lr=0.019 seed=0 ━━━━━━━━━━ 50/50" not in out.getvalue()


def test_the_time_left_starts_from_the_estimate_and_ends_with_the_speed() -> None:
    """100 updates estimated at 50 s that take 2 s each; from a tenth on the estimate does not count."""
    estimated = replace(pack("a", 1, train__steps=100), estimated_seconds=50.0)
    progress = _PackProgress(estimated, "a", 0, 0, 1, start_time=1000.0)
    assert progress.seconds_left(1000.0) == 50
    assert progress.seconds_left(1010.0) == 40
    progress.step = 5
    assert progress.seconds_left(1010.0) == pytest.approx((190 + 47.5) / 2)
    progress.step = 10
    assert progress.seconds_left(1020.0) == 180
    without = replace(progress, pack=replace(estimated, estimated_seconds=None), step=0)
    assert without.seconds_left(1010.0) is None
    resumed = replace(progress, start_step=50, step=50)
    assert resumed.seconds_left(1000.0) == 50
    budget = replace(pack("b", 1, train__seconds=30.0), estimated_seconds=35.0)
    assert _PackProgress(budget, "b", 0, 7, 1, start_time=1000.0).seconds_left(1010.0) == 25
