"""The study commands in real processes: output, exit codes and stored files."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TypeAlias

import pytest

from seedbed.cli.study_commands import _show_first_figure
from tests.report.factories import fill

Done: TypeAlias = subprocess.CompletedProcess[str]
TINY = ["task.p=5", "model.dim=8", "model.heads=2", "model.layers=1", "train.steps=30", "train.eval_every=10",
        "train.eval_first=2", "train.save_every=10", "seeds=2"]  # fmt: skip


def seedbed(*arguments: object, home: Path | None = None, code: int = 0, **more: object) -> Done:
    options = [] if home is None else ["--home", str(home)]
    command = [sys.executable, "-m", "seedbed", *map(str, arguments), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]
    assert done.returncode == code, done.stdout + done.stderr
    return done  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A home in which a tiny study of two kinds and two seeds has been trained."""
    home = tmp_path_factory.mktemp("home")
    done = seedbed("run", "quickstart", *TINY, "model.kind=gpt,lstm", home=home)
    return home, done


def test_run_prints_the_table_on_stdout_and_the_rest_on_stderr(trained):
    home, done = trained
    assert "A_val" in done.stdout
    assert "Δt(A)" in done.stdout
    assert "4 finished" in done.stderr
    assert str(home) in done.stderr
    assert "\x1b" not in done.stdout + done.stderr  # no colour codes without a terminal


def test_plan_json_has_the_stable_fields(trained):
    home, _ = trained
    plan = json.loads(seedbed("plan", "quickstart", *TINY, "--json", home=home).stdout)
    assert len(plan["runs"]) == 2
    run = plan["runs"][0]
    assert {"id", "seed", "config", "settings", "pack", "parameters"} <= run.keys()
    assert run["parameters"].keys() == {"total", "non_embedding"}
    assert run["settings"]["task"]["p"] == 5
    assert run["pack"] in {pack["id"] for pack in plan["packs"]}
    assert run["status"] == "finished"


def test_ls_json_has_the_stable_fields(trained):
    home, _ = trained
    runs = json.loads(seedbed("ls", "quickstart", "--json", home=home).stdout)["runs"]
    assert len(runs) == 4
    for run in runs:
        assert run["study"] == "quickstart"
        assert run["status"] == "finished"
        assert run["step"] == 30
        assert run["last"].keys() >= {"train/loss", "val/loss", "train/accuracy", "val/accuracy", "norm"}
    assert {run["config"]["model.kind"] for run in runs} == {"gpt", "lstm"}


def test_show_json_has_the_stable_fields_and_repeats_byte_for_byte(trained, tmp_path):
    home, _ = trained
    text = seedbed("show", "quickstart", "--json", home=home).stdout
    configs = json.loads(text)["configs"]
    assert [one["config"]["model.kind"] for one in configs] == ["gpt", "lstm"]
    for one in configs:
        assert one["n"] == 2
        best = one["metrics"]["val/accuracy"]["max"]
        assert best["mean"] == pytest.approx(sum(best["values"].values()) / 2)
        assert best["values"].keys() == {"0", "1"}
        assert one["metrics"]["val/loss"].keys() >= {"min", "t_f"}
        assert one["delta_t"].keys() == {"loss", "accuracy"}
    seedbed("run", "quickstart", *TINY, "model.kind=gpt,lstm", home=tmp_path)
    assert seedbed("show", "quickstart", "--json", home=tmp_path).stdout == text


def test_filters_select_the_shown_runs(trained):
    home, _ = trained
    configs = json.loads(seedbed("show", "quickstart", "--only", "model.kind=lstm", "--json", home=home).stdout)[
        "configs"
    ]
    assert [one["config"]["model.kind"] for one in configs] == ["lstm"]
    seedbed("show", "quickstart", "--only", "model.dim=1024", home=home, code=4)


