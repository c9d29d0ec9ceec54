"""Stored studies for the tests of reports: known losses, and everything that can be missing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from seedbed.records import (
    CheckpointEvent,
    Cost,
    CostEvent,
    DivergenceEvent,
    EvaluationEvent,
    FinishEvent,
    Pack,
    ParameterCounts,
    Placement,
    Plan,
    Run,
    StoredEvent,
)
from seedbed.settings import Settings, Value
from seedbed.store import open_store

COST = Cost(
    {"compute": 4.0, "evaluate": 1.0}, {"compute": 99, "evaluate": 3}, steady_bytes=8 * 2**20, peak_bytes=12 * 2**20
)
NAMES = ("train/loss", "val/loss", "train/accuracy", "val/accuracy")


def fill(
    home: Path,
    study: str = "toy",
    decays: Sequence[float] = (0.1, 1.0),
    seeds: Sequence[int] = (0, 1),
    steps: Sequence[int] = (0, 50, 100),
    question: str = "Does it work?",
    shown: str = "",
    special: Mapping[int, float] | None = None,
    end: bool = True,
    diverges: int | None = None,
) -> None:
    """A stored study whose loss is 3 − step / 50 + weight decay + seed / 10; `special` sets a slot's last loss."""
    runs = []
    for decay in decays:
        config: dict[str, Value] = {"train.weight_decay": decay}
        settings = Settings.from_flat({**config, "train.steps": 100})
        runs += [
            Run(f"{study}{decay}{seed}".replace("/", ""), seed, config, settings, ParameterCounts(20, 10))
            for seed in seeds
        ]
    text = f"name = {json.dumps(study)}\nquestion = {json.dumps(question)}\n{shown}"
    with open_store(home) as store:
        store.register(Plan(study, text, ("train.weight_decay",), tuple(runs)))
        if not steps:
            return
        (pack,) = store.claim([Pack("made", tuple(runs), 1)], lambda _: Placement())
        with store.lock(pack.id):
            store.resume(pack.id, {"torch": "2.13", "processor": "abacus"})
            events: list[StoredEvent] = []
            for step in steps:
                losses = [3 - step / 50 + run.config["train.weight_decay"] + run.seed / 10 for run in runs]
                for slot, value in (special or {}).items():
                    losses[slot] = value if step == steps[-1] else losses[slot]
                values = [[loss, loss + 0.5, 1 - loss / 5, 0.9 - loss / 5] for loss in losses]
                events.append(EvaluationEvent(step, tuple(range(len(runs))), NAMES, np.array(values)))
            if diverges is not None:
                events.append(DivergenceEvent(diverges, steps[-1], "the loss became infinite"))
            store.record(
                pack.id, events + [FinishEvent(slot, 100) for slot in range(len(runs)) if end and slot != diverges]
            )
            if end:
                store.record(pack.id, [CostEvent(100, COST)])
                store.save(pack.id, CheckpointEvent(100, {"x": np.zeros(1)}, {}))
                store.finish(pack.id)
