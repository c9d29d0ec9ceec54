"""The committed pages of results: every number is what the archive beside it gives; verdicts by hand."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from result_tables import AS_REPORTED, compare, parse_number, studies_of  # noqa: E402
from results import FOLDER, import_page_archive, make_page, train_page, trained_studies  # noqa: E402

from seedbed.charts.chart_kinds import CHART_KINDS  # noqa: E402
from seedbed.report.figures import load_figure  # noqa: E402
from seedbed.store import open_store  # noqa: E402
from seedbed.study.declarations import parse_declarations  # noqa: E402

PAGES = sorted(path.stem for path in FOLDER.glob("*.toml"))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_its_archive_gives(name: str) -> None:
    assert (FOLDER / f"{name}.md").read_text(encoding="utf-8") == make_page(FOLDER, name)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_names_studies_that_ship_and_figures_that_are_there(name: str) -> None:
    """A misspelt study would count as not trained."""
    page = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    named = {study for table in page.get("tables", []) for study in studies_of(table)}
    named |= {one["study"] for kind in ("claims", "figures", "samples") for one in page.get(kind, [])}
    library = ROOT / "src" / "seedbed" / "study" / "library"
    assert [study for study in named if not (library / f"{study}.toml").exists()] == []
    pictures = re.findall(r"\]\((figures/\S+\.svg)\)", (FOLDER / f"{name}.md").read_text(encoding="utf-8"))
    assert [path for path in pictures if not (FOLDER / path).exists()] == []


@pytest.mark.parametrize(
    "name",
    ["speeches", *(pytest.param(name, marks=pytest.mark.slow) for name in ("arithmetic", "characters"))],
)
def test_every_figure_of_the_studies_in_an_archive_has_data(name: str, tmp_path: Path) -> None:
    """Their weights are not there: attention maps and circles come from the analyses."""
    import_page_archive(FOLDER, name, str(tmp_path))
    for study in trained_studies(str(tmp_path)):
        with open_store(tmp_path, read_only=True) as store:
            n_figures = len(parse_declarations(store.study(study).text).figures)
        for number in range(1, n_figures + 1):
            spec, runs = load_figure(tmp_path, study, [], {}, number)
            figure = CHART_KINDS[spec.kind].gather_figure(spec, runs)
            assert not figure.is_empty, (study, number)
            assert figure.notes == () or "weights" not in " ".join(figure.notes), (study, number)


def test_a_number_is_as_reported_within_the_prediction_interval_of_a_further_seed() -> None:
    """Of five values with mean 3 and s = 1.581, the interval is 3 ± 2.776 · 1.581 · √1.2 = 3 ± 4.809."""
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert [compare(reported, values, "lower") for reported in ("-1.80", "7.80")] == [AS_REPORTED] * 2
    assert [compare(reported, values, "lower") for reported in ("-1.82", "7.82")] == ["worse", "better"]
    assert [compare(reported, values, "higher") for reported in ("-1.82", "7.82")] == ["better", "worse"]
    assert [compare(reported, values, "later") for reported in ("-1.82", "7.82")] == ["later", "earlier"]
    assert [compare(reported, values, "neither") for reported in ("-1.82", "7.82")] == [
        "ours is higher",
        "ours is lower",
    ]
    # of the mean of two seeds: 3 ± 2.776 · 1.581 · √(1/2 + 1/5) = 3 ± 3.673
    assert [compare(reported, values, "lower", report_seeds=2) for reported in ("6.67", "6.69")] == [
        AS_REPORTED,
        "better",
    ]


def test_a_number_agrees_to_half_a_unit_of_its_last_digit() -> None:
    assert parse_number("1.51e-4 ± 1.01e-5") == (1.51e-4, 5e-7)
    assert parse_number("−0.5") == (-0.5, 0.05)
    assert [compare("1.00", [value], "higher") for value in (0.996, 0.994)] == [AS_REPORTED, "worse"]
    assert [compare("10001", [value], "later") for value in (10000.6, 10000.4)] == [AS_REPORTED, "earlier"]


class Answered:
    """As much of an answer as `judge` reads."""

    def __init__(self, ask: str, verdict: str | None, numbers: dict[str, Any], metric: str = "val/loss") -> None:
        from seedbed.specs import QuestionSpec

        self.question = QuestionSpec(ask=ask, metric=metric, over="train.lr", between="model.kind")  # type: ignore[arg-type]
        self.verdict, self.numbers = verdict, numbers


def test_a_claim_is_reproduced_only_if_the_answer_is_certain_and_says_the_same() -> None:
    from result_claims import judge

    means = {"means": {"LSTM": {"mean": 0.2}, "GPT": {"mean": 0.1}}}
    assert judge(Answered("which is better", "yes", means), "GPT") == "reproduced"  # type: ignore[arg-type]
    assert judge(Answered("which is better", "yes", means), "LSTM") == "the reverse"  # type: ignore[arg-type]
    assert judge(Answered("which is better", "yes", means, "val/accuracy"), "LSTM") == "reproduced"  # type: ignore[arg-type]
    assert judge(Answered("which is better", "cannot tell", means), "GPT") == "cannot tell"  # type: ignore[arg-type]
    assert judge(Answered("does it hold", "no", means)) == "not reproduced"  # type: ignore[arg-type]
    trend = {"all": {"means": {1: 0.2, 2: 0.1}, "corrected": 0.01, "not_monotone": False, "correlation": -1.0}}
    assert judge(Answered("how does it change", "yes", trend), "falls") == "reproduced"  # type: ignore[arg-type]
    assert judge(Answered("how does it change", "yes", trend), "rises") == "the reverse"  # type: ignore[arg-type]
    optimum = {"level": 512, "confidence_set": [32, 128, 512]}
    falling = {"all": {"means": {32: 0.3, 128: 0.2, 512: 0.1}, "corrected": 0.001, "optimum": optimum}}
    assert judge(Answered("how does it change", "yes", falling), 512) == "reproduced"  # type: ignore[arg-type]
    assert judge(Answered("how does it change", "yes", falling), 128) == "cannot tell"  # type: ignore[arg-type]
    assert judge(Answered("how does it change", "yes", falling), 32) == "not reproduced"  # type: ignore[arg-type]
    falling["all"]["corrected"] = 0.2
    assert judge(Answered("how does it change", "yes", falling), 32) == "cannot tell"  # type: ignore[arg-type]
    level = {"GPT": {"level": 0.5}, "LSTM": {"level": 0.6}}
    assert judge(Answered("smallest", "yes", level), 0.6) == "not reproduced"  # type: ignore[arg-type]


def test_a_page_is_trained_analysed_and_archived_by_one_command(tmp_path: Path) -> None:
    page = """
title = "A page"
hardware = "one CPU"
summary = "Of a tiny study."
overrides = { quickstart = ["task.p=5", "model.dim=8", "model.heads=2", "train.steps=4", "seeds=2"] }
[[tables]]
title = "Losses"
study = "quickstart"
columns = [{ name = "all" }]
rows = [{ label = "L_train", metric = "train/loss", statistic = "last", report = ["1.6"] }]
"""
    (tmp_path / "tiny.toml").write_text(page)
    assert "**Not trained yet.**" in make_page(tmp_path, "tiny")
    assert train_page("tiny", tmp_path / "home", [], tmp_path) == tmp_path / "tiny.zip.xz"
    text = make_page(tmp_path, "tiny")
    assert "| `seedbed run quickstart task.p=5 model.dim=8 model.heads=2 train.steps=4 seeds=2` | 2 | one CPU" in text
    assert "Not trained yet" not in text
    with pytest.raises(SystemExit, match="arithmetic/sanity: not on the page tiny, which has quickstart"):
        train_page("tiny", tmp_path / "home", ["arithmetic/sanity"], tmp_path)
