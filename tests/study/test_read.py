from __future__ import annotations

from pathlib import Path

import pytest

from seedbed.errors import StudyError
from seedbed.settings import OPTIMIZERS
from seedbed.study.plan import plan_named, plan_study
from seedbed.study.read import read_study
from seedbed.study.study_files import find_study, shipped_studies

from .conftest import WriteStudy

WRONG = """\
question = 3
seeds = [0, -1]
seed = 3
[base.model]
head = 4
dim = 90
heads = 4
[base.train]
lr = "fast"
optimizer = "Adam"
clip = inf
[grid]
train.weight_decay = []
train.eps = [
  1e-8,
  true,
]
[[zip]]
task.p = [5, 7, 11]
task.operator = ["+", "-"]
[[configs]]
modle.layers = 3
"""


def find_problems(path: Path, overrides: list[str] | None = None) -> list[tuple[str, str]]:
    with pytest.raises(StudyError) as error:
        plan_named(str(path), overrides or [])
    return [(problem.where.replace(f"{path}:", ""), problem.what) for problem in error.value.problems]


def test_all_problems_are_reported_in_one_pass_with_their_lines(write: WriteStudy) -> None:
    assert find_problems(write(WRONG), ["train.betas=1", "nonsense"]) == [
        ("1", "question = 3: expected a string"),
        (
            "2",
            "seeds = [0, -1]: expected a count (1 to 100,000), a list of whole numbers from 0 to 4,294,967,295, "
            'or a range such as "0..15"',
        ),
        ("3", "seed is not a key of a study file (did you mean seeds?)"),
        ("5", "model.head is not a setting (did you mean model.heads?)"),
        ("7", "model.heads = 4 does not divide model.dim = 90"),
        ("9", 'train.lr = "fast": expected a number above 0'),
        (
            "10",
            'train.optimizer = "Adam": expected one of ' + ", ".join(f'"{name}"' for name in OPTIMIZERS) + " "
            "(did you mean adam?)",
        ),
        ("11", "train.clip = inf: expected a finite number from 0"),
        ("13", "train.weight_decay = []: expected a list of one value or more"),
        ("16", "train.eps = true: expected a number above 0"),
        ("18", "lists of unequal length in one [[zip]]: task.p has 3, task.operator has 2"),
        ("22", "modle.layers is not a setting (did you mean model.layers?)"),
        ("argument 'train.betas=1'", "train.betas = 1: expected a list of 2 numbers from 0 below 1"),
        ("argument 'nonsense'", "expected key=value, such as model.layers=3"),
    ]


def test_an_invalid_setting_is_not_also_reported_as_a_conflict(write: WriteStudy) -> None:
    assert [line for line, _ in find_problems(write('[base.model]\ndim = "wide"\nheads = 3\n'))] == ["2"]


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("[base.model]\n\ndim = 90\n", "3", "model.heads = 4 does not divide model.dim = 90"),
        ("[base.model]\ndim = 128\nheads = 3\n", "3", "model.heads = 3 does not divide model.dim = 128"),
        ("[grid]\nmodel.dim = [64, 90]\nmodel.heads = [2, 4]", "3", "model.heads = 4 does not divide model.dim = 90"),
        ("[base.task]\np = 9\noperator = '/'\n", "2", "task.p = 9 is not prime"),
        ("[base.task]\ntrain_fraction = 0.0001\n", "2", "leaves no training sample"),
        ("[base.task]\np = 2\ntrain_fraction = 0.99\n", "3", "leaves no validation sample"),
        ("[[configs]]\n[[configs]]\ntask.orders = [2, 2]\n", "3", "names an order twice"),
        ("[base.model]\nkind = 'lstm'\nhidden = 5\ntied = true\n", "4", "model.tied needs"),
    ],
)
def test_conflicts_are_located_at_the_setting_that_was_written(
    write: WriteStudy, text: str, line: str, what: str
) -> None:
    [(found_line, found)] = find_problems(write(text))
    assert found_line == line
    assert what in found


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("a = 1\n[grid\n", "2", "Expected"),
        ("seeds = 1\nseeds = 2\n", "2", "seeds is given twice (lines 1 and 2)"),
        ("seeds = 1\n[base]\ntrain.lr = 1\n[base]\n", "4", "[base] is given twice (lines 2 and 4)"),
        ("[base]\nmodel.kind = 'lstmm'\n", "2", "(did you mean lstm?)"),
        ("[base]\ntask.foo = 1\n", "2", "task.foo is not a setting; `seedbed settings` lists them all"),
        ("[base]\ntrain.steps = 1.5e0\n", "2", "expected a whole number"),
        ("[[figures]]\nmetrics = ['val/acc']\n", "2", "is not a metric (did you mean val/accuracy?)"),
        ('question = "open\n', "1", "Illegal character"),
        ("seeds = [1,\n", "2", "end of file"),
        ("seeds = []\n", "1", "seeds = []"),
        ("seeds = true\n", "1", "seeds = true"),
        ("seeds = 0\n", "1", "seeds = 0"),
        ("seeds = [3, 4, 3]\n", "1", "3 is listed twice"),
        ("name = '../x'\n", "1", "name = "),
        ("name = 'a/../b'\n", "1", "name = "),
        ("configs = []\n", "1", "at least one config"),
        ("zip = 3\n", "1", "[[zip]]"),
        ("[zip]\ntask.p = [3]\n", "1", "[[zip]]"),
        ("[[zip]]\n", "1", "empty [[zip]]"),
        ("grid = 3\n", "1", "expected a table"),
        ("[base]\nmodel = 3\n", "2", "model is not a setting"),
        ("[base]\nlayers = 3\n", "2", "did you mean model.layers?"),
        ("[base.Model]\nLAYERS = 3\n", "2", "did you mean model.layers?"),
        ("[base.model.heads]\n", "1", "model.heads = {}: expected a whole number"),
        ("[base.model]\nheads.x = 1\n", "2", "model.heads.x is not a setting"),
        ("[model]\nlayers = 3\n", "1", "did you mean base.model?"),
        ("[grid]\nmodel.head = [4, 8]\n", "2", "model.head is not a setting (did you mean model.heads?)"),
        ("[grid]\nmodel.layers = 3\n", "2", "expected a list of values to try"),
        ("[grid]\ntrain.betas = [0.9, 0.99]\n", "2", "train.betas = 0.9: expected a list"),
        ("[base]\n'model.layers' = 3\nmodel.layers = 2\n", "2", "set twice"),
        ("[grid]\ntask.p = [5]\n[[zip]]\ntask.p = [7]\n", "2", "varies in two places"),
        ("[base.model]\nkind = 'lstm'\ngate_biases = true\n", "3", "model.gate_biases = true: expected one of 0, 1, 2"),
        ('[base.train]\nlr = "1e-3"\n', "2", 'train.lr = "1e-3": expected a number'),
        (f"[base.model]\nlayers = 0x{'f' * 5000}\n", "2", "integer of 20000 bits"),
        ("[base.model]\nlayers = 1000000000\n", "2", "from 1 to 1,000"),
        ("exclude = 'model.layers == 2'\n", "1", "removes every config"),
        ("[base.train]\nlr = 1979-05-27\n", "2", "train.lr = 1979-05-27: expected a number"),
        ('question = 1\n[base.model]\n"la\\u001byers" = 1\n', "3", '"la\\u001byers"'),
    ],
)
def test_each_mistake_is_reported_at_its_line(write: WriteStudy, text: str, line: str, what: str) -> None:
    found = find_problems(write(text))
    assert any(where == line and what in message for where, message in found), found


