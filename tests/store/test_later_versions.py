"""A later version changes a default, renames, adds or removes a setting: stored runs, their ids and answers stay true.

The later version is a copy of the package with its source edited, run as `python -m seedbed` in a process of its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seedbed

PACKAGE = Path(seedbed.__file__).parent
STUDY = """
question = "Does it learn?"
seeds = 2
[base]
task.p = 5
model = { dim = 8, heads = 2, layers = 1, init_scale = 0.5 }
train = { steps = 6, batch_size = 8, eval_first = 1, eval_every = 3 }
"""
Edit = Callable[[str], str]
Version = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study file, and a home in which this version has trained it and another study."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    (folder / "other.toml").write_text(STUDY.replace("p = 5", "p = 7"), encoding="utf-8")
    today = version(PACKAGE.parent, folder)
    assert today("run", "study.toml", "--quiet").returncode == 0
    assert today("run", "other.toml", "--quiet").returncode == 0
    return folder


def version(source: Path, folder: Path) -> Version:
    """The command line of the package in this folder of sources, run within `folder` on its home."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "seedbed", *arguments, "--home", "home"]
        environment = os.environ | {"PYTHONPATH": str(source), "SEEDBED_DEVICE": "cpu"}
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    return run


def later_version(tmp_path: Path, lab: Path, edits: dict[str, Edit]) -> tuple[Version, Path]:
    """The command line of an edited copy of the package, on a copy of the lab."""
    shutil.copytree(PACKAGE, tmp_path / "source" / "seedbed", ignore=shutil.ignore_patterns("__pycache__"))
    for pattern, edit in edits.items():
        for path in (tmp_path / "source" / "seedbed").glob(pattern):
            path.write_text(edit(path.read_text(encoding="utf-8")), encoding="utf-8")
    shutil.copytree(lab, tmp_path / "lab")
    return version(tmp_path / "source", tmp_path / "lab"), tmp_path / "lab"


def replaced(old: str, new: str) -> Edit:
    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return edit


