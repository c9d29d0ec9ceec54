"""docs/python.md: its code runs as it stands, from top to bottom, and prints what it says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
NUMBERED = list(enumerate(code for language, code in BLOCKS if language == "python"))


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The names that the blocks share, in a folder of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("guide"))
        patch.setenv("SEEDBED_HOME", "lab")
        patch.setenv("SEEDBED_DEVICE", "cpu")
        yield {"__name__": "__main__"}


@pytest.mark.parametrize(("number", "code"), NUMBERED, ids=[f"block {number}" for number, _ in NUMBERED])
def test_the_code_of_the_guide_runs(
    number: int, code: str, session: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    if "to_pandas" in code:
        pytest.importorskip("pandas")
    exec(compile(code, f"block {number} of python.md", "exec"), session)
    printed = capsys.readouterr().out
    if "SeedbedError" in code:
        [expected] = [text for language, text in BLOCKS if language == "text"]
        assert printed == expected
    if "study.status()" in code:
        assert printed.splitlines()[-1] == str(Counter(finished=12))


def test_results_of_the_guide_are_where_it_says(session: dict[str, Any]) -> None:
    assert (
        Path("losses.csv").read_text(encoding="utf-8").startswith("run,model.layers,train.lr,seed,metric,step,value\n")
    )
    assert "<svg" in Path("loss.svg").read_text(encoding="utf-8")
    assert len(session["study"].runs(only="layers=2 seed=0,1")) == 4
    assert len(session["best"]) == 4


def test_the_guide_names_every_public_method() -> None:
    import seedbed as sb

    methods = [name for name in vars(sb.Study) if not name.startswith("_") and callable(getattr(sb.Study, name))]
    assert [name for name in methods if f".{name}(" not in PAGE] == []
    assert [name for name in sb.__all__ if f"sb.{name}" not in PAGE and not name.startswith("_")] == []
