"""The report in a browser: opened from a file, every chart drawn, no external requests, no layout shift."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seedbed.report.html_report import write_report

from ..charts.factories import pixels
from ..report.factories import fill
from .chromium import Chromium

FIGURES = """
[[figures]]
metrics = ["train/loss", "val/loss"]
colour = "train.weight_decay"

[[figures]]
kind = "sweep"
x = "train.weight_decay"

[[figures]]
kind = "bars"
x = "train.weight_decay"

[[figures]]
kind = "parallel"
metrics = ["val/loss"]

[[questions]]
ask = "stopping"
metric = "val/loss"
"""
N_FIGURES = 4
ALL_DRAWN = f"document.querySelectorAll('figure.drawn').length === {N_FIGURES}"
TO_ALL = """(async () => {
  for (const figure of document.querySelectorAll("figure")) {
    figure.scrollIntoView();
    await new Promise((done) => setTimeout(done, 50));
  }
})()"""
# The fraction of each canvas that differs from its corner: a drawn chart has lines, a failed one at most a title.
INKED = """[...document.querySelectorAll(".live canvas")].map((canvas) => {
  const { width, height } = canvas, pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  let n = 0;
  const differs = (i) => Math.abs(pixels[i] - pixels[0]) + Math.abs(pixels[i + 2] - pixels[2]) > 60;
  for (let i = 0; i < pixels.length; i += 4) n += differs(i);
  return [height, n / (width * height)];
})"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    fill(home, shown=FIGURES)
    return write_report(home, ["toy"], [])


@pytest.mark.parametrize("dark", [False, True])
def test_every_chart_draws_from_a_file_without_other_requests(browser: Chromium, report: Path, dark: bool) -> None:
    browser.open(report, dark=dark)
    before = browser.value("document.documentElement.scrollHeight")
    browser.value(TO_ALL)
    browser.wait_for(ALL_DRAWN)
    drawn = browser.value(INKED)
    assert len(drawn) == N_FIGURES
    assert all(height > 150 and ink > 0.005 for height, ink in drawn), drawn
    assert browser.errors == []
    assert browser.urls == [report.as_uri()]
    after = browser.value("document.documentElement.scrollHeight")
    assert abs(after - before) <= 2 * N_FIGURES  # a chart replaces its static image, up to rounding
    dim = browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 28)"
    assert dim == dark


def test_charts_follow_the_theme_while_the_page_is_open(browser: Chromium, report: Path) -> None:
    corner = "[...document.querySelector('canvas').getContext('2d').getImageData(2, 2, 1, 1).data].slice(0, 3)"
    browser.open(report)
    browser.value(TO_ALL)
    browser.wait_for(ALL_DRAWN)
    assert browser.value(corner) == [255, 255, 255]
    browser.set_media("dark")
    browser.wait_for(f"{corner}.join() === '22,24,28'")
    assert [error for error in browser.errors if "getImageData" not in error] == []  # caused by this test


def test_print_shows_the_images_and_not_the_canvases(browser: Chromium, report: Path) -> None:
    seen = "[...document.querySelectorAll('{}')].filter((one) => one.getClientRects().length).length"
    browser.open(report, dark=True)
    browser.value(TO_ALL)
    browser.wait_for(ALL_DRAWN)
    assert [browser.value(seen.format(name)) for name in (".still svg", "canvas")] == [0, N_FIGURES]
    browser.set_media("dark", "print")
    assert [browser.value(seen.format(name)) for name in (".still svg", "canvas")] == [N_FIGURES, 0]
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_without_scripts_the_images_are_shown(browser: Chromium, report: Path) -> None:
    browser.open(report, script=False)
    screenshot = pixels(browser.screenshot())[..., :3].astype(int)
    blue = (abs(screenshot - [0, 114, 178]).sum(axis=-1) < 12).mean()  # the first line colour, #0072B2
    assert blue > 1e-4
    assert browser.errors == []


def test_a_narrow_window_scrolls_only_charts(browser: Chromium, report: Path) -> None:
    browser.open(report, width=400)
    browser.value(TO_ALL)
    browser.wait_for(ALL_DRAWN)
    assert browser.value("document.documentElement.scrollWidth") <= 400
