"""Several commands that train one study in one store: which evaluations each of them made.

python -m tests.store.coordinators ADDRESS …     # prints them as JSON
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STUDY = (
    "task.p=5", "model.dim=8,16", "model.heads=2", "model.layers=1,2", "seeds=1",
    "train.steps=8", "train.eval_every=4", "train.save_every=4",
)  # fmt: skip


class Evaluated:
    """Observes training."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, int]] = []

    def report(self, text: str) -> None: ...

    def on_start(self, packs: Any) -> None: ...

    def on_split(self, pack: Any, parts: Any) -> None: ...

    def on_event(self, pack: Any, event: Any) -> None:
        from seedbed.records import EvaluationEvent

        if isinstance(event, EvaluationEvent):
            self.steps.append((f"{pack.stored.id} {event.metrics} {event.slots}", event.step))


def train(address: str) -> list[tuple[str, int]]:
    """Trains the study in this process."""
    from seedbed.engines.machine import Machine
    from seedbed.pipeline import run_studies
    from seedbed.study.plan import plan_named

    observed = Evaluated()
    run_studies([plan_named("quickstart", STUDY)], address, Machine("cpu", 1, mode="plain"), observed, lambda: False)  # type: ignore[arg-type]
    return observed.steps


def train_at_once(addresses: Sequence[str], n_coordinators: int = 2) -> list[list[list[tuple[str, int]]]]:
    """Trains the study in each store, one after another, by several processes at once; what each of them evaluated."""
    command = [sys.executable, "-m", __name__, *addresses]
    variables = os.environ | {"OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True)
        for _ in range(n_coordinators)
    ]
    printed = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0] * n_coordinators
    return [json.loads(text) for text in printed]


if __name__ == "__main__":
    print(json.dumps([train(address) for address in sys.argv[1:]]))
