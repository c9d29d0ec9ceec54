"""The recipes of docs/extending.md: their code is loaded as a plugin, and their commands are run, as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from seedbed import plugins, settings, specs
from seedbed.charts.chart_kinds import CHART_KINDS
from seedbed.cli import app
from seedbed.data.catalogue import CATALOGUE
from seedbed.data.corpora import open_corpus
from seedbed.engines import ENGINES
from seedbed.engines.base import EngineResources
from seedbed.errors import MissingData
from seedbed.models.families.transformer_settings import POSITION_KINDS
from seedbed.models.positions import POSITION_ENCODINGS
from seedbed.records import Curve
from seedbed.settings import Settings
from seedbed.stats.run_statistics import STATISTICS
from seedbed.store import STORES, open_store
from tests.charts.factories import make_run
from tests.contracts.family import FamilyContract
from tests.contracts.optimizer import OptimizerContract
from tests.contracts.test_engine import EngineContract
from tests.contracts.test_store import StoreContract
from tests.store.toy import claim, make_plan, train

PAGE = (Path(__file__).parent.parent / "docs" / "extending.md").read_text(encoding="utf-8")
REGISTRIES: tuple[dict[Any, Any], ...] = (
    settings.TASK_SETTINGS, settings.MODEL_SETTINGS, settings.OPTIMIZERS, settings.KIND_ORIGINS, specs.FIGURE_KINDS,
    specs.STATISTIC_NAMES, CHART_KINDS, STATISTICS, CATALOGUE, STORES, ENGINES,
    POSITION_KINDS, POSITION_ENCODINGS, plugins.loaded_plugins,
)  # fmt: skip

BUILT_IN_POSITIONS = tuple(POSITION_KINDS)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory of a recipe; what it registers is forgotten after the test."""
    before = [dict(table) for table in REGISTRIES]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEEDBED_DEVICE", "cpu")
    monkeypatch.setenv("SEEDBED_HOME", "lab")
    for variable in (plugins.ENVIRONMENT_VARIABLE, "SEEDBED_DATA", "SEEDBED_ENGINE"):  # restored after the test
        monkeypatch.setenv(variable, "")
    [study] = [code for code in blocks(PAGE.split("\n## ")[0], "toml") if "question" in code]
    Path("tiny.toml").write_text(study, encoding="utf-8")
    yield tmp_path
    for table, entries in zip(REGISTRIES, before, strict=True):
        table.clear()
        table.update(entries)
    settings._forget_cached_settings()


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of one language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [code for own, code in found if own == language]


def load(heading: str) -> Any:
    """Writes the recipe's code to the file that its first line names, loads it as a plugin and returns the module."""
    [code] = blocks(section(heading), "python")
    name = code.splitlines()[0].removeprefix("# ")
    Path(name).write_text(code, encoding="utf-8")
    plugins.load_plugin_file(name)
    return __import__(f"seedbed_plugin_{Path(name).stem}")


def run_commands(heading: str) -> str:
    """Runs the recipe's commands and returns what they print; those of seedbed run in this process."""
    output = ""
    for line in blocks(section(heading), "")[0].splitlines():
        words = shlex.split(line)
        if words[0] == "export":
            os.environ.update([words[1].split("=")])
        elif words[0] == "seedbed":
            done = CliRunner().invoke(app, words[1:] + (["--workers", "1"] if "run" in words else []))
            assert done.exit_code == 0, f"{line}\n{done.output}{done.exception!r}"
            output += done.output
        else:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            command = ["bash", "-c", line]
            done_alone = subprocess.run(command, env=os.environ | {"PATH": path}, capture_output=True, text=True)
            assert done_alone.returncode == 0, done_alone.stderr
            output += done_alone.stdout
    return output


def curves(study: str = "tiny", metric: str = "train/loss") -> list[tuple[Settings, Curve]]:
    """Settings and curve of every finished run of a study."""
    with open_store("lab", read_only=True) as store:
        runs = store.runs(study)
        assert {run.status for run in runs} == {"finished"}
        found = store.curves([run.id for run in runs])
        return [(run.settings, found[run.id][metric]) for run in runs]