def test_an_integer_of_thousands_of_digits_is_rejected(write: WriteStudy) -> None:
    with pytest.raises(StudyError, match="cannot be read as TOML"):
        read_study(write("seeds = " + "9" * 5000))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\xef\xbb\xbfseeds = 1", "byte-order mark"),
        (b"seeds = 1\nquestion = '\xff'", "not UTF-8"),
        (b"# " + b"x" * 1_000_000, "larger than 1,000,000 bytes"),
    ],
)
def test_undecodable_or_oversized_files_are_rejected_with_a_message(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "study.toml"
    path.write_bytes(content)
    with pytest.raises(StudyError, match=what):
        read_study(path)


def test_missing_files_and_folders_are_rejected_with_a_message(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no such file"):
        read_study(tmp_path / "absent.toml")
    with pytest.raises(StudyError, match="is a folder"):
        read_study(tmp_path)
    with pytest.raises(StudyError, match="is a folder"):
        find_study(str(tmp_path))
    with pytest.raises(StudyError, match=r"did you mean quickstart\?"):
        find_study("quickstrt")
    with pytest.raises(StudyError, match=r"did you mean arithmetic/sanity\?"):
        find_study("aritmetic/sanity")
    with pytest.raises(StudyError, match=r"absent.toml: no such file; `seedbed init"):
        find_study("absent.toml")
    with pytest.raises(StudyError, match=r"shipped studies: quickstart, .*arithmetic/\* \(7\)"):
        find_study("nothing-like-it")
    with pytest.raises(StudyError, match="neither a file nor a shipped study"):
        find_study("x" * 5_000 + "\0")


def test_prose_is_not_a_study_file(write: WriteStudy) -> None:
    with pytest.raises(StudyError, match="not a study file; expected TOML"):
        read_study(write("Which model learns faster?\nI do not know.\n"))


def test_whole_numbers_may_be_written_with_an_exponent(write: WriteStudy) -> None:
    [run] = plan_study(read_study(write("seeds = 1\n[base]\ntrain.steps = 1e3\n"))).runs
    [same] = plan_study(read_study(write("seeds = 1\n")), ["train.steps=1e3"]).runs
    assert run.settings.train.steps == 1000
    assert run.id == same.id


def test_shipped_studies_are_named_by_path_and_others_by_file_name(write: WriteStudy) -> None:
    assert "arithmetic/data-size" in shipped_studies()
    assert read_study(find_study("arithmetic/sanity")).name == "arithmetic/sanity"
    assert read_study(write("")).name == "study"
    assert read_study(write("name = 'other/one'")).name == "other/one"


def test_hundreds_of_problems_are_counted_not_listed(write: WriteStudy) -> None:
    text = "".join(f"key{index} = 1\n" for index in range(1_234))
    found = find_problems(write(text))
    assert len(found) == 101
    assert found[-1][1] == "and 1,134 more problems"


def test_dotted_nested_quoted_and_inline_keys_are_equivalent(write: WriteStudy) -> None:
    spellings = [
        "[base.model]\nlayers = 3\n[grid]\ntrain.lr = [1, 2]",
        "base.model.layers = 3\n[grid.train]\nlr = [1.0, 2.0]",
        "[base]\n'model.layers' = 3\n[grid]\n'train.lr' = [1, 2]",
        "base = { model = { layers = 3 } }\ngrid = { 'train.lr' = [1, 2.0] }",
        "[base.model]\nlayers = 3\n[[zip]]\ntrain.lr = [1, 2]",
        "[base.model]\nlayers = 3\n[[configs]]\ntrain.lr = 1\n[[configs]]\ntrain.lr = 2",
    ]
    ids = [[run.id for run in plan_study(read_study(write(text))).runs] for text in spellings]
    assert all(found == ids[0] for found in ids)
    assert len(ids[0]) == 4
