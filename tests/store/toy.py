"""Toy plans and a toy trainer for the tests of the store: tiny runs that can resume from a saved state.

The trainer iterates one number per run with a chaotic map, so a step that is repeated or skipped changes all later
numbers. Of a pack of three, slot 0 finishes at step 4, slot 1 diverges at step 3 and slot 2 finishes at step 6; every
second step is saved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from sqlalchemy import text

from seedbed.records import (
    CheckpointEvent,
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
from seedbed.settings import Settings
from seedbed.store import Store, open_store
from seedbed.store.sqlite import SQLiteStore
from seedbed.store.upgrade import write_digests

METRIC_NAMES = ("val/loss", "norm")
LAST_STEP = {0: 4, 2: 6}
DIVERGES = (1, 3)
PLACEMENT = Placement(device="cpu", threads=1, mode="plain", dtype="float64")


def make_run(seed: int, lr: float = 0.001) -> Run:
    settings = Settings.from_flat({"task.orders": (2, 3), "train.lr": lr})
    return Run(f"{seed:04x}{lr:g}".replace(".", "d"), seed, {"train.lr": lr}, settings, ParameterCounts(70, 30))


def make_plan(n_runs: int = 3, study: str = "toy", axes: tuple[str, ...] = ("train.lr",), lr: float = 0.001) -> Plan:
    return Plan(study, f'name = "{study}"', axes, tuple(make_run(seed, lr) for seed in range(n_runs)))


def make_pack(runs: Sequence[Run]) -> Pack:
    return Pack("as planned", tuple(runs), 1_000)


def claim(store: Store, *packs: Sequence[Run]) -> list[str]:
    """Ids of the claimed packs."""
    return [pack.id for pack in store.claim([make_pack(runs) for runs in packs], lambda _: PLACEMENT)]


def make_evaluation(
    step: int, slots: Sequence[int], values: Sequence[float], name: str = "val/loss"
) -> EvaluationEvent:
    return EvaluationEvent(step, tuple(slots), (name,), np.array(values, dtype=np.float64)[:, None])


def make_checkpoint(step: int, slots: Sequence[int] = (), weight: float = 1.0) -> CheckpointEvent:
    weights = {slot: {"w": np.full((2, 3), weight + slot)} for slot in slots}
    return CheckpointEvent(step, {"x": np.array([weight, step])}, weights)


def record_then_save(store: Store, pack_id: str, events: Sequence[StoredEvent], save: CheckpointEvent) -> None:
    store.record(pack_id, events)
    store.save(pack_id, save)


def save_then_record(store: Store, pack_id: str, events: Sequence[StoredEvent], save: CheckpointEvent) -> None:
    """The wrong order, for negative controls."""
    store.save(pack_id, save)
    store.record(pack_id, events)


Commit = Callable[[Store, str, Sequence[StoredEvent], CheckpointEvent], None]


def train(store: Store, pack_id: str, commit: Commit = record_then_save) -> None:
    """Train a pack of three to its end from its last save."""
    with store.lock(pack_id):
        found = store.resume(pack_id)
        step = found[0] if found else 0
        numbers = found[1]["numbers"].astype(np.float64) if found else np.array([0.1, 0.2, 0.3])
        alive = found[1]["alive"].astype(bool) if found else np.ones(3, dtype=bool)
        while alive.any():
            step += 1
            numbers = np.where(alive, np.sin(3 * numbers + step), numbers)
            was_alive = alive
            events, alive = _events(step, numbers, alive)
            if step % 2:
                store.record(pack_id, events)
            else:
                weights = {int(slot): {"w": numbers[slot : slot + 1]} for slot in np.flatnonzero(was_alive)}
                commit(store, pack_id, events, CheckpointEvent(step, {"numbers": numbers, "alive": alive}, weights))
        store.finish(pack_id)


def _events(
    step: int, numbers: np.ndarray[tuple[int], np.dtype[np.float64]], alive: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> tuple[list[StoredEvent], np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    slots = tuple(int(slot) for slot in np.flatnonzero(alive))
    values = np.stack([numbers, np.where(numbers > 0, np.nan, -np.inf)], axis=1)
    events: list[StoredEvent] = [EvaluationEvent(step, slots, METRIC_NAMES, values[list(slots)])]
    alive = alive.copy()
    if step == DIVERGES[1] and alive[DIVERGES[0]]:
        events.append(DivergenceEvent(DIVERGES[0], step, "loss became inf"))
        alive[DIVERGES[0]] = False
    for slot, last in LAST_STEP.items():
        if step == last and alive[slot]:
            events += [EvaluationEvent(step + 1, (slot,), METRIC_NAMES, values[[slot]]), FinishEvent(slot, step)]
            alive[slot] = False
    return events, alive


def rewrite(store: Store, statement: str, values: dict[str, object] | None = None) -> None:
    """Change rows as if they had been recorded like this."""
    assert isinstance(store, SQLiteStore)
    with store._database.transaction() as connection:
        connection.execute(text(statement), values or {})
        write_digests(connection)


def run_study(home: Path, commit: Commit = record_then_save) -> None:
    """What `seedbed run` does: register, claim, resume and train to the end."""
    plan = make_plan(3)
    with open_store(home) as store:
        store.register(plan)
        for pack_id in claim(store, plan.runs):
            train(store, pack_id, commit)


def snapshot(home: Path) -> dict[str, object]:
    """The content of a home in comparable form, without timestamps."""
    with open_store(home, read_only=True) as store:
        runs = store.runs("toy")
        curves = store.curves([run.id for run in runs])
        files = sorted(path for path in (home / "checkpoints").rglob("*") if path.is_file())
        return {
            "runs": runs,
            "curves": {
                (run, name): (curve.steps.tobytes(), curve.values.tobytes())
                for run, named in curves.items()
                for name, curve in named.items()
            },
            "checkpoints": [store.checkpoints(run.id) for run in runs],
            "files": {str(path.relative_to(home)): path.read_bytes() for path in files},
        }