def test_optimizer_equals_a_hand_computation_and_lowers_the_loss() -> None:
    load("Optimizer")

    def by_hand(train: Any, weights: dict[str, nn.Parameter], params: object) -> Any:
        def update() -> None:
            for weight in weights.values():
                assert weight.grad is not None
                weight.data = weight.data - train.lr * (weight.grad.sign() + train.weight_decay * weight.data)

        return update

    contract = OptimizerContract()
    contract.kind, contract.reference = "signsgd", by_hand  # type: ignore[misc, method-assign]
    contract.test_every_run_follows_the_reference_with_its_own_settings()
    contract.test_stacked_runs_match_runs_alone()
    assert "signsgd" in run_commands("Optimizer")
    found = [curve for run, curve in curves() if run.train.optimizer == "signsgd"]
    assert len(found) == 2
    assert all(curve.values[-1] < curve.values[0] for curve in found)


def test_a_run_of_a_plugin_stores_its_name_version_and_digest_and_is_listed_without_it() -> None:
    load("Optimizer")
    run_commands("Optimizer")
    with open_store("lab", read_only=True) as store:
        [first, _] = [run for run in store.runs("tiny") if run.settings.train.optimizer == "signsgd"]
    origin = settings.KIND_ORIGINS["optimizer", "signsgd"]
    assert (origin.name, origin.version) == ("signsgd", "1.0")
    assert first.settings.identity()["plugins"] == {"signsgd": ["1.0", origin.digest]}
    environment = os.environ | {plugins.ENVIRONMENT_VARIABLE: ""}
    for verb, exit_code, n_sentences in (("ls", 0, 2), ("show", 4, 1)):  # `ls` lists both runs; `show` averages none
        command = [sys.executable, "-m", "seedbed", verb, "tiny"]
        without = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert without.returncode == exit_code
        sentence = f"it needs plugin signsgd 1.0 ({origin.digest}); load it with --plugin"
        assert without.stderr.count(sentence) == n_sentences


def test_statistic_is_compared_and_drawn() -> None:
    area = load("Statistic").area
    assert area(Curve(np.array([0, 1, 4]), np.array([2.0, 4.0, 0.0]))) == (3.0 + 6.0) / 4
    output = run_commands("Statistic")
    assert "area of training loss" in output, output
    fast, slow = (np.mean([area(curve) for run, curve in curves() if run.train.lr == lr]) for lr in (0.01, 0.0001))
    assert f"{slow - fast:#.3g}" in output, output
    assert "rea of" in Path("area.svg").read_text(encoding="utf-8")


def test_chart_is_drawn_with_one_point_per_run() -> None:
    module = load("Chart")
    run_commands("Chart")
    svg = Path("scatter.svg").read_text(encoding="utf-8")
    assert svg.startswith("<svg")
    assert "best val/loss against train/loss" in svg
    runs = [make_run({}, seed, {"train/loss": [3.0, 1.0 + seed], "val/loss": [5.0, 6.0]}) for seed in range(3)]
    figure = specs.FigureSpec(kind="scatter", metrics=("train/loss", "val/loss"))
    assert module.gather_scatter(figure, runs).points == ((1.0, 5.0), (2.0, 5.0), (3.0, 5.0))


def test_own_module_is_stacked_and_learns() -> None:
    load("Your own nn.Module as a family")
    family = settings.MODEL_SETTINGS["convolution"](dim=5)
    assert family.stackable
    output = run_commands("Your own nn.Module as a family")
    assert "2 finished" in output
    for run, curve in curves():
        assert run.identity()["model.kind"] == "convolution"
        assert curve.values[-1] < curve.values[0]


