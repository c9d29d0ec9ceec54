"""Whether every combination that a shipped study can ask for runs: `make gpu-check`.

    python benchmarks/combinations.py [--device cuda] [--only wikitext] [--modes plain,graph,compiled] [--small]
    python benchmarks/combinations.py --processes 12     a part of them in each of 12 processes on one GPU

Every kind of model, optimizer, position encoding and data of the shipped studies, with each precision and mode, as one
run and as a pack of two, is trained for two updates with an evaluation, a sample and a checkpoint. Its losses must be
those of fp32 in mode plain, within what the precision allows. On a GPU the models have their full size, except that
mode compiled takes one size of each structure. On a CPU, `--small` takes the smallest size of each structure, precision
bf16 switches on autocast there as well, and compiled functions are traced but not compiled.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch

from seedbed.models.families.transformer_settings import POSITION_KINDS
from seedbed.records import CheckpointEvent, EvaluationEvent, FinishEvent, Placement, SampleEvent
from seedbed.settings import MODEL_SETTINGS, OPTIMIZERS, Settings
from seedbed.study.plan import plan_named
from seedbed.study.study_files import shipped_studies
from seedbed.training.loop import train_pack

PRECISIONS = ("fp32", "tf32", "bf16")
MODES = ("plain", "graph", "compiled")
MAX_DIFFERENCE = {"fp32": 1e-4, "tf32": 0.01, "bf16": 0.03}  # of a loss, relative to fp32 in mode plain
N_STEPS = 2


@dataclass(frozen=True)
class Combination:
    """One shape with one precision and mode, and as how many runs."""

    study: str
    settings: Settings
    mode: str
    n_runs: int

    def __str__(self) -> str:
        model, train = self.settings.model, self.settings.train
        sizes = f"{getattr(model, 'layers', '')} × {getattr(model, 'dim', '')}"
        return f"{self.study:24} {model.kind} {sizes} {train.optimizer} {train.precision} {self.mode} × {self.n_runs}"


def shipped_settings(only: str, small: bool) -> Iterator[tuple[str, Settings]]:
    """The settings of all runs of the shipped studies, then variations of them that no study has but a command may."""
    for name, path in shipped_studies().items():
        if only in name:
            has_tiny = "tiny" in tomllib.loads(path.read_text(encoding="utf-8")).get("scales", {})
            overrides = ["scale=tiny"] if small and has_tiny else []
            for run in plan_named(name, overrides).runs:
                yield name, run.settings
    if only in "variations":
        for kind in MODEL_SETTINGS:
            if MODEL_SETTINGS[kind].predicts == "next_token":
                yield "variations", Settings.from_flat({"model.kind": kind, "task.p": 11})
        for optimizer in OPTIMIZERS:
            yield "variations", Settings.from_flat({"train.optimizer": optimizer, "task.p": 11})
        for positions in POSITION_KINDS:
            yield "variations", Settings.from_flat({"model.positions": positions, "task.p": 11})


def make_combinations(
    only: str, small: bool, precisions: Sequence[str], modes: Sequence[str], packs_only: bool = False
) -> Iterator[Combination]:
    """Every distinct shape with every precision and mode; one size of a structure where that is enough.

    With `packs_only`, a shape that can be stacked is not tried as a single run as well.
    """
    seen: set[object] = set()
    by_structure: dict[object, list[tuple[str, Settings]]] = {}
    for study, settings in shipped_settings(only, small):
        if (key := _shape(settings)) not in seen:
            seen.add(key)
            by_structure.setdefault(_structure(settings), []).append((study, settings))
    for group in by_structure.values():
        for index, (study, settings) in enumerate(group):
            for mode in modes:
                if index and (small or mode == "compiled"):
                    continue
                # a compilation takes most of a minute: one number of runs, and fp32 differs from tf32 by a flag only
                shortest = mode == "compiled" and not small
                for precision in (one for one in precisions if not shortest or one != "fp32"):
                    n_max = 2 if settings.model.stackable and not settings.train.exclusive else 1
                    for n_runs in range(n_max if shortest or packs_only else 1, n_max + 1):
                        yield Combination(study, shorten(settings, precision), mode, n_runs)


def _shape(settings: Settings) -> tuple[Any, ...]:
    """What decides the kernels of an update: model, data and optimizer, but no numbers that only scale something."""
    task = [(name, value) for name, value in settings.task if name not in ("train_fraction", "data_fraction")]
    model = [(name, value) for name, value in settings.model if name not in ("init_scale",)]
    names = ("batch_size", "accumulate", "optimizer", "decay_parameters", "eval_sets")
    switches = ("clip", "ema", "label_smoothing", "weight_decay")
    train = settings.train
    return (*task, *model, *(getattr(train, name) for name in names), *(getattr(train, name) > 0 for name in switches))


def _structure(settings: Settings) -> tuple[Any, ...]:
    """The shape without sizes: numbers count only as zero, one or more."""
    return tuple(
        (entry[0], entry[1] if not _is_size(entry[1]) else min(2, math.ceil(entry[1])))
        if isinstance(entry, tuple) and len(entry) == 2
        else entry if not _is_size(entry) else min(2, math.ceil(entry))
        for entry in _shape(settings)
    )  # fmt: skip


def _is_size(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def shorten(settings: Settings, precision: str) -> Settings:
    """The same run for two updates, with an evaluation, a sample and a checkpoint after each."""
    changed = {
        "steps": N_STEPS, "epochs": None, "max_tokens": None, "seconds": None, "eval_first": 0, "eval_every": 1,
        "eval_batches": 1, "save_every": 1, "precision": precision, "sample_every": 1, "sample_tokens": 5,
        "samples": 1, "warmup": 0,
    }  # fmt: skip
    return settings.model_copy(update={"train": settings.train.model_copy(update=changed)})


def check(combination: Combination, device: str, reference: dict[str, list[float]] | None) -> dict[str, list[float]]:
    """Trains; returns the losses by name. AssertionError says what is missing or differs from the reference."""
    settings, n_runs = combination.settings, combination.n_runs
    placement = Placement(device=device, mode=combination.mode)
    events = list(train_pack([settings] * n_runs, range(n_runs), placement))
    n_steps = settings.n_steps(settings.task.dataset_info())
    evaluations = {event.step: event for event in events if isinstance(event, EvaluationEvent)}
    assert evaluations.keys() >= {*range(n_steps + 1)}, f"evaluated only {sorted(evaluations)}"
    assert sum(isinstance(event, FinishEvent) for event in events) == n_runs, "a run did not finish"
    saves = [event for event in events if isinstance(event, CheckpointEvent)]
    assert len(saves) == n_steps, f"{len(saves)} checkpoints instead of {n_steps}"
    assert len(saves[-1].weights) == n_runs, "weights are missing"
    if settings.task.generates_text:
        samples = [event for event in events if isinstance(event, SampleEvent)]
        assert len(samples) == n_steps * n_runs, f"{len(samples)} samples instead of {n_steps * n_runs}"
    first, last = evaluations[0], evaluations[min(N_STEPS, n_steps)]
    losses = {
        f"{name} at step {event.step}": event.values[:, event.metrics.index(name)].tolist()
        for event in (first, last)
        for name in event.metrics
        if name.endswith("loss")
    }
    for name, values in losses.items():
        assert all(map(math.isfinite, values)), f"{name} = {values}"
        for value, expected in zip(values, reference[name] if reference else values, strict=True):
            difference = abs(value - expected) / max(abs(expected), 0.1)
            limit = MAX_DIFFERENCE[settings.train.precision]
            assert difference <= limit, f"{name} = {value:.5g}, in fp32 {expected:.5g}"
    return losses


@contextmanager
def imitate_gpu() -> Iterator[None]:
    """On a CPU: bf16 means autocast, and compiled functions are traced without a compiler."""
    original_compile = torch.compile

    def autocast(precision: str, device: torch.device) -> Any:
        return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")

    def trace(function: Any, **options: Any) -> Any:
        return original_compile(function, backend="aot_eager", **options)

    with ExitStack() as stack:
        stack.enter_context(mock.patch("seedbed.training.trainer.autocast_context", autocast))
        stack.enter_context(mock.patch("torch.compile", trace))
        yield


def check_all(
    device: str, only: str = "", small: bool = False, precisions: Sequence[str] = PRECISIONS,
    modes: Sequence[str] = MODES, part: tuple[int, int] = (0, 1), seconds: float = math.inf, packs_only: bool = False,
) -> list[str]:  # fmt: skip
    """Checks every combination and prints a line for each; returns those that failed.

    With `part` (i, n), only every nth shape from the ith on; after so many seconds the rest is left out.
    """
    references: dict[object, dict[str, list[float]]] = {}
    failed, n_left_out, start = [], 0, time.monotonic()
    shapes: dict[object, int] = {}
    with ExitStack() as stack:
        if device == "cpu":
            stack.enter_context(imitate_gpu())
        for combination in make_combinations(only, small, precisions, modes, packs_only):
            plain = Combination(combination.study, shorten(combination.settings, "fp32"), "plain", combination.n_runs)
            key = (_shape(combination.settings), combination.n_runs)
            if shapes.setdefault(key, len(shapes)) % part[1] != part[0]:
                continue
            if time.monotonic() - start > seconds:
                n_left_out += 1
                continue
            try:
                if key not in references:
                    references[key] = check(plain, device, None)
                check(combination, device, references[key])
                print(f"ok      {combination}", flush=True)
            except Exception as error:
                failed.append(str(combination))
                print(f"FAILED  {combination}: {type(error).__name__}: {error}".splitlines()[0], flush=True)
            if device == "cuda":
                torch.cuda.empty_cache()
    left_out = f", {n_left_out} left out for lack of time" if n_left_out else ""
    print(f"{len(failed)} failed{left_out}", flush=True)
    return failed


def check_in_processes(n_processes: int, arguments: Sequence[str]) -> bool:
    """Runs this script with each part of the combinations at the same time; whether all succeeded."""
    command = [sys.executable, __file__, *arguments, "--processes", "1"]
    processes = [subprocess.Popen([*command, "--part", f"{i}/{n_processes}"]) for i in range(n_processes)]
    exit_codes = [process.wait() for process in processes]
    return not any(exit_codes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", default="", help="part of a study's name")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--small", action="store_true", help="one size of each structure, the tiny scale of studies")
    parser.add_argument("--processes", type=int, default=1, help="processes that share the work and the device")
    parser.add_argument("--part", default="0/1", help="I/N: every Nth shape, from the Ith on")
    parser.add_argument("--seconds", type=float, default=math.inf, help="leave out what is not begun by then")
    args = parser.parse_args()
    if args.processes > 1:
        return not check_in_processes(args.processes, sys.argv[1:])
    index, n_parts = map(int, args.part.split("/"))
    precisions, modes = args.precisions.split(","), args.modes.split(",")
    return bool(check_all(args.device, args.only, args.small, precisions, modes, (index, n_parts), args.seconds))


if __name__ == "__main__":
    sys.exit(main())
