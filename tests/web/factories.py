"""Homes for the tests of the page: one with trained runs, and one with the size of a large study."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from seedbed.recorder import Recorder
from seedbed.records import (
    CheckpointEvent,
    Cost,
    CostEvent,
    EvaluationEvent,
    FinishEvent,
    Pack,
    ParameterCounts,
    Placement,
    Plan,
    Run,
)
from seedbed.settings import Settings, Value
from seedbed.store import open_store
from seedbed.study.plan import plan_study
from seedbed.study.read import parse_study
from seedbed.training.loop import train_pack

RULE = """
name = "tiny/rule"
question = "Does weight decay help a tiny model find the rule?"
seeds = 2

[base]
task = { p = 7, train_fraction = 0.6 }
model = { kind = "gpt", layers = 2, dim = 16, heads = 2 }
train = { steps = 61, batch_size = 16, eval_first = 0, eval_every = 10, save_every = 20 }

[grid]
train.weight_decay = [0.1, 1.0]

[[figures]]
metrics = ["train/loss", "val/loss"]
colour = "train.weight_decay"

[[figures]]
kind = "sweep"
x = "train.weight_decay"
metrics = ["val/accuracy"]

[[questions]]
ask = "which is better"
metric = "val/accuracy"
between = "train.weight_decay"
"""
HEBREW = """
name = "tiny/hebrew"
question = "מה לומד מודל קטן משיר אחד?"
seeds = 1

[base]
task = {{ kind = "text", corpus = "{corpus}", tokenizer = "characters", length = 24, test_fraction = 0.1 }}
model = {{ kind = "gpt", layers = 2, dim = 16, heads = 2 }}

[base.train]
steps = 60
batch_size = 8
lr = 0.01
eval_first = 0
eval_batches = 2
eval_every = 20
save_every = 30
sample_every = 20
sample_tokens = 60
"""
POEM = "הכניסיני תחת כנפך, והיי לי אם ואחות, ויהי חיקך מקלט ראשי, קן תפילותי הנידחות. " * 12


def fill_trained(home: Path) -> None:
    """`tiny/rule`: arithmetic, two weight decays × two seeds; `tiny/hebrew`: text with samples during training."""
    corpus = home / "poem.txt"
    corpus.parent.mkdir(parents=True, exist_ok=True)
    corpus.write_text(POEM, encoding="utf-8")
    for text in (RULE, HEBREW.format(corpus=corpus)):
        train(plan_study(parse_study(text, "made.toml")), home)


def train(plan: Plan, home: Path) -> None:
    """Trains a plan of equal shapes in this process, as one pack on one thread."""
    with open_store(home) as store:
        store.register(plan)
        (pack,) = store.claim([Pack("made", plan.runs, 1)], lambda _: Placement())
        with store.lock(pack.id):
            store.resume(pack.id, {"torch": "here"})
            recorder = Recorder(store, pack.id)
            for event in train_pack(
                [run.settings for run in plan.runs], [run.seed for run in plan.runs], pack.placement
            ):
                recorder.record(event)
            recorder.close()


def fill_large(home: Path, n_runs: int = 1000, n_evaluations: int = 200) -> None:
    """`big`: 100 configs of two settings × ten seeds, each run with this many evaluations of four metrics."""
    seeds, layers = range(10), (1, 2, 3, 4)
    rates = [round(1e-4 * 1.3**i, 7) for i in range(n_runs // (len(seeds) * len(layers)))]
    configs: list[dict[str, Value]] = [{"model.layers": n, "train.lr": rate} for n in layers for rate in rates]
    runs = [run for config in configs for run in _make_runs(config, seeds, n_evaluations)]
    steps = np.arange(n_evaluations) * 10
    values = _synthetic_metrics(runs, steps)
    text = 'name = "big"\nquestion = "How do depth and learning rate go together?"\n'
    with open_store(home) as store:
        store.register(Plan("big", text, ("model.layers", "train.lr"), tuple(runs)))
        (pack,) = store.claim([Pack("made", tuple(runs), 1)], lambda _: Placement())
        with store.lock(pack.id):
            store.resume(pack.id, {"torch": "2.13", "processor": "abacus"})
            names = ("train/loss", "val/loss", "train/accuracy", "val/accuracy")
            slots = tuple(range(len(runs)))
            store.record(pack.id, [EvaluationEvent(int(step), slots, names, values[i]) for i, step in enumerate(steps)])
            last = int(steps[-1])
            finished = [FinishEvent(slot, last) for slot in slots]
            store.record(pack.id, [*finished, CostEvent(last, Cost({"compute": 400.0}))])
            store.save(pack.id, CheckpointEvent(last, {"x": np.zeros(1)}, {}))
            store.finish(pack.id)


def _make_runs(config: dict[str, Value], seeds: Sequence[int], n_evaluations: int) -> list[Run]:
    settings = Settings.from_flat({**config, "train.steps": 10 * n_evaluations})
    name = json.dumps(config, sort_keys=True)
    return [
        Run(f"{abs(hash(name)) % 16**12:012x}{seed:04x}", seed, config, settings, ParameterCounts(2000, 1000))
        for seed in seeds
    ]


def _synthetic_metrics(runs: Sequence[Run], steps: np.ndarray) -> np.ndarray:
    """Noisy curves that fall faster for deeper models and larger learning rates: (evaluation, run, metric)."""
    noise = np.random.default_rng(0).normal(scale=0.02, size=(len(steps), len(runs)))
    decay = np.array([run.config["model.layers"] * run.config["train.lr"] for run in runs])
    loss = 0.1 + 3 * np.exp(-steps[:, None] * decay) + np.abs(noise)
    return np.stack([loss, loss + 0.3, 1 - loss / 4, 0.95 - loss / 4], axis=-1)