def test_stacked_family_keeps_the_contract_equals_torch_and_learns() -> None:
    load("A stacked family")
    contract = FamilyContract()
    contract.settings = {"task.kind": "text", "model.kind": "elman", "model.dim": 6, "model.layers": 2}  # type: ignore[misc]
    contract.test_shapes_and_counts_are_those_of_the_module()
    contract.test_stacked_runs_match_runs_alone()
    contract.test_decoded_logits_are_those_of_the_forward_pass(3, 2)
    model, _ = contract.make_pack(Settings.from_flat(contract.settings), (3,))
    rnn = nn.RNN(6, 6, num_layers=2, batch_first=True, dtype=torch.float64)
    weights = {name: parameter[0] for name, parameter in model.named_parameters()}
    for i in range(2):
        getattr(rnn, f"weight_ih_l{i}").data = weights[f"cells.{i}.input.weight"]
        getattr(rnn, f"bias_ih_l{i}").data = weights[f"cells.{i}.input.bias"]
        getattr(rnn, f"weight_hh_l{i}").data = weights[f"cells.{i}.state.weight"]
        getattr(rnn, f"bias_hh_l{i}").data.zero_()
    tokens = contract.make_tokens(1)
    expected = nn.functional.linear(
        rnn(weights["embed.weight"][tokens[0]])[0], weights["output.weight"], weights["output.bias"]
    )
    torch.testing.assert_close(model(tokens)[0], expected, rtol=1e-10, atol=1e-12)
    run_commands("A stacked family")
    found = [curve for run, curve in curves() if run.model.kind == "elman"]
    assert len(found) == 2
    assert all(curve.values[-1] < curve.values[0] for curve in found)


def test_task_is_counted_right_and_learnt() -> None:
    load("Task")
    task = settings.TASK_SETTINGS["maximum"](n=5)
    table = task.build_table()
    texts = [task.load_tokenizer().decode(row) for row in table.tokens]
    assert texts[7] == "1 MAX 2 = 2"
    assert texts == [f"{a} MAX {b} = {max(a, b)}" for a in range(5) for b in range(5)]
    train, val = task.split_rows(3)
    assert (len(train), len(val)) == (12, 13)
    assert sorted([*train, *val]) == list(range(25))
    run_commands("Task")
    found = curves(metric="train/accuracy")
    assert [run.task.n for run, _ in found] == [5, 5]
    assert all(curve.values[-1] == 1.0 for _, curve in found)


def test_position_encoding_keeps_the_contract_of_its_family() -> None:
    module = load("Position encoding")
    contract = FamilyContract()
    shape = {"task.kind": "text", "model.dim": 12, "model.heads": 4, "model.layers": 2}
    contract.settings = shape | {"model.positions": "logarithmic"}  # type: ignore[misc]
    contract.test_stacked_runs_match_runs_alone()
    contract.test_later_tokens_change_no_earlier_logit_exactly_if_causal()
    contract.test_selected_positions_have_the_same_logits()
    contract.test_a_prefilled_cache_continues_the_sequence()
    contract.test_decoded_logits_are_those_of_the_forward_pass(3, 2)
    bias = module.LogarithmicBias(Settings.from_flat(shape).model, 7).bias(torch.zeros(1, 1, 3, 12), None, 0)
    assert float(bias[2, 0, 1]) == pytest.approx(-np.log(3) * 2**-4)
    run_commands("Position encoding")
    kinds = settings.MODEL_SETTINGS["gpt"].model_json_schema()["properties"]["positions"]["enum"]
    assert kinds == [*BUILT_IN_POSITIONS, "logarithmic"]  # what the page offers
    [run, _] = [run for run, _ in curves() if run.model.positions == "logarithmic"]
    assert run.identity()["plugins"].keys() == {"logarithmic"}


def test_corpus_is_found_by_name_and_verified() -> None:
    load("Corpus")
    output = run_commands("Corpus")
    assert "a counting rhyme, many times over" in output
    assert [run.task.corpus for run, _ in curves()] == ["magpies"] * 2
    Path("data/magpies.txt").write_text("three for a girl\n" * 60, encoding="utf-8")
    with pytest.raises(MissingData, match="is not magpies as pinned"):
        open_corpus("magpies")


