"""Studies that cannot be trained are refused by `plan`, with the sentence that `run` would give; nothing is stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from seedbed.engines import machine
from seedbed.engines.machine import Machine
from seedbed.records import Pack
from seedbed.study.plan import plan_named
from tests.cli.invoke import CommandLine

STUDY = """\
seeds = 1
[base.task]
kind = "{kind}"
corpus = "{corpus}"
[base.model]
dim = 8
heads = 2
layers = 1
[base.train]
steps = 2
batch_size = 2
"""
TEXT = "the cat sat on the mat and looked at the dog. " * 10
TABLE = "".join(f"{label}\ta sentence of {word}\n" for label in ("good", "bad") for word in ("dogs", "cats", "mice"))


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> CommandLine:
    return CommandLine(monkeypatch, capsys, tmp_path / "home")


def write_study(folder: Path, kind: str, content: str) -> Path:
    corpus = folder / ("corpus.txt" if kind == "text" else "corpus.tsv")
    corpus.write_text(content, encoding="utf-8")
    study = folder / "study.toml"
    study.write_text(STUDY.format(kind=kind, corpus=corpus), encoding="utf-8")
    return study


@pytest.mark.parametrize(
    ("kind", "content", "overrides", "sentence", "code"),
    [
        ("text", "", [], "holds no tokens (empty, or only white space)", 2),
        ("text", "", ["task.tokenizer=words"], "holds no", 2),
        ("text", " \n\t \n" * 99, ["task.tokenizer=words"], "holds no tokens (empty, or only white space)", 2),
        ("text", TEXT, ["task.val_fraction=0.999"], "the train fraction 0.001 of 460 leaves nothing", 2),
        ("text", TEXT, ["task.length=1000000"], "no document holds a sample of 1000000 + 1 tokens", 2),
        ("text", TEXT, ["task.data_fraction=0.0001"], "no document holds a sample of 128 + 1 tokens", 2),
        ("text", TEXT, ["task.length=8", "task.val_fraction=0.0025"], "nothing to evaluate: 1 token(s)", 2),
        ("text", TEXT, ["task.length=8", "task.val_fraction=0", "train.schedule=plateau",
                        "train.plateau_metric=val/loss"], "train.plateau_metric = val/loss needs a validation set", 2),
        ("text", TEXT, ["task.length=8", "task.val_fraction=0", "train.stop_after=2"],
         "train.stop_metric = val/loss needs a validation set", 2),
        ("text", TEXT, ["task.length=8", "model.dim=100000", "model.layers=1000"],
         "a single run does not fit into memory (predicted: ", 5),
        ("labels", TABLE, ["task.val_fraction=0.99"], "leaves none to train on", 2),
        ("labels", TABLE, ["task.val_fraction=0", "train.stop_after=2"],
         "train.stop_metric = val/loss needs a validation set", 2),
    ],
)  # fmt: skip
def test_plan_and_run_refuse_with_the_same_sentence(
    cli: CommandLine, tmp_path: Path, kind: str, content: str, overrides: list[str], sentence: str, code: int
) -> None:
    study = write_study(tmp_path, kind, content)
    overrides = ["model.kind=encoder", *overrides] if kind == "labels" else overrides
    planned = cli("plan", study, *overrides, code=code).stderr
    assert sentence in planned
    assert cli("run", study, *overrides, "--workers", 1, code=code).stderr == planned


@pytest.mark.parametrize(("kind", "content"), [("text", TEXT), ("labels", TABLE)])
def test_control_what_can_be_trained_is_planned(cli: CommandLine, tmp_path: Path, kind: str, content: str) -> None:
    model = ["model.kind=encoder"] if kind == "labels" else []
    assert "1" in cli("plan", write_study(tmp_path, kind, content), "task.length=8", *model).stdout


def test_a_run_that_fits_alone_is_not_refused_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pack that is too large is split; only a single run that is too large is refused."""
    runs = plan_named("quickstart", ["seeds=3"]).runs
    monkeypatch.setattr(machine, "total_memory_bytes", lambda: 100)
    Machine("cpu", 1).check_memory(Pack("p", runs, 300))
    with pytest.raises(machine.OutOfResources, match="there are 0 MiB"):
        Machine("cpu", 1).check_memory(Pack("p", runs[:1], 101))
    monkeypatch.setattr(machine, "total_memory_bytes", lambda: None)  # not known
    Machine("cpu", 1).check_memory(Pack("p", runs[:1], 10**15))


def test_the_memory_of_this_machine_is_known() -> None:
    assert 10**8 < (machine.total_memory_bytes() or 0) < 10**14
