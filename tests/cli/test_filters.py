"""`--only` on every command, parts of a study, files as names, runs removed by id, notes and tags."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from .invoke import CommandLine
from .test_studies import TINY, seedbed

STEPS = [override for override in TINY if not override.startswith("train.steps")]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two kinds, two seeds and two numbers of steps, of which one kind was trained in part."""
    home = tmp_path_factory.mktemp("filled")
    seedbed("run", "quickstart", *STEPS, "train.steps=20", "model.kind=gpt,lstm", "-q", home=home)
    done = seedbed(
        "run",
        "quickstart",
        *STEPS,
        "train.steps=30",
        "model.kind=gpt,lstm",
        "--only",
        "model.kind=gpt",
        "-q",
        home=home,
    )
    (home / "notice.txt").write_text(done.stderr, encoding="utf-8")
    return home


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], filled: Path) -> CommandLine:
    return CommandLine(monkeypatch, capsys, filled)


@pytest.fixture
def own_cli(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], filled: Path, tmp_path: Path
) -> CommandLine:
    """On a copy of the home, which a test may change."""
    return CommandLine(monkeypatch, capsys, Path(shutil.copytree(filled, tmp_path / "own")))


def listed(cli: CommandLine, *arguments: str) -> list[tuple[str, int, int]]:
    runs = json.loads(cli("ls", "quickstart", "--json", *arguments).stdout)["runs"]
    return [(run["config"]["model.kind"], run["config"]["train.steps"], run["seed"]) for run in runs]


def test_run_trains_only_the_selected_part(cli: CommandLine) -> None:
    assert listed(cli) == [
        *((kind, 20, seed) for kind in ("gpt", "lstm") for seed in (0, 1)), ("gpt", 30, 0), ("gpt", 30, 1)
    ]  # fmt: skip


def test_run_says_what_it_adds_to_a_stored_study(filled: Path) -> None:
    [notice] = [line for line in (filled / "notice.txt").read_text(encoding="utf-8").splitlines() if "adds" in line]
    assert notice == (
        "seedbed: quickstart has 4 other runs with train.steps=20, and this adds 2 with train.steps=30; "
        "show, compare and plot use all of them; to select these: --only train.steps=30"
    )


def test_more_seeds_of_a_stored_study_are_no_new_configs(cli: CommandLine) -> None:
    more = [*STEPS[:-1], "train.steps=20", "seeds=3", "model.kind=gpt,lstm"]
    assert "adds" not in cli("plan", "quickstart", *more, "--only", "model.kind=gpt").stderr


def test_plan_shows_only_the_selected_part(cli: CommandLine) -> None:
    more = [*STEPS, "train.steps=30", "model.kind=gpt,lstm"]
    plan = json.loads(cli("plan", "quickstart", *more, "--only", "model.kind=lstm seed=1", "--json").stdout)
    assert [(run["settings"]["model"]["kind"], run["seed"], run["status"]) for run in plan["runs"]] == [
        ("lstm", 1, "planned")
    ]
    unfinished = json.loads(cli("plan", "quickstart", *more, "--only", "status=planned", "--json").stdout)
    assert {run["settings"]["model"]["kind"] for run in unfinished["runs"]} == {"lstm"}
    assert "model.kind has gpt and lstm here" in cli(
        "plan", "quickstart", *more, "--only", "model.kind=encoder", code=4
    ).stderr  # fmt: skip


