"""Signals that ask to stop, in every phase of `seedbed run`: an answer within 10 seconds, and everything saved.

A plugin makes one phase of the command last longer and writes a file when it is reached, so that the signal hits it.
"""

from __future__ import annotations

import os
import pty
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from seedbed.engines.child_process import STOP_SIGNALS
from seedbed.store import open_store

LIMIT_SECONDS = 10.0
STRETCHED_SECONDS = 2.0
STUDY = ["task.p=5", "model.dim=8", "model.heads=2", "model.layers=1", "model.kind=gpt,lstm", "seeds=2",
         "train.eval_every=5"]  # fmt: skip
PHASES = {  # what is wrapped; the first two run in the command's own process, those of the trainer in workers
    "import": "",
    "data": "seedbed.pipeline._save_vocabularies",
    "probe": "seedbed.pipeline.probe_candidates",
    "prepare": "seedbed.training.trainer.Trainer.__init__",
    "step": "seedbed.training.trainer.Trainer.train_step",
    "evaluation": "seedbed.training.evaluate.Evaluator.evaluate",
    "save": "seedbed.store.sql_store._PendingFiles.write",
    "report": "seedbed.cli.store_commands.show_study",
}
WORKER_PHASES = ("prepare", "step", "evaluation")
PLUGIN = """
import functools, importlib, os, sys, time
target, mark, seconds = os.environ["STRETCHED"], os.environ["MARK"], float(os.environ["SECONDS"])
is_worker = sys.argv[0] == "-c"

def pause():
    if not os.path.exists(mark):
        open(mark, "w").close()
        time.sleep(seconds)

def wrap(owner, name):
    original = getattr(owner, name)
    def stretched(*args, **kwargs):
        pause()
        return original(*args, **kwargs)
    setattr(owner, name, functools.wraps(original)(stretched))

if not target:
    pause()
elif is_worker == ("training" in target):
    *path, name = target.split(".")
    if path[-1][0].isupper() or path[-1][0] == "_":
        wrap(getattr(importlib.import_module(".".join(path[:-1])), path[-1]), name)
    else:
        wrap(importlib.import_module(".".join(path)), name)
"""


@dataclass(frozen=True)
class Trial:
    """How a command answered a signal: exit code, seconds it took, and what it printed to stderr."""

    code: int
    seconds: float
    printed: str


def run_command(home: Path, phase: str, **more: object) -> subprocess.Popen[str]:
    steps, save_every = 20 if phase == "report" else 4000, 10 if phase == "save" else 4000
    plugin, mark = home.with_name(f"{home.name}.py"), home.with_name(f"{home.name}.mark")
    plugin.write_text(PLUGIN, encoding="utf-8")
    environment = os.environ | {
        "STRETCHED": PHASES[phase], "MARK": str(mark), "SECONDS": str(STRETCHED_SECONDS), "OMP_NUM_THREADS": "1",
        "SEEDBED_PLUGINS": str(plugin),
    }  # fmt: skip
    command = [sys.executable, "-m", "seedbed", "run", "quickstart", *STUDY, f"train.steps={steps}", "--workers", "2"]
    command.append(f"train.save_every={save_every}")
    return subprocess.Popen(
        [*command, "--home", str(home)],
        **({"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | more),  # type: ignore[call-overload]
        start_new_session=True, env=environment, preexec_fn=restore_signals,
    )  # fmt: skip


def restore_signals() -> None:
    """Also where this process runs in the background or under nohup, which ignore some."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def signal_during(home: Path, phase: str, number: signal.Signals, to_group: bool, after: float) -> Trial:
    process = run_command(home, phase)
    mark, deadline = home.with_name(f"{home.name}.mark"), time.monotonic() + 120
    while not mark.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"{phase} was not reached"
        time.sleep(0.01)
    time.sleep(after)
    start = time.monotonic()
    (os.killpg if to_group else os.kill)(process.pid, number)
    _, printed = process.communicate(timeout=60)
    return Trial(process.returncode, time.monotonic() - start, printed)


def problem(trial: Trial, number: signal.Signals, phase: str = "") -> str:
    """What is wrong with an answer; empty if nothing is."""
    if trial.seconds > LIMIT_SECONDS:
        return "late"
    if trial.code not in (128 + number, -number):
        return f"exit code {trial.code}"
    if phase == "import":  # before seedbed runs at all, an interrupt is Python's own
        return ""
    wrong = [word for word in ("Traceback", "failed", "died", "killed") if word in trial.printed]
    return f"printed {wrong[0]}" if wrong else ""


def test_a_signal_to_the_process_group_saves_and_stops(tmp_path: Path) -> None:
    trial = signal_during(home := tmp_path / "home", "step", signal.SIGTERM, to_group=True, after=0.5)
    assert problem(trial, signal.SIGTERM) == "", trial
    assert "stopped; all progress is saved. Resume with: seedbed run quickstart" in trial.printed
    with open_store(home, read_only=True) as store:
        saved = [pack.step for pack in store.study_packs("quickstart")]
        assert any(step is not None for step in saved)  # by the signal: the study itself saves only at its end
        assert {run.status for run in store.runs()} <= {"stopped", "planned"}


def test_a_closed_terminal_saves_and_stops(tmp_path: Path) -> None:
    """Nothing can be printed any more, which must not end the command before it has saved."""
    master, terminal = pty.openpty()
    process = run_command(home := tmp_path / "home", "step", stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    mark = home.with_name("home.mark")
    while not mark.exists():
        assert process.poll() is None
        os.set_blocking(master, False)
        try:
            os.read(master, 10_000)
        except BlockingIOError:
            time.sleep(0.01)
    start = time.monotonic()
    os.close(master)
    os.kill(process.pid, signal.SIGHUP)
    assert process.wait(60) == 128 + signal.SIGHUP
    assert time.monotonic() - start < LIMIT_SECONDS
    with open_store(home, read_only=True) as store:
        assert any(pack.step is not None for pack in store.study_packs("quickstart"))


@pytest.mark.slow
def test_99_of_100_signals_over_all_phases_are_answered_in_10_seconds(tmp_path: Path) -> None:
    rng, problems, slowest = random.Random(20), list[str](), 0.0
    phases = Counter[str]()
    for index in range(100):
        phase = list(PHASES)[index % len(PHASES)]
        number = rng.choice([signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
        trial = signal_during(
            tmp_path / f"home{index}", phase, number, rng.random() < 0.5, rng.uniform(0, STRETCHED_SECONDS)
        )
        phases[phase] += 1
        slowest = max(slowest, trial.seconds)
        print(f"{index} {phase} {number.name}: {trial.code} in {trial.seconds:.1f} s")
        if found := problem(trial, number, phase):
            problems.append(f"{phase}, {number.name}: {found}\n{trial.printed}")
    print(f"{100 - len(problems)} of 100 answered in time, the slowest in {slowest:.1f} s; {dict(phases)}", *problems)
    assert len(problems) <= 1
