"""Trained runs of every kind of model, one second each: English, Hebrew, sums, labels, an LSTM.

zoo = train_zoo(home)
zoo.home, zoo["hebrew"]           # a run's id
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seedbed.models.model_size import count_parameters
from seedbed.recorder import Recorder
from seedbed.records import Pack, Placement, Plan, Run
from seedbed.settings import Settings
from seedbed.store import open_store
from seedbed.study.plan import compute_run_id
from seedbed.training.loop import train_pack

ENGLISH = "my lord, good night. my lady, good day! so <b>it</b> is & so it was.\n"
HEBREW = "שלום לך ארץ נהדרת, שיר אחד כאן. ובליל שבת אור וחום.\n"
SMALL = {
    "model.layers": 2, "model.heads": 2, "model.dim": 32, "train.steps": 60, "train.batch_size": 16, "train.lr": 0.01,
    "train.weight_decay": 0.01, "train.eval_first": 0, "train.eval_every": 30, "train.eval_batches": 2,
    "train.save_every": 20, "train.final_evaluation": False,
}  # fmt: skip


def zoo_settings(folder: Path) -> dict[str, dict[str, Any]]:
    """The settings of each run by name; corpora are written to the folder."""
    text = {"task.kind": "text", "task.length": 32, "model.positions": "learned"}
    return {
        "english": SMALL | text | {"task.corpus": _file(folder, "english.txt", ENGLISH * 12)},
        "hebrew": SMALL | text | {"task.corpus": _file(folder, "hebrew.txt", HEBREW * 12)},
        "sums": SMALL | {"task.p": 7, "task.train_fraction": 0.9, "train.steps": 100, "train.save_every": 50},
        "lstm": _lstm() | {"task.kind": "text", "task.length": 32, "task.corpus": str(folder / "english.txt")},
        "labels": SMALL | {
            "task.kind": "labels", "task.tokenizer": "words", "task.length": 9, "task.val_fraction": 0.2,
            "task.corpus": _file(folder, "moods.tsv", _moods()), "model.kind": "encoder",
        },
    }  # fmt: skip


def _lstm() -> dict[str, Any]:
    return {name: value for name, value in SMALL.items() if name != "model.heads"} | {
        "model.kind": "lstm",
        "train.steps": 30,
    }


def _moods() -> str:
    rows = [("glad", "day {} was fine and bright"), ("sad", "day {} was grey")] * 15
    return "".join(f"{label}\t{text.format(i % 5)}\n" for i, (label, text) in enumerate(rows))


def _file(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


@dataclass(frozen=True)
class ModelZoo:
    """A home and the ids of its runs by name."""

    home: Path
    runs: Mapping[str, str]

    def __getitem__(self, name: str) -> str:
        return self.runs[name]


def train_zoo(home: Path) -> ModelZoo:
    """Trains every run in this process and stores it in the home."""
    return ModelZoo(home, {name: train(home, name, settings) for name, settings in zoo_settings(home).items()})


def train(home: Path, study: str, flat: Mapping[str, Any], seed: int = 1) -> str:
    """Trains one run as `seedbed run` does; returns its id."""
    settings = Settings.from_flat(flat)
    info = settings.task.dataset_info()
    run = Run(compute_run_id(settings, seed), seed, {}, settings, count_parameters(settings, info), info)
    with open_store(home) as store:
        store.register(Plan(study, f'name = "{study}"\nquestion = "What does it learn?"\n', (), (run,)))
        (pack,) = store.claim([Pack(f"pack-{study}", (run,), 1)], lambda _: Placement())
        with store.lock(pack.id):
            store.resume(pack.id)
            recorder = Recorder(store, pack.id)
            for event in train_pack([settings], [seed], pack.placement):
                recorder.record(event)
            recorder.close()
    return run.id