def test_a_finished_plan_has_nothing_to_do(cli: CommandLine) -> None:
    done = cli("plan", "quickstart", *STEPS, "train.steps=20", "model.kind=gpt,lstm")
    assert "nothing to do: all 4 runs are finished" in done.stdout
    assert "pack" not in done.stdout
    part = cli("plan", "quickstart", *STEPS, "train.steps=30", "model.kind=gpt,lstm")
    assert "would take about" in part.stdout  # the GPTs are finished, the LSTMs are not
    assert "nothing to do" not in part.stdout


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (["train.steps=30"], [("gpt", 30, 0), ("gpt", 30, 1)]),
        (["steps=20 model.kind=lstm"], [("lstm", 20, 0), ("lstm", 20, 1)]),
        (["steps=20", "seed=1"], [("gpt", 20, 1), ("lstm", 20, 1)]),
        (["steps<25 model.kind!=lstm"], [("gpt", 20, 0), ("gpt", 20, 1)]),
    ],
)
def test_ls_takes_filters(cli: CommandLine, only: list[str], expected: list[tuple[str, int, int]]) -> None:
    assert listed(cli, *(word for text in only for word in ("--only", text))) == expected


def test_every_command_that_selects_runs_takes_the_same_filter(cli: CommandLine, tmp_path: Path) -> None:
    only = ["--only", "train.steps=20 seed=0"]
    shown = json.loads(cli("show", "quickstart", *only, "--json").stdout)["configs"]
    assert [one["config"]["model.kind"] for one in shown] == ["gpt", "lstm"]
    compared = json.loads(cli("compare", "quickstart", "model.kind", *only, "--json").stdout)
    assert [len(ids) for ids in compared["groups"].values()] == [1, 1]
    assert json.loads(cli("answer", "quickstart", *only, "--json").stdout)["study"] == "quickstart"
    cli("plot", "quickstart", *only, "--out", tmp_path / "loss.json")
    assert "2 runs: 2 finished." in Path(
        cli("report", "quickstart", *only, "--out", tmp_path / "report").stdout.strip()
    ).read_text(encoding="utf-8")
    assert "this removes 2 runs of quickstart" in cli("rm", "quickstart", *only, code=2).stderr


def test_sample_takes_the_runs_of_a_study_that_match(cli: CommandLine) -> None:
    done = cli("sample", "quickstart", "--only", "seed=1 train.steps=20", "--prompt", "1 + 2 =", "--json")
    assert len(json.loads(done.stdout)) == 2
    assert "is not a stored study" in cli("sample", "abc", "--only", "seed=1", code=2).stderr


@pytest.mark.parametrize("verb", ["ls", "show", "answer", "plot", "report", "rm", "heads", "compare", "sample"])
def test_a_filter_without_a_match_lists_the_values(cli: CommandLine, verb: str) -> None:
    words = ["model.kind"] if verb == "compare" else []
    done = cli(verb, "quickstart", *words, "--only", "train.steps=7", code=4)
    assert done.stderr == ("seedbed: no run of quickstart has train.steps=7; train.steps has 20 and 30 here [SB020]\n")


@pytest.mark.parametrize("verb", ["ls", "show", "answer", "plot", "report", "rm", "heads", "sample"])
def test_bare_settings_are_refused_with_the_filter_to_use(cli: CommandLine, verb: str) -> None:
    done = cli(verb, "quickstart", "train.steps=20", "seed=0", code=2)
    assert done.stderr == (
        f"seedbed: {verb} does not change settings; to select runs, use: "
        f"seedbed {verb} quickstart --only 'train.steps=20 seed=0' [SB010]\n"
    )


def test_compare_refuses_a_filter_among_its_groups(cli: CommandLine) -> None:
    done = cli("compare", "quickstart", "train.steps=20", "model.kind", code=2)
    assert "use: seedbed compare quickstart model.kind --only train.steps=20" in done.stderr
    assert "--only selects" in cli("compare", "aa", "bb", "--only", "seed=0", code=2).stderr


def test_all_studies_can_be_filtered(cli: CommandLine) -> None:
    assert "30 of 30" in cli("ls", "--only", "train.steps=30").stdout
    assert "status has only finished here" in cli("ls", "--only", "status=failed", code=4).stderr