def listed(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ids_and_configs(version: Version, study: str = "study") -> dict[str, dict[str, Any]]:
    return {run["id"]: run["config"] for run in listed(version("ls", study, "--json"))["runs"]}


def planned(version: Version, *words: str) -> dict[str, str]:
    """Ids of the runs that a plan has, with their status."""
    return {run["id"]: run["status"] for run in listed(version("plan", *words, "--json"))["runs"]}


def test_a_changed_default_is_a_new_config_and_changes_no_stored_run(tmp_path: Path, lab: Path) -> None:
    before = ids_and_configs(version(PACKAGE.parent, lab))
    later, folder = later_version(
        tmp_path,
        lab,
        {"settings.py": replaced('setting(1e-3, "learning rate",', 'setting(3e-3, "learning rate", born=1e-3,')},
    )
    assert ids_and_configs(later) == before
    new = planned(later, "study.toml")
    assert not set(new) & set(before), "the file now asks for the new default, which nobody has trained"
    assert set(planned(later, "study.toml", "train.lr=1e-3")) == set(before), "the old value is the old run"
    assert later("run", "study.toml", "--quiet").returncode == 0
    found = ids_and_configs(later)
    assert {run: found[run]["train.lr"] for run in before} == dict.fromkeys(before, 1e-3)
    assert {run: found[run]["train.lr"] for run in new} == dict.fromkeys(new, 3e-3)
    table = later("show", "study").stdout
    assert "learning rate" in table
    assert "0.001" in table
    assert "0.003" in table
    compared = later("compare", "study", "train.lr")
    assert "0.001" in compared.stdout, compared.stderr
    assert "0.003" in compared.stdout
    assert later("report", "study", "--out", "page").returncode == 0
    page = next((folder / "page").glob("*.html")).read_text(encoding="utf-8")
    assert "0.003" in page
    assert "0.001" in page
    assert "train.lr" in later("ls").stdout


def test_a_renamed_setting_is_read_under_its_new_name_with_the_same_ids(tmp_path: Path, lab: Path) -> None:
    before = set(ids_and_configs(version(PACKAGE.parent, lab)))
    meaning = '"factor on all initial matrices and tables",'
    edits: dict[str, Edit] = {
        "**/*.py": lambda text: re.sub(r"\binit_scale\b", "init_gain", text),
        "models/families/base.py": replaced(meaning, f'{meaning} former_names=("model.init_scale",),'),
    }
    later, folder = later_version(tmp_path, lab, edits)
    assert set(ids_and_configs(later)) == before
    assert later("show", "study", "--only", "model.init_gain=0.5").returncode == 0
    assert later("show", "study", "--only", "model.init_gain=1.0").returncode == 4
    refused = later("plan", "study.toml")
    assert refused.returncode == 2
    assert "study.toml:6: model.init_scale is now called model.init_gain" in refused.stderr
    (folder / "study.toml").write_text(STUDY.replace("init_scale", "init_gain"), encoding="utf-8")
    assert planned(later, "study.toml") == dict.fromkeys(before, "finished")
    assert later("report", "study", "--out", "page").returncode == 0


def test_a_new_setting_moves_no_id_and_a_removed_one_is_named_without_harm_to_other_studies(
    tmp_path: Path, lab: Path
) -> None:
    before = set(ids_and_configs(version(PACKAGE.parent, lab)))
    extra = '    momentum_warmup: int = setting(0, "steps over which the momentum grows", ge=0)\n    momentum: Fraction'
    richer, folder = later_version(tmp_path, lab, {"settings.py": replaced("    momentum: Fraction", extra)})
    assert planned(richer, "study.toml") == dict.fromkeys(before, "finished")
    assert richer("run", "study.toml", "train.momentum_warmup=5", "--quiet").returncode == 0

    # This version does not have that setting, as one that has removed it would not.
    today = version(PACKAGE.parent, folder)
    refused = today("show", "study")
    assert refused.returncode == 4
    why = r"this version of seedbed does not know its settings train\.momentum_warmup"
    assert re.fullmatch(rf"seedbed: run \w+ cannot be read: {why}; .*\n", refused.stderr)
    assert today("show", "other").returncode == 0
    everything = today("ls", "--json")
    assert {run["id"] for run in listed(everything)["runs"] if run["study"] == "study"} == before
    assert re.search(rf"warning: run \w+ cannot be read: {why}; .*\n", everything.stderr)
    assert "study" in today("ls").stdout
    assert set(planned(today, "study.toml")) == before
    assert today("run", "other.toml", "--quiet").returncode == 0
    again = today("run", "study.toml", "--quiet")
    assert again.returncode == 0
    assert "warning: no table for study: run " in again.stderr


def test_a_retired_setting_is_ignored_at_its_neutral_value_and_named_at_any_other() -> None:
    code = """
from seedbed import settings
settings.RETIRED_SETTINGS["train.momentum_warmup"] = (0, "0.3")
stored = settings.Settings().flat()
assert settings.Settings.from_stored(stored | {"train.momentum_warmup": 0}) == settings.Settings()
try:
    settings.Settings.from_stored(stored | {"train.momentum_warmup": 5})
except settings.UnreadableSettings as error:
    assert "momentum_warmup = 5, a setting that only seedbed up to 0.3 has" in str(error)
else:
    raise AssertionError("was read")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_settings_that_were_not_there_yet_get_the_default_they_were_born_with() -> None:
    code = """
from seedbed import settings
field = settings.TrainSettings.model_fields["lr"]
field.default = 0.5
settings.TrainSettings.model_rebuild(force=True)
settings.Settings.model_rebuild(force=True)
assert settings.Settings.from_flat({}).train.lr == 0.5
assert settings.Settings.from_stored({}).train.lr == 1e-3
assert settings.Settings.from_flat({}).identity() == {"train.lr": 0.5}
assert settings.Settings.from_flat({"train.lr": 1e-3}).identity() == {}
"""
    subprocess.run([sys.executable, "-c", code], check=True)
