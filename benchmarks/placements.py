"""Whether a run's numbers depend on its company: the same runs in many placements, compared bit for bit.

    python benchmarks/placements.py --threads 1               all cases, 50 placements of 10 runs each
    python benchmarks/placements.py gru lstm/text --placements 8 --runs 5
    python benchmarks/placements.py --reproducible            with train.reproducible = true: whatever the threads
    python benchmarks/placements.py --reproducible --device cuda --precision tf32 --placements 10

A placement is the largest pack, the worker processes, the threads of a pack, the order of the runs and the kinds of
their neighbours. Packs are made, placed and trained by what `seedbed run` uses. What is compared of a run: every metric
of every evaluation and its final weights, and if it is reproducible its samples. Where two placements differ, the first
step and metric with other bits are named, and on a CPU the first operation. On a GPU, workers stand for packs that
train concurrently. Exit code 1 if any run has more than one set of bytes.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from seedbed.engines import machine as machine_module
from seedbed.engines.base import JobFailure, QueuedJob
from seedbed.engines.local import LocalEngine
from seedbed.engines.machine import Machine
from seedbed.models.model_size import count_parameters
from seedbed.pipeline import PackJob, run_pack_job
from seedbed.records import CheckpointEvent, Cost, EvaluationEvent, Event, Pack, Placement, Run, SampleEvent
from seedbed.settings import Settings
from seedbed.study.pack import Capacity, pack_runs
from seedbed.training.trainer import Trainer

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # of worker processes: threads that wait leave the cores to others
N_STEPS = 8
MAX_EXPLAINED = 4  # differences of a case
LINES = (
    "the cat sat on the mat; a dog ate the hat, and so it went: who knew? nobody, said the owl in the old oak tree. "
)
MOODS = ("sad\tday {} was grey, said {}\n", "glad\tday {} was fine, said {}\n", "glad\ta good day, {} of {}\n")
LABELS = [MOODS[i % 3].format(i % 5, i % 7) for i in range(150)]

TRAIN = {
    "train.steps": N_STEPS, "train.eval_first": 1, "train.eval_every": 4, "train.save_every": N_STEPS,
    "train.lr": 0.003,
}  # fmt: skip
ARITHMETIC = TRAIN | {"task.p": 13, "train.batch_size": 64}
ADDITION = TRAIN | {"task.kind": "addition", "task.digits": 1, "train.batch_size": 24}
TEXT = TRAIN | {"task.kind": "text", "task.corpus": "text.txt", "task.length": 21, "train.batch_size": 7}
TEXT |= {"train.sample_every": N_STEPS, "train.sample_tokens": 12}
LABELLED = TRAIN | {"task.kind": "labels", "task.corpus": "labels.tsv", "task.length": 9, "task.val_fraction": 0.2}
GPT = {"model.layers": 2, "model.dim": 24, "model.heads": 2}
ENCODER = GPT | {"model.kind": "encoder", "model.batch_norm": True, "train.batch_size": 15}
LSTM = {"model.kind": "lstm", "model.layers": 2, "model.dim": 19, "model.hidden": 21}
GRU = LSTM | {"model.kind": "gru"}
# Wide enough for products of one run at a time.
WIDE = {"model.layers": 1, "model.dim": 128, "model.hidden": 520, "task.p": 23, "train.batch_size": 256}

CASES: dict[str, dict[str, Any]] = {
    "gpt/arithmetic": ARITHMETIC | GPT,
    "gpt/arithmetic/wide": ARITHMETIC | WIDE | {"train.steps": 3},
    "gpt/arithmetic/muon": ARITHMETIC | GPT | {"train.optimizer": "muon", "train.ema": 0.9},
    "gpt/text": TEXT | GPT | {"model.norm": "pre", "model.final_norm": True, "model.positions": "rotary"},
    "gpt/addition": ADDITION | GPT | {"model.positions": "learned", "train.accumulate": 2},
    "encoder/labels": LABELLED | ENCODER,
    "encoder/labels/alibi": LABELLED | ENCODER | {"model.positions": "alibi", "task.length": 20},
    "lstm/arithmetic": ARITHMETIC | LSTM,
    "lstm/text": TEXT | LSTM | {"model.tied": True, "model.hidden": 19},
    "lstm/addition": ADDITION | LSTM,
    "gru/arithmetic": ARITHMETIC | GRU,
    "gru/text": TEXT | GRU,
    "gru/addition": ADDITION | GRU,
}

# Settings that may differ within a pack; the runs that are compared take turns with them, and so do their neighbours.
VARIATIONS: list[dict[str, Any]] = [
    {},
    {"train.lr": 0.01, "train.weight_decay": 0.1},
    {"train.clip": 0.01},
    {"train.schedule": "cosine", "train.warmup": 5},
    {"model.dropout": 0.1},
    {"train.betas": (0.8, 0.95)},
    {"train.batch_size": 11},
    {"train.clip": 0.0, "train.eps": 1e-6},
    {"train.schedule": "plateau", "train.threshold": 0.5},
    {"model.init_scale": 0.5, "train.weight_decay": 0.0},
]
NEIGHBOURS: dict[str, dict[str, Any]] = {
    "other seeds": {},
    "diverging": {"train.lr": 1e30, "train.clip": 0.0},
    "clipped": {"train.clip": 1e-3},
    "with dropout": {"model.dropout": 0.2},
    "larger batches": {"train.batch_size": 72},
    "smaller batches": {"train.batch_size": 6},
    "other rates": {"train.lr": 0.05, "train.schedule": "linear", "train.warmup": 3},
}


@dataclass(frozen=True)
class PlacementSpec:
    """Where runs are trained, and beside which others."""

    max_runs: int = 1
    n_workers: int = 1
    n_threads: int = 1
    neighbours: tuple[str, ...] = ()
    order: int = 0  # seed of the order of the runs; 0: as they are numbered

    def __str__(self) -> str:
        beside = ", ".join(self.neighbours) or "no others"
        return (
            f"packs of up to {self.max_runs}, {self.n_workers} worker(s), {self.n_threads} thread(s), beside {beside}, "
            f"order {self.order}"
        )


@dataclass
class RunBytes:
    """What a run gave, bit for bit: values by (step, name), in order."""

    keeps_samples: bool = False
    values: dict[tuple[int, str], bytes] = field(default_factory=dict)
    company: tuple[Pack, Placement, int] | None = None  # its pack, placement and slot

    @property
    def digest(self) -> str:
        joined = b"".join(f"{key}".encode() + value for key, value in self.values.items())
        return blake2b(joined, digest_size=6).hexdigest()

    def first_difference(self, other: RunBytes) -> tuple[int, str] | None:
        """Step and name of the first value that differs."""
        pairs = itertools.zip_longest(self.values.items(), other.values.items())
        return next(((one or two)[0] for one, two in pairs if one != two), None)  # type: ignore[index]


def draw_specs(n: int, n_threads: int | None = None) -> list[PlacementSpec]:
    """n different placements, all with this many threads if given; the first is one run per pack and one worker."""
    numbers, specs = random.Random(0), [PlacementSpec(n_threads=n_threads or 1)]
    while len(specs) < n:
        spec = PlacementSpec(
            numbers.randint(1, 8), numbers.choice((1, 1, 2)), n_threads or numbers.choice((1, 2)),
            tuple(sorted(numbers.sample(list(NEIGHBOURS), numbers.randint(0, 3)))), numbers.randint(0, 9),
        )  # fmt: skip
        if spec not in specs:
            specs.append(spec)
    return specs


def make_run(name: str, seed: int, values: Mapping[str, Any]) -> Run:
    settings = Settings.from_flat(values)
    info = settings.task.dataset_info()
    return Run(name, seed, {}, settings, count_parameters(settings, info), info)


def make_runs(base: Mapping[str, Any], n: int) -> list[Run]:
    """The runs that are compared."""
    return [make_run(f"run {i}", i, {**base, **VARIATIONS[i % len(VARIATIONS)]}) for i in range(n)]


def make_neighbours(base: Mapping[str, Any], kinds: Sequence[str], seed: int) -> list[Run]:
    """Two runs of each kind."""
    kinds = [kind for kind in kinds for _ in range(2)]
    return [make_run(f"{kind} {i}", 100 * seed + 50 + i, {**base, **NEIGHBOURS[kind]}) for i, kind in enumerate(kinds)]


def make_machine(spec: PlacementSpec, device: str) -> Machine:
    """A machine with these workers; on a GPU they are packs that train at the same time."""
    return Machine("cpu", spec.n_workers) if device == "cpu" else Machine("cuda", 1, max_slots=spec.n_workers)


def place(runs: Sequence[Run], spec: PlacementSpec, device: str = "cpu") -> list[tuple[Pack, Placement]]:
    """Packs and their placements, as `seedbed run` makes them on a machine with these workers and threads."""
    machine = make_machine(spec, device)
    packs = pack_runs(runs, Capacity(2**40, spec.max_runs, spec.n_workers, device=device))
    n_concurrent = min(spec.n_workers, len(packs))
    with patch.object(machine_module, "n_cores", lambda: spec.n_threads * n_concurrent):
        return [(pack, machine.default_placement(pack, len(packs))) for pack in packs]


def train(
    runs: Sequence[Run], base: Mapping[str, Any], spec: PlacementSpec, device: str = "cpu"
) -> dict[str, RunBytes]:
    """What each of these runs gives in this placement."""
    company = [*runs, *make_neighbours(base, spec.neighbours, spec.order)]
    if spec.order:
        random.Random(spec.order).shuffle(company)
    placed = place(company, spec, device)
    found: dict[str, RunBytes] = {run.id: RunBytes(run.settings.train.reproducible) for run in company}
    for pack, placement in placed:
        for slot, run in enumerate(pack.runs):
            found[run.id].company = pack, placement, slot

    def on_event(index: int, event: Event | JobFailure) -> None:
        if isinstance(event, JobFailure):
            raise RuntimeError(event.trace or event.cause)
        record_event(event, [found[run.id] for run in placed[index][0].runs])

    jobs = [QueuedJob(lambda _, packed=one: _make_job(*packed)) for one in placed]
    LocalEngine(make_machine(spec, device).resources()).run(jobs, run_pack_job, on_event, lambda: False)
    return {run.id: found[run.id] for run in runs}


def _make_job(pack: Pack, placement: Placement) -> PackJob:
    return PackJob([run.settings for run in pack.runs], [run.seed for run in pack.runs], placement, None, Cost())


def record_event(event: Event, found: Sequence[RunBytes]) -> None:
    """Adds what an event says of each run of a pack."""
    if isinstance(event, EvaluationEvent):
        for slot, row in zip(event.slots, event.values, strict=True):
            for name, value in zip(event.metrics, row, strict=True):
                found[slot].values[event.step, name] = value.tobytes()
    elif isinstance(event, SampleEvent) and found[event.slot].keeps_samples:
        text = f"{event.tokens} {event.log_probabilities}".encode()
        found[event.slot].values[event.step, f"sample {event.number}"] = text
    elif isinstance(event, CheckpointEvent):
        for slot, arrays in event.weights.items():
            for name, array in arrays.items():
                found[slot].values[event.step, f"weights {name}"] = array.tobytes()


# ---- the first operation that differs ----


def trace_update(pack: Pack, placement: Placement, slot: int, step: int) -> Iterator[tuple[str, Tensor]]:
    """What each part of one run computes in an update, in the order in which it is computed."""
    torch.set_num_threads(placement.threads)
    settings, seeds = [run.settings for run in pack.runs], [run.seed for run in pack.runs]
    trainer = Trainer(settings, seeds, placement.device, getattr(torch, placement.dtype), placement.mode)
    for _ in range(step - 1):
        trainer.train_step()
    outputs: list[tuple[str, Tensor]] = []
    weights = {name: view[slot].clone() for name, view in trainer.parameters.views(trainer.parameters.weights).items()}
    yield from ((f"{name} before the update", one) for name, one in weights.items())

    def keep(name: str) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            if isinstance(output, Tensor) and len(output) == len(seeds):
                outputs.append((f"output of {name or 'the model'}", output[slot].detach().clone()))

        return hook

    for name, module in trainer.model.named_modules():
        module.register_forward_hook(keep(name))
    trainer.train_step()
    yield from outputs
    for what, flat in (("gradient", trainer.parameters.gradients), ("weights", trainer.parameters.weights)):
        for name, view in trainer.parameters.views(flat).items():
            yield f"{what} of {name}", view[slot]


def first_differing_operation(one: RunBytes, other: RunBytes, step: int) -> str:
    """The first output, gradient or weight with other bits up to the update that ends at this step."""
    assert one.company is not None
    assert other.company is not None
    for update in range(1, step + 1):
        traces = [list(trace_update(*each.company, step=update)) for each in (one, other)]
        if len(traces[0]) != len(traces[1]):
            return f"update {update}: not the same operations"
        for (name, left), (_, right) in zip(*traces, strict=True):
            if left.shape != right.shape:
                return f"update {update}: {name}: shapes {tuple(left.shape)} and {tuple(right.shape)}"
            if left.numpy().tobytes() != right.numpy().tobytes():
                n = int((left != right).sum())
                return f"update {update}: {name} ({n} of {left.numel()} elements)"
    return "no update: the evaluation"


# ---- report ----


@dataclass(frozen=True)
class CaseResult:
    """The sets of bytes of each run of a case, with the placements that gave them."""

    placements_by_digest: Mapping[str, Mapping[str, Sequence[PlacementSpec]]]
    differences: Sequence[str]

    @property
    def n_runs_with_one_set(self) -> int:
        return sum(len(digests) == 1 for digests in self.placements_by_digest.values())


def check_case(base: Mapping[str, Any], n_runs: int, specs: Sequence[PlacementSpec], device: str = "cpu") -> CaseResult:
    """Trains the runs in every placement; the first difference of each pair of sets of bytes is explained once."""
    runs = make_runs(base, n_runs)
    first: dict[str, RunBytes] = {}
    seen: dict[str, dict[str, list[PlacementSpec]]] = {run.id: {} for run in runs}
    differences: list[str] = []
    for spec in specs:
        for name, found in train(runs, base, spec, device).items():
            reference = first.setdefault(name, found)
            key = None if found.digest in seen[name] else reference.first_difference(found)
            if key is not None and len(differences) < MAX_EXPLAINED:
                where = f"{name}: step {key[0]}, {key[1]}; "
                if device == "cpu" and key[0]:
                    where += f"{first_differing_operation(reference, found, min(key[0], N_STEPS))}; "
                differences.append(f"{where}{spec}")
            seen[name].setdefault(found.digest, []).append(spec)
    return CaseResult(seen, differences)


def write_corpora(folder: Path) -> None:
    """The texts of the cases."""
    (folder / "text.txt").write_text("".join(LINES[i % 11 :] for i in range(12)), encoding="utf-8")
    (folder / "labels.tsv").write_text("".join(LABELS), encoding="utf-8")


def case_settings(name: str, folder: Path, **extra: Any) -> dict[str, Any]:
    """The settings of a case, with the paths of its texts in this folder."""
    base = CASES[name] | {key.replace("__", "."): value for key, value in extra.items()}
    if "task.corpus" in base:
        base["task.corpus"] = str(folder / base["task.corpus"])
    return base


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="cases whose name contains one of these; all if none is given")
    parser.add_argument("--placements", type=int, default=50)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--threads", type=int, choices=(1, 2), help="only placements with this many threads")
    parser.add_argument("--reproducible", action="store_true", help="with train.reproducible = true")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--precision", default="fp32", choices=("fp32", "tf32", "bf16"))
    args = parser.parse_args()
    extra: dict[str, Any] = {"train__precision": args.precision}
    if args.reproducible:
        extra["train__reproducible"] = True
    specs = draw_specs(args.placements, args.threads)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        write_corpora(Path(folder))
        for name in CASES:
            if args.cases and not any(part in name for part in args.cases):
                continue
            start = time.perf_counter()
            result = check_case(case_settings(name, Path(folder), **extra), args.runs, specs, args.device)
            failed |= result.n_runs_with_one_set < args.runs
            print(
                f"{name}: {result.n_runs_with_one_set} of {args.runs} runs have one set of bytes in {len(specs)} "
                f"placements ({time.perf_counter() - start:.0f} s)",
                flush=True,
            )
            for line in result.differences:
                print("   ", line, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