def test_t_max_evaluates_as_if_stopped_earlier(trained):
    home, _ = trained
    whole, half = (
        json.loads(seedbed("show", "quickstart", "--json", *more, home=home).stdout)["configs"][0]["metrics"]
        for more in ([], ["--t-max", "0.5"])
    )
    whole, half = whole["train/loss"], half["train/loss"]
    assert max(half["t_f"]["values"].values()) <= 15 < min(whole["t_f"]["values"].values())
    assert "expected a step" in seedbed("show", "quickstart", "--t-max", "1.5", home=home, code=2).stderr


@pytest.mark.parametrize(("table_format", "marker"), [("markdown", "| "), ("csv", ","), ("latex", r"\begin{tabular}")])
def test_tables_are_printed_in_other_formats(trained, table_format, marker):
    home, _ = trained
    assert marker in seedbed("show", "quickstart", "--format", table_format, home=home).stdout


def test_a_run_is_shown_by_a_prefix_of_its_id(trained):
    home, _ = trained
    run = json.loads(seedbed("ls", "quickstart", "--json", home=home).stdout)["runs"][0]["id"]
    shown = json.loads(seedbed("show", run[:8], "--json", home=home).stdout)
    assert [one["step"] for one in shown["checkpoints"]] == [10, 20, 30]
    assert shown["curves"]["val/loss"]["steps"] == [0, 1, 2, 10, 20, 30, 31]
    assert "train/loss" in seedbed("show", run[:8], home=home).stdout


def test_the_same_command_again_trains_nothing(trained):
    home, _ = trained
    before = {path: path.stat().st_mtime_ns for path in (home / "checkpoints").rglob("*.safetensors")}
    assert len(before) == 12
    done = seedbed("run", "quickstart", *TINY, "model.kind=gpt,lstm", home=home)
    assert "4 finished" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in (home / "checkpoints").rglob("*.safetensors")} == before


def two_studies(folder: Path) -> list[Path]:
    """Two study files that have one of three widths in common."""
    files = [folder / "one.toml", folder / "two.toml"]
    for file, dims in zip(files, ("8,16", "16,32"), strict=True):
        seedbed("init", file, "--from", "quickstart")
        file.write_text(f"{file.read_text(encoding='utf-8')}\n[grid]\nmodel.dim = [{dims}]\n", encoding="utf-8")
    return files


NO_WIDTH = [override for override in TINY if "dim" not in override]


def test_studies_trained_in_one_command_share_their_common_runs(tmp_path):
    done = seedbed("run", *two_studies(tmp_path), *NO_WIDTH, home=tmp_path / "lab")
    assert "6 finished" in done.stderr  # 3 widths × 2 seeds, not 4 configs
    assert done.stdout.count("Best values") == 2
    listed = json.loads(seedbed("ls", "--json", home=tmp_path / "lab").stdout)
    assert Counter(run["study"] for run in listed["runs"]) == {"one": 4, "two": 4}


def test_studies_planned_in_one_command_have_one_estimate_that_counts_shared_runs_once(tmp_path):
    files, more = two_studies(tmp_path), [*NO_WIDTH, "--device", "cpu", "--workers", "1", "--json"]
    plans = json.loads(seedbed("plan", *files, *more, home=tmp_path / "lab").stdout)
    assert [(plan["study"], len(plan["runs"])) for plan in plans] == [("one", 4), ("two", 4)]
    assert plans[0]["seconds"] == plans[1]["seconds"]
    packs = {pack["id"]: pack for plan in plans for pack in plan["packs"]}
    assert sum(len(pack["runs"]) for pack in packs.values()) == 6
    for plan in plans:
        held = {run for pack in plan["packs"] for run in pack["runs"]}
        assert {run["id"] for run in plan["runs"]} <= held
    single = json.loads(seedbed("plan", files[0], *more, home=tmp_path / "lab").stdout)
    assert single["study"] == "one"
    both = sum(pack["seconds"] for pack in packs.values()) - sum(pack["seconds"] for pack in single["packs"])
    assert plans[0]["seconds"] - single["seconds"] == pytest.approx(both)