def test_store_keeps_the_contract_and_writes_its_journal(folder: Path) -> None:
    load("Store")
    for test in (
        "test_registered_runs_are_listed_in_study_order_with_their_settings",
        "test_unended_runs_are_claimed_in_the_pack_they_started_in",
    ):
        with open_store(f"journal:{folder / test}") as store:
            getattr(StoreContract(), test)(store)
    address = f"journal:{folder / 'trained'}"
    with open_store(address) as store:
        store.register(make_plan(3))
        [pack] = claim(store, make_plan(3).runs)
        train(store, pack)
    assert (folder / "trained" / "journal.txt").read_text(encoding="utf-8") == f"finished {pack}\n"
    journal = re.findall(r"^finished \w+$", run_commands("Store"), re.MULTILINE)
    assert journal  # a line for each pack
    assert len(journal) == len(set(journal))
    assert len(curves()) == 2


def test_engine_keeps_the_contract_and_trains(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load("Engine").SerialEngine(EngineResources())
    contract = EngineContract()
    contract.test_the_events_of_every_job_arrive_in_order_and_once(engine)
    contract.test_a_job_that_raises_ends_with_a_failure_and_the_others_continue(engine)
    contract.test_a_job_that_ran_out_of_memory_can_be_requeued_in_parts(engine)
    contract.test_an_exclusive_job_runs_after_all_others_and_by_itself(engine, folder)
    contract.test_stopping_reaches_the_running_jobs_and_starts_no_others(engine)
    contract.test_an_error_of_the_caller_is_raised_to_the_caller(engine)
    prepared, events = [], type(engine)._events
    monkeypatch.setattr(type(engine), "_events", staticmethod(lambda *job: prepared.append(job) or events(*job)))
    run_commands("Engine")
    assert len(prepared) == 1  # two seeds are one pack
    assert len(curves()) == 2


def test_an_installed_package_is_loaded_by_its_entry_point(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [code] = blocks(section("Optimizer"), "python")
    [declared] = [code for code in blocks(PAGE.split("\n## ")[0], "toml") if "entry-points" in code]
    entry_points = tomllib.loads(declared)["project"]["entry-points"]
    [(group, [(name, module)])] = [(group, list(entries.items())) for group, entries in entry_points.items()]
    package = folder / "installed" / module.partition(".")[0]
    information = folder / "installed" / "mine-3.1.dist-info"
    for directory in (package, information):
        directory.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / f"{module.partition('.')[2]}.py").write_text(code, encoding="utf-8")
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 3.1\n", encoding="utf-8")
    (information / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(folder / "installed")
    plugins.load_plugins()
    assert settings.OPTIMIZERS["signsgd"].implementation == f"{module}:SignSGD"
    origin = settings.KIND_ORIGINS["optimizer", "signsgd"]
    assert (origin.name, origin.version) == (name, "3.1")


def test_every_recipe_has_code_commands_and_a_test() -> None:
    of_the_package = {"Metric", "Verb", "View of the page", "Changing a setting"}  # no plugin can do these
    recipes = [one for one in re.findall(r"^## (.+)$", PAGE, re.MULTILINE) if one not in of_the_package]
    assert len(recipes) == 10
    source = Path(__file__).read_text(encoding="utf-8")
    for recipe in recipes:
        assert [len(blocks(section(recipe), language)) for language in ("python", "")] == [1, 1], recipe
        assert f'load("{recipe}")' in source
        assert f'run_commands("{recipe}")' in source


def test_every_file_that_the_page_names_exists() -> None:
    root = Path(__file__).parent.parent
    named = set(re.findall(r"`((?:src|tests|docs)/[^`]+)`", PAGE))
    assert len(named) > 15
    assert [path for path in sorted(named) if not (root / path).exists()] == []
