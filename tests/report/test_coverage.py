"""The list of the reports' figures against the study files: what it calls ready is declared there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seedbed.report import metrics_by_step, sections
from seedbed.study.read import read_study
from seedbed.study.study_files import shipped_studies

LIST = Path(__file__).parents[2] / "docs" / "results" / "coverage.md"
STATES = {"ready"}


def rows() -> list[tuple[str, ...]]:
    lines = [line for line in LIST.read_text(encoding="utf-8").splitlines() if re.match(r"\| [A-D] ", line)]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]


def numbers(text: str) -> set[int]:
    """`D 3–6, D 8` → 3, 4, 5, 6, 8."""
    result: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:–(\d+))?", text):
        result |= set(range(int(first), int(last or first) + 1))
    return result


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
    match = re.match(r"figures? (\d+)(?: and (\d+))?: (\w+)(?: and (\w+))?", how)
    if match is None:
        assert re.match(r"table|the same report|`seedbed report ", how), number
        return
    first, second, kind, other = match.groups()
    figures = read_study(shipped_studies()[studies.strip("`")]).figures
    for figure_number, wanted in ((first, kind), (second, other or kind)):
        if figure_number:
            figure = figures[int(figure_number) - 1]
            assert figure.kind == wanted
            assert reproduces(figure.report, number), f"{number} is not in {figure.report!r}"


def reproduces(report: str, number: str) -> bool:
    """Whether a figure's `report` (`D 3–6`, `C 1, C 3`, `A 2a`) names this number of the list."""
    if "question" in number:
        return number.split()[0] in report and numbers(number) <= numbers(report)
    if re.fullmatch(r"[BCD] \d+", number):
        return report.startswith(number[0]) and numbers(number) <= numbers(report)
    return number in report


def test_tables_of_b_and_c_are_what_the_reports_make_of_their_records() -> None:
    listed = {number: how for number, _, _, how, _ in rows() if "table" in number}
    assert {f"B table {n}" for n in range(1, 6)} | {f"C table {n}" for n in range(1, 4)} <= set(listed)
    titles = Path(sections.__file__).read_text(encoding="utf-8") + Path(metrics_by_step.__file__).read_text(
        encoding="utf-8"
    )
    for title in ("Metrics by step", ", by config", ", by settings"):
        assert title in titles
        assert any(title in how for how in listed.values())


def test_every_question_of_the_reports_is_in_a_study() -> None:
    asked = {question.report for path in shipped_studies().values() for question in read_study(path).questions}
    named = " ".join(asked)
    for number in (
        "A 1",
        "A 2a",
        "A 2b",
        "A 2c",
        "A 3a",
        "A 3b",
        "A 3c",
        "A 3d",
        "A 3e",
        "A 4",
        "A 5a",
        "A 5b",
        "A 5c",
    ):
        assert number in asked
    assert all(f"C {n}" in named or f"–{n}" in named for n in range(2, 9))
    assert {"B 3", "B 6", "B 7", "D 8b"} <= asked  # what they say about their maps
    assert {"B 1", "B 2", "B tables 2–3", "B 8", "B 9", "B 10", "B table 4", "B table 5", "B 3.2"} <= asked
