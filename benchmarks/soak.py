"""Long use of one process: a study is trained, interrupted, resumed, read and removed, again and again.

    python benchmarks/soak.py --minutes 60

In each cycle the study, of two families, is interrupted at random events until it is trained; now and then by workers,
and with a report. A reader that stays open all the time reads what the verbs do: curves, summary and weights. Then the
runs are removed. Each cycle must give the same bytes.

Prints memory and handles of this process in each twelfth of the time. Exit code 1 if its memory grows, after the first
quarter, by more than 1 % an hour and by more than it varies, if it has more open files, threads, child processes or
files in the home than before, or if a cycle gives other bytes.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import psutil

from seedbed.engines import local, machine
from seedbed.engines.machine import Machine
from seedbed.pipeline import SilentObserver, run_studies
from seedbed.records import Plan
from seedbed.report.html_report import write_report
from seedbed.report.study_runs import load_run_curves
from seedbed.stats.summary import summaries_to_json, summarise
from seedbed.store import Store, open_store
from seedbed.study.plan import plan_named

STUDY = ("task.p=5", "model.dim=8", "model.heads=2", "model.layers=1", "model.kind=gpt,lstm", "model.dropout=0.1",
         "train.steps=40", "train.eval_every=5", "train.save_every=10", "train.batch_size=5", "seeds=3")  # fmt: skip
CYCLES_PER_LONG_ONE = 24  # with worker processes and a report
MAX_INTERRUPTS = 3  # of a cycle
N_ROWS = 12
MIN_CYCLES = 40
MAX_GROWTH = 0.01  # an hour


@dataclass(frozen=True)
class State:
    """What this process holds after a cycle."""

    seconds: float  # since the start
    megabytes: float  # resident
    n_files: int  # open
    n_threads: int
    n_children: int
    n_home_files: int


def stop_after(n_calls: int) -> Callable[[], bool]:
    """Asks to stop when it has been called so often."""
    calls = iter(range(n_calls))
    return lambda: next(calls, None) is None


def train_with_interrupts(plan: Plan, home: Path, n_workers: int, generator: random.Random) -> int:
    """Trains a plan to its end; returns how often it was interrupted."""
    n = 0
    while True:
        should_stop = stop_after(generator.randint(1, 120)) if n < MAX_INTERRUPTS // n_workers else lambda: False
        outcome = run_studies([plan], home, Machine("cpu", n_workers), SilentObserver(), should_stop)
        if not outcome.stopped:
            assert outcome.counts == {"finished": len(plan.runs)}, outcome.counts
            return n
        n += 1


def read_all(store: Store, plan: Plan) -> str:
    """A digest of the numbers and the weights of a study."""
    digest = blake2b(digest_size=8)
    for run, named in store.curves([run.id for run in plan.runs]).items():
        for name, curve in sorted(named.items()):
            digest.update(f"{run} {name}".encode() + curve.steps.tobytes() + curve.values.tobytes())
    for run in plan.runs:
        for name, array in sorted(store.load_weights(run.id).items()):
            digest.update(name.encode() + array.tobytes())
    summaries_to_json(summarise(load_run_curves(store, plan.study)))
    return digest.hexdigest()


def measure(start: float, home: Path) -> State:
    gc.collect()
    process = psutil.Process()
    return State(
        time.monotonic() - start, process.memory_info().rss / 1e6, process.num_fds(), process.num_threads(),
        len(process.children(recursive=True)), sum(path.is_file() for path in home.rglob("*")),
    )  # fmt: skip


def print_row(states: Sequence[State], n_cycles: int, n_interrupts: int) -> None:
    last = states[-1]
    memory = statistics.median(state.megabytes for state in states)
    print(
        f"{last.seconds / 60:7.1f} {n_cycles:7} {n_interrupts:10} {memory:8.1f} {max(s.n_files for s in states):6} "
        f"{max(s.n_threads for s in states):8} {max(s.n_children for s in states):9} {last.n_home_files:6}",
        flush=True,
    )


def find_growth(states: Sequence[State]) -> list[str]:
    """What has grown after the first quarter of the time; empty if nothing has."""
    if len(states) < MIN_CYCLES:
        return [f"too few cycles to tell: {len(states)}, not {MIN_CYCLES}"]
    states = states[len(states) // 4 :]
    half = len(states) // 2
    before, after = states[:half], states[half:]
    found = []
    for name in ("n_files", "n_threads", "n_children", "n_home_files"):
        most, now = (max(getattr(state, name) for state in part) for part in (before, after))
        if now > most:
            found.append(f"{name.removeprefix('n_').replace('_', ' ')}: {most}, then {now}")
    fit = statistics.linear_regression([s.seconds / 3600 for s in states], [s.megabytes for s in states])
    mean = statistics.fmean(state.megabytes for state in states)
    spread = statistics.stdev(state.megabytes for state in states)
    grown = statistics.median(s.megabytes for s in after) - statistics.median(s.megabytes for s in before)
    print(
        f"memory: {mean:.1f} MB ± {spread:.1f}; {fit.slope:+.1f} MB an hour by a line, {grown:+.2f} from half to half"
    )
    if fit.slope > MAX_GROWTH * mean and grown > spread:
        found.append(f"memory grows by {fit.slope:.1f} MB an hour")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    args = parser.parse_args()
    generator, states, digests = random.Random(0), list[State](), set[str]()
    row, n_rows, n_interrupts, n_cycles = list[State](), 0, 0, 0
    local.n_cores = machine.n_cores = lambda: 1  # threads of a pack would wait for one another on a busy machine
    print("minutes  cycles interrupts       MB  files  threads  children   home")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "lab"
        os.environ["SEEDBED_RATES"] = str(Path(folder) / "rates.json")
        plan = plan_named("quickstart", STUDY)
        open_store(home).close()
        start = time.monotonic()
        with open_store(home, read_only=True) as reader:
            while time.monotonic() - start < args.minutes * 60:
                is_long = n_cycles % CYCLES_PER_LONG_ONE == CYCLES_PER_LONG_ONE // 2
                n_interrupts += train_with_interrupts(plan, home, 2 if is_long else 1, generator)
                digests.add(read_all(reader, plan))
                if is_long:
                    write_report(home, [plan.study], [], Path(folder) / "report")
                with open_store(home) as store:
                    store.remove(plan.study, [run.id for run in plan.runs])
                n_cycles += 1
                row.append(measure(start, home))
                states.append(row[-1])
                if states[-1].seconds > (n_rows + 1) * args.minutes * 60 / N_ROWS:
                    print_row(row, n_cycles, n_interrupts)
                    row, n_rows = [], n_rows + 1
    problems = find_growth(states)
    if len(digests) > 1:
        problems.append(f"{len(digests)} sets of bytes in {n_cycles} cycles")
    print(f"{n_cycles} cycles, {n_interrupts} interrupts, {len(digests)} set(s) of bytes", *problems, sep="\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
