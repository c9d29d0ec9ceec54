"""Python first: studies defined, planned, trained and read without the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

import numpy as np
import pytest

import seedbed as sb
from seedbed.errors import MissingData, StudyError, UsageError
from seedbed.records import EvaluationEvent
from seedbed.settings import Settings
from seedbed.store import open_store
from seedbed.study.plan import compute_run_id, plan_named
from tests.store.toy import claim

SMALL = {"task": {"p": 5}, "train": {"steps": 30, "batch_size": 8}, "model": {"dim": 8, "heads": 2}}
SETTINGS = {"name": "depth", "base": SMALL, "grid": {"model.layers": [1, 2]}, "seeds": 2}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> sb.Study:
    """Two depths × two seeds, trained in this process."""
    return sb.Study(**SETTINGS, home=tmp_path_factory.mktemp("lab")).run(progress=False, workers=1)


# ---- defining ----


def test_a_study_written_in_python_has_the_runs_of_the_same_file(tmp_path: Path) -> None:
    file = tmp_path / "depth.toml"
    file.write_text(
        'seeds = 2\nexclude = "layers == 3"\nbase.task.p = 5\nbase.train = { steps = 30, batch_size = 8 }\n'
        "[grid]\nmodel.layers = [1, 2, 3]\n[[zip]]\nmodel.dim = [8, 16]\nmodel.heads = [2, 4]\n"
    )
    written = sb.Study(
        name="depth",
        base={"task.p": np.int64(5), "train": {"steps": 30, "batch_size": 8}},
        grid={"model": {"layers": range(1, 4)}},
        zip=[{"model.dim": (8, 16), "model.heads": np.array([2, 4])}],
        exclude="layers == 3",
        seeds=range(2),
        home=tmp_path,
    )
    from_file = sb.Study(file, home=tmp_path)
    assert [run.id for run in written.plan().runs] == [run.id for run in from_file.plan().runs]
    assert len(written.plan()) == 8
    assert written.text == from_file.text


def test_overrides_are_those_of_the_command_line(tmp_path: Path) -> None:
    as_texts = ["train.steps=20", "model.layers=1,2", "task.orders=[2,3]", "seeds=3"]
    as_dict = {"train.steps": 20, "model.layers": [1, 2], "task.orders": [2, 3]}
    expected = [run.id for run in plan_named("quickstart", as_texts).runs]
    for study in (
        sb.Study("quickstart", as_texts, home=tmp_path),
        sb.Study("quickstart", as_dict, seeds=3, home=tmp_path),
        sb.Study("quickstart", " ".join(as_texts), home=tmp_path),
    ):
        assert [run.id for run in study.plan().runs] == expected
    assert len(expected) == 6


ARGUMENTS_WITH_MISTAKES = ("base", "grid", "questions", "seeds")


def test_all_mistakes_are_reported_at_once_with_their_argument() -> None:
    with pytest.raises(StudyError) as caught:
        sb.Study(
            name="wrong",
            base={"train": {"steps": -5}},
            grid={"model.layer": [1]},
            questions=[{"ask": "is it good"}],
            seeds=0,
        )
    found = [str(problem) for problem in caught.value.problems]
    assert "Study(base=…): train.steps = -5: expected a whole number from 1 to 1,000,000,000" in found
    assert "Study(grid=…): model.layer is not a setting (did you mean model.layers?)" in found
    assert {text.partition(":")[0] for text in found} == {f"Study({name}=…)" for name in ARGUMENTS_WITH_MISTAKES}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": "quickstart", "grid": {"model.layers": [1]}}, "give overrides"),
        ({"name": "x", "base": {"train.lr": None}}, "leave out a setting that is not set"),
        ({"name": "x", "base": {"train": {"lr": 1}, "train.lr": 2}}, "train.lr is given twice"),
        ({"name": "x", "base": [1]}, "expected a dict of settings"),
        ({"name": "x", "base": {"train.lr": object()}}, "cannot be the value of a setting"),
    ],
)
def test_arguments_that_make_no_study_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(").replace(")", r"\)")):
        sb.Study(**arguments)  # type: ignore[arg-type]


def test_a_study_without_a_name_is_named_by_what_it_varies(tmp_path: Path) -> None:
    def name(layers: list[int], seeds: int, **base: object) -> str:
        return sb.Study(base=SMALL | base, grid={"model.layers": layers}, seeds=seeds, home=tmp_path).name

    assert name([1, 2], 2).startswith("layers-")
    assert name([1, 2], 2) == name([1, 2, 3], 8)  # more of the same study
    assert name([1, 2], 2) != name([1, 2], 2, **{"train.lr": 0.01})
    assert sb.Study(base=SMALL).name.startswith("study-")
    with pytest.raises(StudyError, match=r"Study\(grid=…\): model.layer is not a setting"):
        sb.Study(base=SMALL, grid={"model.layer": [1]})


def test_an_unknown_name_is_neither_file_nor_shipped_nor_stored(trained: sb.Study) -> None:
    with pytest.raises(StudyError, match="quickstart"):
        sb.Study("quikstart", home=trained.home)


# ---- planning and training ----


def test_a_plan_prints_as_text_and_html(tmp_path: Path) -> None:
    plan = sb.Study(**SETTINGS, home=tmp_path).plan(only={"model.layers": 2}, workers=1)
    assert [run.settings.model.layers for run in plan.runs] == [2, 2]
    assert plan.seconds > 0
    assert sum(len(pack.runs) for pack in plan.packs) == 2
    assert "2 planned" in repr(plan)
    assert "<table>" in plan._repr_html_()
    assert not (tmp_path / "store.db").exists()


def test_part_of_a_study_is_trained_and_then_the_rest(tmp_path: Path) -> None:
    study = sb.Study(**SETTINGS, home=tmp_path)
    study.run(only="layers=1", progress=False, workers=1)
    assert study.status() == {"finished": 2, "planned": 2}
    study.run(only=["layers=2", "seed=1"], progress=False, workers=1)
    assert study.status() == {"finished": 3, "planned": 1}
    assert repr(study.run(progress=False, workers=1)) == "depth: 4 runs, 4 finished"


def test_a_study_reads_its_own_runs_and_stored_reads_all(trained: sb.Study) -> None:
    one = sb.Study("depth", {"model.layers": 1}, home=trained.home)
    assert {run.settings.model.layers for run in one.runs()} == {1}
    assert set(one.results()["run"].tolist()) == {run.id for run in one.runs()}
    assert len(sb.Study("depth", home=trained.home).runs()) == len(sb.Study.stored("depth", trained.home).runs()) == 4
    other = sb.Study(**SETTINGS | {"seeds": [7]}, home=trained.home)
    assert other.runs() == []
    with pytest.raises(MissingData, match=r"Study\.stored\('depth'\) reads the 4 other runs"):
        other.table()


def test_warnings_of_a_plan_are_warnings(tmp_path: Path) -> None:
    study = sb.Study(name="x", base=SMALL | {"task.corpus": "shakespeare"}, home=tmp_path)
    with pytest.warns(UserWarning, match="has no effect"):
        study.plan(workers=1)


def test_nothing_is_read_where_nothing_is_stored(tmp_path: Path) -> None:
    study = sb.Study(**SETTINGS, home=tmp_path / "none")
    assert study.runs() == []
    assert study.status() == {"planned": 4}
    for read in (study.table, study.results, study.answer, study.plot, study.load, study.report):
        with pytest.raises(MissingData, match=r"run\(\) trains"):
            read()
    assert not (tmp_path / "none").exists()


# ---- reading ----


def test_results_of_many_runs_are_read_in_a_second(tmp_path: Path) -> None:
    """A fifth of 1,000 runs × 200 evaluations × 4 metrics; processor time."""
    study = sb.Study(name="many", base=SMALL, seeds=200, home=tmp_path)
    runs = study.plan().runs
    names = ("train/loss", "val/loss", "train/accuracy", "val/accuracy")
    values = np.random.default_rng(0).normal(size=(200, len(runs), len(names)))
    with open_store(tmp_path) as store:
        store.register(study._plan)
        [pack_id] = claim(store, runs)
        store.record(pack_id, [EvaluationEvent(step, tuple(range(200)), names, one) for step, one in enumerate(values)])
    seconds = []
    for _ in range(3):
        start = time.process_time()
        results = study.results()
        seconds.append(time.process_time() - start)
    assert len(results) == values.size
    assert np.array_equal(results["value"], values.transpose(1, 2, 0).ravel())
    assert min(seconds) <= 0.2


def test_results_are_tidy_rows_with_the_stored_numbers(trained: sb.Study) -> None:
    results = trained.results("val/loss", only={"seed": 1})
    assert results.columns == ("run", "model.layers", "seed", "metric", "step", "value")
    rows = list(results)
    assert {(row["model.layers"], row["seed"], row["metric"]) for row in rows} == {
        (1, 1, "val/loss"),
        (2, 1, "val/loss"),
    }
    ids = {n: compute_run_id(Settings.from_flat(_flat(SMALL) | {"model.layers": n}), 1) for n in (1, 2)}
    assert {row["model.layers"]: row["run"] for row in rows} == ids
    from seedbed.store import open_store

    with open_store(trained.home, read_only=True) as store:
        curve = store.curves([ids[2]])[ids[2]]["val/loss"]
    mine = [row for row in rows if row["run"] == ids[2]]
    assert [row["step"] for row in mine] == curve.steps.tolist()
    assert [row["value"] for row in mine] == curve.values.tolist()
    assert all(type(row["value"]) is float and type(row["step"]) is int for row in mine)


def _flat(tree: dict[str, dict[str, int]]) -> dict[str, int]:
    return {f"{part}.{name}": value for part, values in tree.items() for name, value in values.items()}


def test_an_unknown_metric_is_refused_with_those_that_exist(trained: sb.Study) -> None:
    with pytest.raises(UsageError, match=r"no run has the metric val/acc \(did you mean val/accuracy\?\); recorded: "):
        trained.results("val/acc")


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_results_as_a_frame_have_the_same_columns_and_numbers(trained: sb.Study, library: str) -> None:
    pytest.importorskip("pyarrow" if library == "arrow" else library)
    results = trained.results()
    frame = getattr(results, f"to_{library}")()
    columns = frame.column_names if library == "arrow" else list(frame.columns)
    assert tuple(columns) == results.columns
    for name in columns:
        values = frame[name].to_pylist() if library == "arrow" else frame[name].to_list()
        assert values == results[name].tolist()
    assert len(set(results["run"].tolist())) == 4


def test_a_missing_library_is_one_sentence(trained: sb.Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingData, match="polars is not installed; install it with: pip install polars"):
        trained.results().to_polars()


@pytest.mark.parametrize("file_format", ["csv", "jsonl", "parquet"])
def test_results_are_written_as_files_and_read_back(trained: sb.Study, tmp_path: Path, file_format: str) -> None:
    pandas = pytest.importorskip("pandas")
    file, results = tmp_path / f"results.{file_format}", trained.results()
    results.write(file)
    readers = {
        "csv": lambda: pandas.read_csv(file),
        "jsonl": lambda: pandas.read_json(file, lines=True, precise_float=True, dtype={"run": str}),
        "parquet": lambda: pandas.read_parquet(file),
    }
    found = readers[file_format]()
    assert list(found.columns) == list(results.columns)
    assert found["step"].tolist() == results["step"].tolist()
    np.testing.assert_allclose(found["value"], results["value"], rtol=1e-14)


def test_tables_answers_and_comparisons_print_as_text_and_html(trained: sb.Study) -> None:
    table = trained.table()
    assert "L_val" in repr(table)
    assert "2 layers" in table.to_csv().splitlines()[0]
    assert "<table>" in table._repr_html_()
    assert repr(trained.table(t_max=0.5)) != repr(table)
    comparison = trained.compare("model.layers", metric="val/loss")
    assert set(comparison.groups) == {"1 layer", "2 layers"}
    assert comparison.sentence in repr(comparison)
    assert comparison.sentence.split()[0] in comparison._repr_html_()
    only = trained.compare("model.layers=1", "model.layers=2", metric="val/loss", only="seed=0")
    assert [len(runs) for runs in only.groups.values()] == [1, 1]


def test_the_best_config_is_that_with_the_best_mean(trained: sb.Study) -> None:
    best = trained.best("val/loss")
    means = {}
    for layers in (1, 2):
        results = trained.results("val/loss", only={"model.layers": layers})
        values = [min(row["value"] for row in results if row["seed"] == seed) for seed in (0, 1)]
        means[layers] = sum(values) / 2
    assert best.config["model.layers"] == min(means, key=means.__getitem__)
    assert best.mean == pytest.approx(min(means.values()))
    assert repr(best).startswith(f"The config with the best validation loss is {best.config['model.layers']} layer")
    with pytest.raises(UsageError, match="neither higher nor lower is better"):
        trained.best("norm")


def test_questions_are_answered(trained: sb.Study) -> None:
    asked = [{"ask": "which is better", "metric": "val/loss", "between": "model.layers"}]
    study = sb.Study(**SETTINGS, questions=asked, home=trained.home).run(progress=False)
    [answer] = study.answer()
    assert "val" in answer.sentence
    assert answer.sentence in repr(study.answer())
    assert "<p>" in study.answer()._repr_html_()


def test_a_plot_is_an_altair_chart_of_the_studys_numbers(trained: sb.Study, tmp_path: Path) -> None:
    chart = trained.plot("val/loss", colour="model.layers", y_scale="log", theme="dark")
    chart.save(tmp_path / "loss.svg")
    assert "<svg" in (tmp_path / "loss.svg").read_text(encoding="utf-8")
    assert "val" in str(chart.to_dict())
    with pytest.raises(UsageError, match="theme blue: expected light or dark"):
        trained.plot(theme="blue")
    with pytest.raises(UsageError, match=r"color is not an option of a figure \(did you mean colour\?\)"):
        trained.plot("val/loss", color="model.layers")


def test_a_comparison_suggests_the_full_name_of_a_setting(trained: sb.Study) -> None:
    with pytest.raises(MissingData, match=r"setting nor key=value \(did you mean model.layers\?\)"):
        trained.compare("layers")


def test_a_study_written_in_python_goes_on_from_the_command_line(trained: sb.Study) -> None:
    command = [sys.executable, "-m", "seedbed", "plan", "depth", "seeds=3", "--json", "--home", str(trained.home)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert Counter(run["status"] for run in json.loads(done.stdout)["runs"]) == {"finished": 4, "planned": 2}


def test_a_warning_names_the_line_of_the_user(tmp_path: Path) -> None:
    study = sb.Study(name="x", base={**SMALL, "model.kind": "lstm"}, home=tmp_path)
    with pytest.warns(UserWarning, match=r"model.heads has no effect") as caught:
        study.plan()
    assert {Path(one.filename).name for one in caught} == {"test_api.py"}


def test_trained_models_are_loaded_from_the_study_and_by_run(trained: sb.Study) -> None:
    run = trained.runs(only="layers=2 seed=1")[0]
    [loaded] = trained.load(only={"model.layers": 2, "seed": 1})
    assert loaded.run.id == run.id
    again = sb.load(run, trained.home)
    assert again.logits("1 + 2 =").equal(loaded.logits("1 + 2 ="))


def test_the_home_is_set_once_for_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SEEDBED_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert sb.home() == Path("lab")
    monkeypatch.setenv("SEEDBED_HOME", "")  # so that it is restored after the test
    assert sb.home("mine") == tmp_path / "mine"
    assert sb.Study(**SETTINGS).home == tmp_path / "mine"


# ---- in scripts and notebooks ----

SCRIPT = """
import seedbed as sb
print("started")
study = sb.Study("quickstart", {"train.steps": 30, "model.layers": [1, 2], "model.dim": 16}, seeds=2, home="lab")
print(study.run(workers=2, progress=False))
"""


@pytest.mark.parametrize("how", ["file", "stdin", "exec"])
def test_a_plain_script_trains_in_worker_processes_and_runs_once(tmp_path: Path, how: str) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    cell = f"exec(compile({SCRIPT!r}, '<cell>', 'exec'), {{'__name__': '__main__'}})"
    command = {"file": ["script.py"], "stdin": ["-"], "exec": ["-c", cell]}[how]
    done = subprocess.run(
        [sys.executable, *command], input=SCRIPT, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["started", "quickstart: 4 runs, 4 finished"], done.stderr
    with_two_packs = sb.Study.stored("quickstart", tmp_path / "lab")
    assert len({run.pack for run in with_two_packs.runs()}) == 2


INTERRUPTED = """
import os, signal, threading
import seedbed as sb
study = sb.Study("quickstart", {"train.steps": 100_000, "model.dim": 16}, seeds=1, home="lab")
def interrupt():
    while not (study.runs() and max(run.step for run in study.runs())):
        pass
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    study.run(workers=1, progress=False)
except KeyboardInterrupt as stopped:
    print(stopped)
