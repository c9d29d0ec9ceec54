"""The list of the reports' figures against the study files: what it calls ready is declared there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seedbed.study.files import shipped_studies
from seedbed.study.read import read_study

LIST = Path(__file__).parents[2] / "docs" / "results" / "coverage.md"
STATES = {"ready", "waits for the figure", "waits for attention", "waits for the measure"}


def rows() -> list[tuple[str, ...]]:
    lines = [line for line in LIST.read_text(encoding="utf-8").splitlines() if re.match(r"\| [A-D] ", line)]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]


def numbers(text: str) -> set[int]:
    """`D 3–6, D 8` → 3, 4, 5, 6, 8."""
    found: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:–(\d+))?", text):
        found |= set(range(int(first), int(last or first) + 1))
    return found


def test_every_figure_and_table_of_report_d_is_listed() -> None:
    listed = [number for number, *_ in rows() if re.match(r"D \d", number)]
    assert set().union(*map(numbers, listed)) == set(range(1, 33))


@pytest.mark.parametrize(("letter", "count"), [("B", 11), ("C", 9)])
def test_every_figure_of_b_and_c_is_listed(letter: str, count: int) -> None:
    listed = [number for number, *_ in rows() if re.match(rf"{letter} \d", number)]
    assert set().union(*map(numbers, listed)) == set(range(1, count + 1))


def test_every_row_has_a_known_state_and_a_shipped_study() -> None:
    for number, _, studies, _, state in rows():
        assert state in STATES, number
        assert set(re.findall(r"`([^`]+)`", studies)) <= set(shipped_studies()), number


@pytest.mark.parametrize("row", [row for row in rows() if row[4] == "ready"], ids=lambda row: row[0])
def test_what_is_ready_is_declared_in_its_study(row: tuple[str, ...]) -> None:
    number, _, studies, how, _ = row
    asked = re.match(r"figures? (\d+)(?: and (\d+))?: (\w+)", how)
    if asked is None:
        return
    figures = read_study(shipped_studies()[studies.strip("`")]).figures
    for place in filter(None, asked.groups()[:2]):
        figure = figures[int(place) - 1]
        assert figure.kind == asked[3]
        if number.startswith("D ") and re.fullmatch(r"D \d+", number):
            assert numbers(number) <= numbers(figure.report)
