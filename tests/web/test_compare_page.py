"""The Compare page and downloads without a browser: the numbers of the command line, and valid files."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from seedbed.charts.pairwise_differences import gather_pairwise_differences
from seedbed.report.group_comparison import compare_named_groups
from seedbed.report.study_answers import load_groups
from seedbed.stats.answers.best_group import compare_groups
from seedbed.stats.answers.finding import MetricStatistic
from seedbed.store import open_store
from seedbed.web.compare_page import GROUP_KEYS, CompareQuery, compute_comparison
from seedbed.web.downloads import content_disposition
from seedbed.web.store_cache import StoreCache

from ..charts.factories import pixels
from ..report.factories import fill
from .conftest import client_of

QUERY = {"a": "toy train.weight_decay=0.1", "b": "toy train.weight_decay=1.0", "metric": "val/loss"}
SPLIT = {"a": "toy", "by": "train.weight_decay", "metric": "val/loss"}
FIGURES = """
[[figures]]
metrics = ["train/loss", "val/loss"]
title = "Losses"

[[figures]]
kind = "bars"
x = "train.weight_decay"
metrics = ["val/loss"]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`toy`: three weight decays × seven seeds; `an other/toy`: one decay × three seeds; seeds differ by 0.1."""
    home = tmp_path_factory.mktemp("compared")
    fill(home, "toy", (0.1, 1.0, 3.0), range(7), shown=FIGURES, special={2: 0.2})
    fill(home, "an other/toy", (0.5,), range(3))
    return home


@pytest.fixture(scope="module")
def client(home: Path) -> Iterator[TestClient]:
    with client_of(home) as opened:
        yield opened


# ---- comparing ----


def test_the_sentence_and_the_numbers_match_the_command_line(client: TestClient, home: Path) -> None:
    found = client.get("/api/compare", params=QUERY).json()
    with open_store(home, read_only=True) as store:
        groups = load_groups(store, ["toy", "train.weight_decay=0.1", "train.weight_decay=1.0"])
    expected = compare_groups(groups, MetricStatistic("val/loss", "best"))
    assert found["sentence"] == expected.sentence
    assert "7 paired seeds" in found["sentence"]
    (row,) = found["tables"][1]["rows"]  # six differences of −0.9 and one of −2: the interval reaches to the long tail
    assert row[:4] == ["train.weight_decay=0.1", "train.weight_decay=1.0", "−1.06", "[−2, −0.9]"]


def test_a_setting_splits_a_study_by_its_values(client: TestClient) -> None:
    found = client.get("/api/compare", params=SPLIT).json()
    assert [group["name"] for group in found["groups"]] == ["weight decay 0.1", "weight decay 1", "weight decay 3"]
    assert len(found["tables"][1]["rows"]) == 3


def test_many_values_and_times_to_a_threshold_have_tables_too(tmp_path: Path) -> None:
    fill(tmp_path, "toy", (0.1, 0.2, 0.3, 0.4, 0.5), range(6))
    with client_of(tmp_path) as client:
        many = client.get("/api/compare", params={**SPLIT, "metric": "val/loss"}).json()
        groups = {"a": "toy train.weight_decay=0.1", "b": "toy train.weight_decay=0.5"}
        times = client.get("/api/compare", params={**groups, "metric": "val/accuracy", "value": "t_50"}).json()
    [means] = many["tables"]  # five numbers have a trend and an optimum, not ten pairs
    assert [row[0] for row in means["rows"]] == ["0.1", "0.2", "0.3", "0.4", "0.5"]
    medians, pairs = times["tables"]
    assert medians["columns"][-1] == "runs that got there"
    assert [row[-1] for row in medians["rows"]] == ["6 of 6", "6 of 6"]
    assert pairs["rows"][0][2:4] == ["–", "–"]


def test_study_names_with_spaces_and_run_ids_are_groups_too(home: Path) -> None:
    with open_store(home, read_only=True) as store:
        run = store.runs("toy")[0].id
    query = CompareQuery.from_query({"a": "an other/toy", "b": "an other/toy train.weight_decay=0.5", "c": run})
    found = compute_comparison(StoreCache(home), query)
    assert [len(runs) for runs in found.groups.values()] == [3, 3, 1]


def test_differences_are_paired_by_seed(home: Path) -> None:
    found = compute_comparison(StoreCache(home), CompareQuery.from_query(QUERY))
    (pair,) = gather_pairwise_differences(found.result.numbers, found.subject).differences
    # The loss is weight decay + seed / 10 + a constant, so seeds differ by 0.9; seed 2 was made an exception.
    values = dict(pair.values)
    assert values.pop(2) == pytest.approx(0.7 - 2.7)
    assert list(values.values()) == pytest.approx([-0.9] * 6)
    assert pair.effect == pytest.approx((6 * -0.9 - 2.0) / 7)
    assert pair.low < pair.effect < pair.high
    assert pair.pair == "0.1 − 1.0"


def test_one_seed_has_a_difference_and_no_interval(home: Path) -> None:
    with open_store(home, read_only=True) as store:
        groups = load_groups(store, ["toy", "train.weight_decay=0.1 seed=3", "train.weight_decay=1.0 seed=3"])
        found = compare_named_groups(groups, MetricStatistic("val/loss", "best"))
    assert found.tables()[1].rows[0][2:] == ("−0.9", "–", "–", "–", "1", "by seed", "cannot tell")


def test_runs_of_equal_settings_keep_their_own_curves(home: Path) -> None:
    with open_store(home, read_only=True) as store:
        groups = load_groups(store, ["toy", "train.weight_decay=0.1 seed=0", "train.weight_decay=0.1 seed=1,3"])
        spec = compare_named_groups(groups, MetricStatistic("val/loss", "best")).figures()["curves"].spec
    assert spec is not None
    lines = [row["name"] for row in csv.DictReader(io.StringIO(spec["datasets"]["lines"]))]
    assert len(lines) == 4  # two groups, on training and on validation samples


def test_configs_are_listed_with_filters_that_select_them(client: TestClient) -> None:
    found = client.get("/api/compare/study", params={"name": "toy"}).json()
    assert found["axes"] == ["train.weight_decay"]
    assert [config["filters"] for config in found["configs"]] == [
        f"train.weight_decay={value}" for value in ("0.1", "1.0", "3.0")
    ]
    assert [config["runs"] for config in found["configs"]] == [7, 7, 7]
    assert found["metrics"][:2] == ["val/accuracy", "val/loss"]


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ({}, 400, "nothing is chosen yet"),
        ({"a": "toy"}, 400, "only one group"),
        ({"a": "nothing", "b": "toy"}, 404, "neither a stored study, a run"),
        ({"a": "toy", "by": "train.momentun"}, 404, "neither"),
        ({"a": "toy", "b": "an other/toy", "by": "train.lr"}, 400, "splits one study"),
        (QUERY | {"value": "worst"}, 400, "expected one of best"),
        ({"a": "toy train.weight_decay=7", "b": "toy"}, 404, "no run of toy has"),
        ({"a": "../toy", "b": "/etc/passwd"}, 404, "neither"),
    ],
)
def test_an_impossible_comparison_is_explained(
    client: TestClient, query: dict[str, str], status: int, message: str
) -> None:
    found = client.get("/api/compare", params=query)
    assert found.status_code == status
    assert message in found.json()["error"]


def test_an_empty_home_shows_how_to_start(tmp_path: Path) -> None:
    with client_of(tmp_path) as client:
        assert "seedbed run quickstart" in client.get("/compare").text
        assert client.get("/api/compare", params=QUERY).status_code == 404


def test_a_query_has_at_most_one_group_per_key() -> None:
    query = CompareQuery.from_query({letter: f"study {letter}" for letter in "abcdefghijklmnop"})
    assert len(query.groups) == len(GROUP_KEYS)


# ---- downloads ----


@pytest.mark.parametrize(
    "path", ["study/toy/figure/1", "study/toy/figure/2", "compare/differences", "compare/curves", "compare/parallel"]
)
@pytest.mark.parametrize(("file_format", "magic"), [("svg", b"<svg"), ("pdf", b"%PDF-"), ("png", b"\x89PNG")])
def test_every_chart_can_be_downloaded_as_an_image(
    client: TestClient, path: str, file_format: str, magic: bytes
) -> None:
    found = client.get(f"/download/{path}.{file_format}", params=QUERY)
    assert found.status_code == 200, found.text
    assert found.content.startswith(magic)
    assert found.headers["content-disposition"].startswith("attachment; ")
    assert found.headers["x-content-type-options"] == "nosniff"


def test_a_dark_image_is_dark(client: TestClient) -> None:
    corners = [
        pixels(client.get("/download/study/toy/figure/1.png", params={"theme": theme}).content)[1, 1, :3].tolist()
        for theme in ("light", "dark")
    ]
    assert corners == [[255, 255, 255], [0x16, 0x18, 0x1C]]


def test_an_image_shows_the_current_view(client: TestClient) -> None:
    plain = client.get("/download/study/toy/figure/1.svg", params={"colour": "none"}).text  # not by what varies
    coloured = client.get("/download/study/toy/figure/1.svg", params={"colour": "train.weight_decay"}).text
    without = client.get(
        "/download/study/toy/figure/1.svg", params={"colour": "train.weight_decay", "hide": ["0.1"]}
    ).text
    assert without.count("<path") < coloured.count("<path")
    assert client.get("/download/study/toy/figure/1.svg", params={"smooth": 0.9}).text != plain
    assert client.get("/download/study/toy/figure/1.svg", params={"smooth": 1}).status_code == 400
    assert "weight decay" in coloured
    assert "weight decay" not in plain


def test_tables_match_the_page_in_every_format(client: TestClient) -> None:
    pairs = client.get("/api/compare", params=SPLIT).json()["tables"][1]
    text = client.get("/download/compare/pairs.csv", params=SPLIT)
    rows = list(csv.reader(io.StringIO(text.text)))
    assert text.headers["content-type"] == "text/csv; charset=utf-8"
    shown = [[re.sub("^−", "-", cell) for cell in row] for row in pairs["rows"]]  # numbers are written as numbers
    assert rows == [pairs["columns"], *shown]
    assert r"\begin{tabular}" in client.get("/download/compare/means.tex", params=SPLIT).text
    assert "| first |" in client.get("/download/compare/pairs.md", params=SPLIT).text
    assert client.get("/download/study/toy/table/1.csv").text.startswith("metric,")


def test_a_cell_that_a_spreadsheet_would_execute_is_escaped(tmp_path: Path) -> None:
    fill(tmp_path, "=cmd|' /C calc'!A1")
    fill(tmp_path, "toy")
    with client_of(tmp_path) as client:
        query = {"a": "=cmd|' /C calc'!A1", "b": "toy", "metric": "val/loss"}
        found = client.get("/download/compare/means.csv", params=query)
    cells = [cell for row in csv.reader(io.StringIO(found.text)) for cell in row]
    assert "'=cmd|' /C calc'!A1" in cells
    assert not any(re.match(r"[=+@]", cell) for cell in cells)


@pytest.mark.parametrize(
    "path",
    ["study/toy/figure/9.svg", "study/toy/figure/0.svg", "study/none/figure/1.svg", "study/toy/table/9.csv",
     "study/../../etc/passwd/figure/1.svg", "study/%2e%2e%2f%2e%2e/figure/1.svg", "compare/pairs.svg",
     "compare/curves.csv"],
)  # fmt: skip
def test_missing_downloads_are_404(client: TestClient, path: str) -> None:
    assert client.get(f"/download/{path}", params=QUERY).status_code == 404


@pytest.mark.parametrize(
    "path",
    ["study/toy/figure/1.exe", "study/toy/figure/x.svg", "compare/pairs.html", "study/toy/figure/1.svg?theme=red"],
)
def test_invalid_downloads_are_400(client: TestClient, path: str) -> None:
    assert client.get(f"/download/{path}").status_code == 400


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("arithmetic/sanity figure 1", "arithmetic-sanity-figure-1"),
        ('x"; filename="evil.exe', "x-filename=-evil.exe"),
        ("a\r\nset-cookie: b", "a-set-cookie-b"),
        ("../../etc/passwd", "etc-passwd"),
        ("..", "seedbed"),
        ("שיר", "seedbed"),
    ],
)
def test_file_names_are_safe(name: str, safe: str) -> None:
    header = content_disposition(name, "csv")
    assert f'filename="{safe}.csv"' in header
    assert header.isascii()
    assert not set("\r\n/\\") & set(header)


def test_the_comparison_is_strict_json(client: TestClient) -> None:
    def reject(constant: str) -> None:
        raise AssertionError(constant)

    text = client.get("/api/compare", params=QUERY | {"value": "delta_t"}).text
    json.loads(text, parse_constant=reject)