print(study)
step = study.runs()[0].step
study.run(workers=1, progress=False, until=step + 50)
print(0 < study.runs()[0].step - step <= 50, study.results("train/loss")["step"].tolist()[:3])
"""


def test_an_interrupt_saves_everything_and_the_next_call_continues(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-"], input=INTERRUPTED, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [
        "stopped; all progress is saved: the same call again continues",
        "quickstart: 1 run, 1 stopped",
        "True [0, 1, 2]",
    ], done.stderr


def test_a_kind_defined_in_a_script_is_refused_with_what_to_do(tmp_path: Path) -> None:
    code = dedent("""
        import seedbed as sb
        from seedbed.models.families.own_module import OwnModuleFamily
        class Mine(OwnModuleFamily): pass
        sb.register(Mine)
    """)
    done = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True, check=False)
    assert "Mine is defined in a script or notebook" in done.stderr
    assert 'seedbed.load_plugin("mine.py")' in done.stderr


# ---- the package ----


def test_the_package_shows_its_public_names_only() -> None:
    assert dir(sb) == sorted(sb.__all__)
    assert all(getattr(sb, name).__doc__ for name in sb.__all__ if name != "__version__")


def test_importing_the_package_loads_neither_torch_nor_charts_nor_frames() -> None:
    heavy = {"torch", "altair", "pandas", "polars", "rich", "scipy"}
    code = f"import sys, seedbed; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture(autouse=True)
def _no_stray_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        yield


# ---- searching ----


def test_a_search_trains_the_best_config_to_the_end_and_continues(tmp_path: Path) -> None:
    study = sb.Study(name="rates", base=SMALL, grid={"train.lr": [1e-6, 1e-5, 0.03]}, seeds=1, home=tmp_path)
    search = study.search("train/loss", rungs=2, progress=False, workers=1)
    assert dict(search.best) == {"train.lr": 0.03}
    assert "successive halving" in repr(search)
    assert "<table>" in search._repr_html_()
    assert {run.settings.train.lr: run.status for run in study.runs()} == {
        1e-6: "stopped",
        1e-5: "stopped",
        0.03: "finished",
    }
    assert study.search("train/loss", rungs=2, progress=False, workers=1) == search


def test_seeds_that_hold_out_different_data_make_no_ensemble(trained: sb.Study) -> None:
    with pytest.raises(UsageError, match="no held-out data in common"):
        trained.ensemble()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "gpu"}, "device gpu: expected cpu, cuda"),
        ({"mode": "fast"}, "mode fast: expected plain, graph or compiled"),
        ({"workers": 0}, "workers 0: expected at least 1 process"),
    ],
)
def test_a_machine_that_is_none_is_refused(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        sb.Study(**SETTINGS, home=tmp_path).run(**options)  # type: ignore[arg-type]
    assert not any(tmp_path.iterdir())


# ---- the bar of a notebook ----


class DisplayHandle:
    """Stands for what IPython's `display(…, display_id=True)` returns."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, html: str) -> None:
        self.shown.append(html)


class ZMQInteractiveShell:
    """Has the name of the shell of a notebook's kernel."""


def test_a_notebook_shows_one_bar_that_ends_at_all_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = DisplayHandle()
    display = SimpleNamespace(HTML=str, display=lambda html, display_id: handle)
    ipython = SimpleNamespace(get_ipython=ZMQInteractiveShell, display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    study = sb.Study(**SETTINGS, home=tmp_path)
    study.run(workers=1)
    assert "120 of 120 steps" in handle.shown[-1]  # four runs of 30
    assert '<progress value="120" max="120">' in handle.shown[-1]
    assert len(handle.shown) > 3
