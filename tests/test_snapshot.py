"""The script that shows whether two versions show the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "snapshot.py"
PARTS = ("tables", "answers", "figures")


def snapshot(*arguments: object, code: int = 0) -> str:
    done = subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_two_takes_are_equal_and_a_change_is_found(tmp_path: Path) -> None:
    home, first, second = tmp_path / "home", tmp_path / "first", tmp_path / "second"
    snapshot("train", home, "--study", "diverged")
    for out in (first, second):
        snapshot("take", home, out, "--only", *PARTS)
    assert "diverged" in (first / "tables/diverged/ls.txt").read_text(encoding="utf-8")
    for part in PARTS:
        assert list((first / part / "diverged").iterdir())
    assert [path.read_bytes() for path in sorted(first.rglob("*.*"))] == [
        path.read_bytes() for path in sorted(second.rglob("*.*"))
    ]
    assert "answers: 3 the same, 0 differ" in snapshot("compare", first, second, "--only", *PARTS)

    figure, answer = (
        second / f"{name}" for name in ("figures/diverged/kind-sweep.json", "answers/diverged/answer.txt")
    )
    figure.write_text(figure.read_text(encoding="utf-8").replace('"format"', '"form"', 1), encoding="utf-8")
    answer.unlink()
    (second / "tables/diverged/results.csv").write_text("run,seed\n", encoding="utf-8")
    found = snapshot("compare", first, second, "--only", *PARTS, "--png", tmp_path / "png", code=1)
    assert "answers: 2 the same, 1 differ" in found
    assert "answers/diverged/answer.txt\n    only in" in found
    assert "figures/diverged/kind-sweep.json\n    -$" in found
    assert "tables/diverged/results.csv" in found
    assert len(list((tmp_path / "png").iterdir())) == 2


def test_numbers_within_the_tolerance_are_equal(tmp_path: Path) -> None:
    for name, loss in {"first": "1.0000", "second": "1.0001"}.items():
        (tmp_path / name / "answers" / "quickstart").mkdir(parents=True)
        (tmp_path / name / "answers" / "quickstart" / "answer.txt").write_text(f"The loss is {loss}.\n")
    folders = (tmp_path / "first", tmp_path / "second")
    assert "-The loss is 1.0000.\n    +The loss is 1.0001." in snapshot("compare", *folders, code=1)
    snapshot("compare", *folders, "--tolerance", "0.001")
    snapshot("compare", *folders, "--tolerance", "0.00001", code=1)