def test_a_star_plans_every_matching_study_once_with_one_estimate(tmp_path):
    shown = seedbed("plan", "arithmetic/sanity", "arithmetic/*", "--device", "cuda", home=tmp_path).stdout
    titles = [line.split(":")[0] for line in shown.splitlines() if "configs," in line]
    assert titles[0] == "arithmetic/sanity"
    assert sorted(titles) == [f"arithmetic/{name}" for name in (
        "compute", "data-size", "mixed-orders", "model-size", "positions", "sanity", "weight-decay")]  # fmt: skip
    assert shown.count("`seedbed run` would take") == shown.count("packs on cuda") == 1


def test_a_star_that_matches_nothing_is_reported(tmp_path):
    assert "matches no shipped study" in seedbed("run", "nothing/*", home=tmp_path, code=2).stderr


def test_print_config_can_be_fed_back(tmp_path):
    config = seedbed("run", "arithmetic/mixed-orders", "--print-config", "train.lr=1e-3,3e-4").stdout
    (tmp_path / "again.toml").write_text(config)
    ids = [
        [run["id"] for run in json.loads(seedbed("plan", *study, "--json", home=tmp_path).stdout)["runs"]]
        for study in (["arithmetic/mixed-orders", "train.lr=1e-3,3e-4"], [tmp_path / "again.toml"])
    ]
    assert ids[0] == ids[1]
    assert len(ids[0]) == 72


def test_init_writes_a_study_that_plans_and_overwrites_nothing(tmp_path):
    seedbed("init", tmp_path / "mine.toml")
    seedbed("plan", tmp_path / "mine.toml", home=tmp_path)
    before = (tmp_path / "mine.toml").read_bytes()
    assert "already exists" in seedbed("init", tmp_path / "mine.toml", code=2).stderr
    assert (tmp_path / "mine.toml").read_bytes() == before
    seedbed("init", tmp_path / "copy.toml", "--from", "arithmetic/sanity")
    seedbed("plan", tmp_path / "copy.toml", home=tmp_path)


def test_all_problems_of_a_study_are_reported_at_once_and_nothing_is_written(tmp_path):
    study = tmp_path / "bad.toml"
    study.write_text('seeds = 0\n[base.model]\nhead = 4\ndim = "wide"\n[base.train]\nlr = -1\n[grid]\ntask.p = []\n')
    done = seedbed("run", study, home=tmp_path / "home", code=2)
    for line, word in ((1, "seeds"), (3, "did you mean"), (4, "model.dim"), (6, "train.lr"), (8, "task.p")):
        assert re.search(rf"bad\.toml:{line}: .*{word}", done.stderr), (line, done.stderr)
    assert not (tmp_path / "home").exists()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "quickstar"], 2, "quickstart"),
        (["show", "nothing"], 4, "store"),
        (["ls"], 4, "store"),
        (["run", "quickstart", "model.heads=5"], 2, "does not divide"),
        (["run", "quickstart", "task.p=1"], 2, "task.p"),
        (["run", "quickstart", "task.train_fraction=0.0001"], 2, "leaves no training sample"),
        (["plan", "quickstart", "layers"], 2, "key=value"),
    ],
)
def test_bad_arguments_get_a_message_and_an_exit_code(tmp_path, arguments, code, message):
    done = seedbed(*arguments, home=tmp_path / "home", code=code)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "home").exists()


def test_rm_asks_first_and_keeps_runs_of_other_studies(tmp_path):
    home = tmp_path / "home"
    seedbed("run", "quickstart", *TINY, home=home)
    study = tmp_path / "other.toml"
    text = seedbed("plan", "quickstart", *TINY[:-1], "seeds=[0]", "--print-config").stdout
    study.write_text(text.replace("quickstart", "other"))
    seedbed("run", study, home=home)
    assert "--yes" in seedbed("rm", "quickstart", home=home, code=2, stdin=subprocess.DEVNULL).stderr
    assert "kept 1 that another study shares" in seedbed("rm", "quickstart", "--yes", home=home).stdout
    left = json.loads(seedbed("ls", "--json", home=home).stdout)["runs"]
    assert [(run["study"], run["seed"]) for run in left] == [("other", 0)]
    assert len(list((home / "checkpoints").rglob("*.safetensors"))) == 3


