"""Plugins: kinds from a user's file train in worker processes, are part of a run's id, and never come from a study."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

OWN_MODULE = '''
"""A model family in ten lines around an ordinary module."""
from typing import Literal
import torch
from torch import nn
import seedbed
from seedbed.models.families.own_module import OwnModuleFamily
from seedbed.settings import setting

__version__ = "1.2"

class Bag(nn.Module):
    def __init__(self, vocab_size, dim):
        super().__init__()
        self.embed, self.out = nn.Embedding(vocab_size, dim), nn.Linear(dim, vocab_size)

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.out(torch.relu(x + x.cumsum(1)))

@seedbed.register
class BagFamily(OwnModuleFamily):
    """A bag of the tokens so far."""
    kind: Literal["bag"] = setting("bag", "which model", born="gpt")
    dim: int = setting(8, "width", ge=1)

    def make_module(self, info):
        return Bag(info.vocab_size, self.dim)
'''
STUDY = """
seeds = 2
[base]
task.p = 5
model.kind = "bag"
train = { steps = 8, batch_size = 8, eval_first = 0, eval_every = 4 }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(OWN_MODULE, encoding="utf-8")
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    return tmp_path


def seedbed(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "seedbed", *arguments]
    variables = os.environ | {"SEEDBED_HOME": "home", "SEEDBED_DEVICE": "cpu"} | environment
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def planned_ids(folder: Path) -> list[str]:
    done = seedbed(folder, "--plugin", "mine.py", "plan", "study.toml", "--json")
    assert done.returncode == 0, done.stderr
    return [run["id"] for run in json.loads(done.stdout)["runs"]]


def test_an_own_module_trains_in_workers_and_is_listed_without_its_plugin(folder: Path) -> None:
    done = seedbed(folder, "--plugin", "mine.py", "run", "study.toml", "--quiet")
    assert done.returncode == 0, done.stderr
    assert "2 finished" in done.stderr + done.stdout
    shown = seedbed(folder, "--plugin", "mine.py", "show", "study")
    assert "L_train" in shown.stdout, shown.stderr
    without = seedbed(folder, "ls", "study")
    assert without.returncode == 0
    assert without.stderr.count("cannot be read: it needs plugin mine 1.2 (") == 2
    assert without.stderr.count("load it with --plugin") == 2
    refused = seedbed(folder, "plan", "study.toml")
    assert refused.returncode == 2
    assert "study.toml:5: model.kind = " in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_source_of_a_plugin_is_part_of_the_id(folder: Path) -> None:
    first = planned_ids(folder)
    assert planned_ids(folder) == first
    (folder / "mine.py").write_text(OWN_MODULE.replace("x + x.cumsum(1)", "x * x.cumsum(1)"), encoding="utf-8")
    assert not set(planned_ids(folder)) & set(first)


def test_a_plugin_changes_no_id_of_the_package_itself(folder: Path) -> None:
    words = ("plan", "quickstart", "--json")
    own, plain = seedbed(folder, "--plugin", "mine.py", *words), seedbed(folder, *words)
    ids: list[Any] = [[run["id"] for run in json.loads(done.stdout)["runs"]] for done in (own, plain)]
    assert ids[0] == ids[1]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import seedbed\nseedbed.register(3)\n", "UsageError: seedbed.register takes a task, a model family"),
        ("x = 1\ny = [\n", "SyntaxError: "),
        ("x = 1\nraise KeyError('nothing')\n", "KeyError: 'nothing' (line 2)"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_one_sentence(folder: Path, source: str, said: str) -> None:
    (folder / "mine.py").write_text(source, encoding="utf-8")
    done = seedbed(folder, "--plugin", "mine.py", "ls")
    assert done.returncode == 2
    assert done.stderr.startswith("seedbed: plugin mine.py cannot be loaded: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_plugin_is_one_sentence(folder: Path) -> None:
    done = seedbed(folder, "--plugin", "none.py", "ls")
    assert done.returncode == 4
    assert "plugin none.py cannot be read (No such file or directory)" in done.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("nn.Linear(dim, vocab_size)", "nn.Linear(dim, 3)"), "expected logits"),
        (("x + x.cumsum(1)", "x + x.sum(1, keepdim=True)"), "its logits depend on later tokens"),
        (
            ("self.embed, self.out =", "self.idle = nn.Linear(2, 2)\n        self.embed, self.out ="),
            "no gradient reaches idle",
        ),
    ],
)
def test_a_module_is_checked_before_it_is_trained(folder: Path, change: tuple[str, str], said: str) -> None:
    (folder / "mine.py").write_text(OWN_MODULE.replace(*change), encoding="utf-8")
    done = seedbed(folder, "--plugin", "mine.py", "run", "study.toml", "--quiet")
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_stacked_only_where_that_is_exact(folder: Path) -> None:
    """Two seeds are one pack, unless the module does something that vmap cannot."""

    def n_packs() -> int:
        done = seedbed(folder, "--plugin", "mine.py", "plan", "study.toml", "--workers", "1", "--json")
        assert done.returncode == 0, done.stderr
        return len({run["pack"] for run in json.loads(done.stdout)["runs"]})

    assert n_packs() == 1
    branching = OWN_MODULE.replace(
        "        x = self.embed(tokens)\n",
        "        x = self.embed(tokens)\n        if x.sum() > 1e9:\n            x = 2 * x\n",
    )
    (folder / "mine.py").write_text(branching, encoding="utf-8")
    assert n_packs() == 2
