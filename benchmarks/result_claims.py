"""Claims of a report beside the answers that test them: the table of a page of docs/results, and its verdicts.

A claim names questions of a study by their text, or asks its own (`asks`, as in `[[questions]]`). `expects` is what the
report's claim would have come out as: the group ahead, `rises` or `falls` along a setting, or the value of a setting.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from result_tables import StoredStudy

from seedbed.report.study_answers import parse_subject
from seedbed.specs import QuestionSpec
from seedbed.stats.answers import Answer, answer_question

REPRODUCED, REVERSED, NOT_REPRODUCED, CANNOT_TELL = "reproduced", "the reverse", "not reproduced", "cannot tell"
DESCRIBED = "described"  # by numbers that no test is about


class ClaimTable:
    """Claims of a report, the sentences that answer them, and whether they say the same."""

    def __init__(self, studies: Mapping[str, StoredStudy], claims: Sequence[Mapping[str, Any]]) -> None:
        self.rows, self.verdicts = list[str](), list[str]()
        for claim in claims:
            for answer in ask(studies[claim["study"]], claim):
                verdict = judge(answer, claim.get("expects"))
                self.verdicts.append(verdict)
                ours = f"{answer.sentence} ({claim['study']}, n = {answer.n} runs)"
                ours += f" {claim['why'].strip()}" if "why" in claim else ""
                cells = (claim["where"], claim["says"], verdict, ours)
                self.rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")

    def __str__(self) -> str:
        head = ["| where | the report says | verdict | ours |", "| --- | --- | --- | --- |"]
        return "\n".join(["## Claims\n", *head, *self.rows])


def ask(study: StoredStudy, claim: Mapping[str, Any]) -> Iterator[Answer]:
    """The answers to the claim's questions."""
    for text in claim.get("questions", ()):
        yield study.answer(text)
    for question in claim.get("asks", ()):
        yield answer_question(QuestionSpec.model_validate_json(json.dumps(question)), study.runs)


def judge(answer: Answer, expects: Any = None) -> str:
    """Does the answer say what the report says?"""
    if answer.question.ask in ("smallest", "largest"):
        return _judge_level(answer, expects)
    if answer.question.ask == "how does it change" and expects is not None:
        return _judge_trend(answer, expects) if expects in ("rises", "falls") else _judge_optimum(answer, expects)
    if answer.verdict is None:
        return DESCRIBED if answer.numbers else CANNOT_TELL
    if answer.verdict not in ("yes", "no"):
        return CANNOT_TELL
    if expects is None or answer.verdict == "no":
        return REPRODUCED if answer.verdict == "yes" else NOT_REPRODUCED
    return REPRODUCED if str(expects) in _leader(answer) else REVERSED


def _leader(answer: Answer) -> str:
    """The group or level that comes out ahead."""
    numbers, question = answer.numbers, answer.question
    if "medians" in numbers:
        return min(numbers["medians"], key=lambda name: numbers["medians"][name]["median"])
    means = numbers["per_doubling"] if "per_doubling" in numbers else numbers["means"]
    choose = max if parse_subject(question.metric, question.value).direction == "max" else min
    return choose(means, key=lambda name: means[name]["mean"])


def _judge_trend(answer: Answer, expects: str) -> str:
    """Every group has to rise, or to fall; without a test, as along α, from the first value to the last."""
    if answer.verdict not in ("yes", None):
        return CANNOT_TELL
    outcomes = set()
    for trend in answer.numbers.values():
        means = list(trend["means"].values())
        if (
            len(means) < 2
            or means[0] == means[-1]
            or (answer.verdict and trend["corrected"] > 0.05 and not trend["not_monotone"])
        ):
            outcomes.add(CANNOT_TELL)
        elif trend["not_monotone"]:
            outcomes.add(NOT_REPRODUCED)
        else:
            rises = trend["correlation"] > 0 if answer.verdict else means[-1] > means[0]
            outcomes.add(REPRODUCED if rises == (expects == "rises") else REVERSED)
    return next((one for one in (REVERSED, NOT_REPRODUCED, CANNOT_TELL, REPRODUCED) if one in outcomes), CANNOT_TELL)


def _judge_optimum(answer: Answer, expects: float) -> str:
    """The best level has to be the report's; one that cannot be told from the best is left open.

    But not the end where a certain trend begins, if no level is worse.
    """
    trends = list(answer.numbers.values())
    optima = [trend.get("optimum") for trend in trends]
    if not optima or answer.verdict != "yes":
        return CANNOT_TELL
    if all(trend["corrected"] <= 0.05 and _worst_end(answer, trend) == expects for trend in trends):
        return NOT_REPRODUCED
    if None in optima:
        return CANNOT_TELL
    if all(one["level"] == expects for one in optima):
        return REPRODUCED
    return CANNOT_TELL if all(expects in one["confidence_set"] for one in optima) else NOT_REPRODUCED


def _worst_end(answer: Answer, trend: Mapping[str, Any]) -> Any:
    """The end of the range with the worst mean of all levels; None if the worst lies between the ends."""
    means = trend["means"]
    choose = min if parse_subject(answer.question.metric, answer.question.value).direction == "max" else max
    worst = choose(means, key=lambda level: means[level])
    return worst if worst in (min(means), max(means)) else None


def _judge_level(answer: Answer, expects: Any) -> str:
    """The level found in every group has to be the report's (`none` if there is none)."""
    groups = [one for one in answer.numbers.values() if isinstance(one, Mapping) and "level" in one]
    if not groups:
        return CANNOT_TELL
    levels = {"none" if one["level"] is None else one["level"] for one in groups}
    return REPRODUCED if levels == {expects} else NOT_REPRODUCED
