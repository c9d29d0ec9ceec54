"""Loaded runs with initial weights, for interpretability tests without training."""

from __future__ import annotations

from pathlib import Path

import torch

from seedbed.models.build import build_pack
from seedbed.records import ParameterCounts, StoredRun
from seedbed.sampling.loaded_run import LoadedRun
from seedbed.settings import Settings
from seedbed.study.plan import compute_run_id

ARITHMETIC = {"task.p": 11, "task.train_fraction": 0.6, "model.dim": 16, "model.heads": 2, "model.layers": 3}
LSTM = {"task.p": 11, "task.train_fraction": 0.6, "model.kind": "lstm", "model.dim": 16, "model.layers": 2}
HEBREW = "חיים נחמן ביאליק. שיר שני! עוד שיר אחד כאן.\n"


def make_loaded_run(values, seed=3):
    """A run with twice its initial weights, so that attention is not uniform."""
    settings = Settings.from_flat(values)
    step = torch.zeros(1, dtype=torch.int64)
    _, parameters = build_pack([settings], [seed], step, torch.float32, settings.task.dataset_info())
    weights = {name: 2 * array for name, array in parameters.get_arrays(0).items()}
    stored = StoredRun(compute_run_id(settings, seed), seed, settings, ParameterCounts(0, 0), "finished", 5)
    return LoadedRun(stored, 5, weights)


def held_out_inputs(loaded, n):
    """Up to n inputs that the run was not trained on."""
    return loaded.run.settings.task.analysis_inputs(loaded.run.seed, n)


def text_settings(folder: Path, text: str = HEBREW, tokenizer: str = "characters"):
    path = folder / "text.txt"
    path.write_text(text * 8, encoding="utf-8")
    task = {"task.kind": "text", "task.corpus": str(path), "task.tokenizer": tokenizer, "task.length": 24}
    return task | {"model.dim": 16, "model.heads": 2, "model.layers": 2}


def label_settings(folder: Path):
    path = folder / "labels.tsv"
    rows = [f"{label}\t{text}" for label, text in (("a", "we the people."), ("b", "my fellow citizens, so it is.")) * 6]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    task = {"task.kind": "labels", "task.corpus": str(path), "task.tokenizer": "words", "task.length": 9}
    return task | {"model.kind": "encoder", "model.dim": 16, "model.heads": 2, "model.layers": 2}