def test_a_diverging_run_is_reported_and_its_neighbours_finish(tmp_path):
    done = seedbed("run", "quickstart", *TINY[:-1], "seeds=2", "train.lr=0.001,1e20", "--workers", 1, home=tmp_path)
    assert done.stderr.count("diverged at step") == 2
    assert "the rest of its pack continues" in done.stderr
    runs = json.loads(seedbed("ls", "quickstart", "--json", home=tmp_path).stdout)["runs"]
    assert sorted(run["status"] for run in runs) == ["diverged", "diverged", "finished", "finished"]
    configs = json.loads(seedbed("show", "quickstart", "--json", home=tmp_path).stdout)["configs"]
    assert [one["n"] for one in configs] == [2, 0]
    only = ("--only", "train.lr=1e20", "--workers", 1)
    done = seedbed("run", "quickstart", *TINY[:-1], "seeds=2", "train.lr=0.001,1e20", *only, home=tmp_path, code=7)
    assert "every run diverged; see where with: seedbed ls quickstart" in done.stderr


LONG = ["task.p=7", "model.dim=16", "model.heads=2", "train.steps=1001", "train.save_every=100", "seeds=3",
        "model.kind=gpt,lstm", "train.batch_size=10", "model.dropout=0.1"]  # fmt: skip


def start(home: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "seedbed", "run", "quickstart", *LONG, "--home", str(home), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for_saves(home: Path, n: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 90
    while len(list(home.glob("checkpoints/*/*.safetensors"))) < n:
        assert time.monotonic() < deadline, "no checkpoint appeared"
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    home = tmp_path_factory.mktemp("whole")
    process = start(home)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    return results(home)


def results(home: Path) -> dict[str, object]:
    """What must be equal: the printed summary, every metric, and the bytes of every checkpoint."""
    runs = json.loads(seedbed("ls", "quickstart", "--json", home=home).stdout)["runs"]
    shown = [seedbed("show", run["id"], "--json", home=home).stdout for run in runs]
    files = {str(p.relative_to(home)): p.read_bytes() for p in sorted(home.glob("checkpoints/*/*.safetensors"))}
    return {"show": seedbed("show", "quickstart", "--json", home=home).stdout, "runs": shown, "files": files}


KILL, TERM, INT = signal.SIGKILL, signal.SIGTERM, signal.SIGINT


@pytest.mark.parametrize("kills", [pytest.param((KILL, KILL), marks=pytest.mark.slow), (TERM, KILL), (INT,)])
def test_a_killed_study_resumes_and_ends_with_the_same_bytes(tmp_path, uninterrupted, kills):
    for i, number in enumerate(kills):
        process = start(tmp_path)
        wait_for_saves(tmp_path, 3 * (i + 1), process)
        if number == signal.SIGKILL:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        _, errors = process.communicate()
        if number != signal.SIGKILL:
            assert process.returncode == 128 + number
            assert "Resume with: seedbed run quickstart" in errors
    process = start(tmp_path)
    process.communicate()
    assert process.returncode == 0
    assert results(tmp_path) == uninterrupted


def test_two_processes_never_train_the_same_run(tmp_path):
    first = start(tmp_path)
    wait_for_saves(tmp_path, 1, first)
    second = start(tmp_path)
    _, errors = second.communicate()
    assert second.returncode == 75
    [message] = [line for line in errors.splitlines() if str(first.pid) in line]  # one for all packs
    assert message.startswith("seedbed: quickstart is being trained by process ")
    assert "; wait for it or stop it, then run: seedbed run quickstart" in message
    first.communicate()
    assert first.returncode == 0


def test_a_demo_ends_with_a_picture_and_the_next_command(tmp_path, monkeypatch, capsys):
    fill(tmp_path)
    _show_first_figure(tmp_path, "toy")
    text = capsys.readouterr().out
    assert "⠀" in text  # drawn in Braille
    assert "training step" in text
    assert max(map(len, text.splitlines())) <= 80
    _show_first_figure(tmp_path, "nothing")  # no picture is no error
    assert capsys.readouterr().out == ""


def test_the_next_command_is_told(trained):
    assert trained[1].stderr.strip().endswith("next: seedbed answer quickstart")