def test_a_file_names_its_stored_study(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text('name = "quickstart"\n[base]\nnonsense = 3\n', encoding="utf-8")  # only its name matters here
    assert cli("show", file).stdout == cli("show", "quickstart").stdout
    assert cli("ls", file).stdout == cli("ls", "quickstart").stdout
    missing = tmp_path / "new.toml"
    missing.write_text("seeds = 2\n", encoding="utf-8")
    assert "there is no study 'new'" in cli("show", missing, code=4).stderr
    assert "nosuch.toml: no such file" in cli("answer", "nosuch.toml", code=2).stderr


def test_single_runs_are_removed_by_id(own_cli: CommandLine) -> None:
    cli = own_cli
    first, second, *others = [run["id"] for run in json.loads(cli("ls", "--json").stdout)["runs"]]
    assert "this removes 2 runs of quickstart" in cli("rm", first[:8], second, code=2).stderr
    assert cli("rm", first[:8], second, "--yes").stdout == "removed 2 runs\n"
    assert cli("rm", "quickstart", "--only", "seed=1 train.steps=30", "--yes").stdout == "removed 1 run\n"
    assert [run["id"] for run in json.loads(cli("ls", "--json").stdout)["runs"]] == others[:-1]
    assert "no study and no run 'ffff'" in cli("rm", "ffff", "--yes", code=4).stderr


def test_notes_and_tags_are_shown_and_filtered_by(own_cli: CommandLine) -> None:
    cli = own_cli
    runs = json.loads(cli("ls", "--json").stdout)["runs"]
    assert "late" in cli("note", "quickstart", "seed 1 is late").stderr
    cli("tag", "quickstart", "draft")
    cli("tag", runs[1]["id"][:8], "grokked", "odd")
    assert "tags of" in cli("tag", runs[1]["id"], "--remove", "odd").stderr
    assert "seed 1 is late" in cli("ls").stdout
    assert "note: seed 1 is late" in cli("show", "quickstart").stdout
    page = Path(cli("report", "quickstart").stdout.strip()).read_text(encoding="utf-8")
    assert "note: seed 1 is late" in page
    assert f"run {runs[1]['id'][:8]}: tags: grokked" in page
    assert "tags: grokked" in cli("show", runs[1]["id"]).stdout
    found = json.loads(cli("ls", "quickstart", "--only", "tag=grokked", "--json").stdout)["runs"]
    assert [(run["id"], run["tags"]) for run in found] == [(runs[1]["id"], ["grokked"])]
    assert "tag has only grokked here" in cli("ls", "quickstart", "--only", "tag=odd", code=4).stderr
    assert "no tag 'odd' to remove" in cli("tag", "quickstart", "new", "--remove", "odd", code=2).stderr
    assert "new" not in cli("ls").stdout  # nothing was added beside the failed removal
    assert "one word" in cli("tag", "quickstart", "two words", "--remove", "draft", code=2).stderr
    assert "draft" in cli("ls").stdout


def test_a_t_max_beyond_the_last_step_is_warned_of(cli: CommandLine) -> None:
    assert "--t-max 500: the longest run ends at step 30" in cli("show", "quickstart", "--t-max", "500").stderr
    assert "warning" not in cli("show", "quickstart", "--t-max", "20").stderr


def test_a_home_that_is_a_file_is_named(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "home"
    file.write_text("", encoding="utf-8")
    for verb in (["ls"], ["run", "quickstart"]):
        assert "is a file, not a folder" in cli(*verb, "--home", file, code=2).stderr


def test_show_as_csv_has_numbers_in_columns_of_their_own(cli: CommandLine) -> None:
    shown = json.loads(cli("show", "quickstart", "--json").stdout)["configs"]
    rows = list(csv.DictReader(cli("show", "quickstart", "--format", "csv").stdout.splitlines()))
    best = {(row["model.kind"], int(row["train.steps"])): row for row in rows if row["statistic"] == "L_val"}
    assert len(best) == len(shown) == 3
    for one in shown:
        row, expected = best[one["config"]["model.kind"], one["config"]["train.steps"]], one["metrics"]["val/loss"]
        assert float(row["mean"]) == pytest.approx(expected["min"]["mean"])
        assert float(row["std"]) == pytest.approx(expected["min"]["std"])
        assert int(row["n"]) == 2
