"""The pages of all studies, one study and one run in a real browser."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from seedbed.records import EvaluationEvent, FinishEvent, Pack, ParameterCounts, Placement, Plan, Run, SampleEvent
from seedbed.settings import Settings
from seedbed.store import open_store

from ..report.factories import fill
from ..web.factories import POEM
from ..web.server import run_server
from .conftest import ready, until

Visit = Callable[..., Page]
DRAWN = "#figure-1 .chart.drawn canvas"
# The fraction of a canvas that differs from its corner's colour: a drawn chart has lines, an empty one has none.
INK = """(() => {
  const canvas = document.querySelector("#figure-1 canvas"), { width, height } = canvas;
  const pixels = canvas.getContext("2d", { willReadFrequently: true }).getImageData(0, 0, width, height).data;
  let n = 0;
  const differs = (i) => Math.abs(pixels[i] - pixels[0]) + Math.abs(pixels[i + 2] - pixels[2]) > 60;
  for (let i = 0; i < pixels.length; i += 4) n += differs(i);
  return n / (width * height);
})()"""
UNLABELLED = """() => [...document.querySelectorAll("button, a, input, select, [role=img], [role=progressbar]")]
  .filter((one) => !(one.textContent.trim() || one.getAttribute("aria-label") || one.labels?.length || one.title))
  .map((one) => one.outerHTML)"""
SHIFT = """() => { window.shift = 0; new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value;
}).observe({ type: "layout-shift", buffered: true }); }"""
# Fonts are loaded and the layout has been drawn with them; observers are told in the frame after.
SETTLED = """async () => {
  await document.fonts.ready;
  for (let i = 0; i < 3; i += 1) await new Promise((drawn) => requestAnimationFrame(drawn));
}"""


# ---- studies ----


def test_studies_are_listed_with_progress_and_answer_and_found_by_name(visit: Visit, trained_home: Path) -> None:
    page = ready(visit(trained_home))
    card = page.locator("[data-name='tiny/rule']")
    expect(card.locator(".headline")).to_contain_text("weight decay")
    expect(card.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "100")
    expect(card).to_contain_text("4 finished")
    page.get_by_label("Find").fill("hebrew")
    expect(card).to_be_hidden()
    expect(page.locator("[data-name='tiny/hebrew'] .question")).to_have_text("מה לומד מודל קטן משיר אחד?")
    assert (
        page.evaluate("getComputedStyle(document.querySelector('[data-name=\"tiny/hebrew\"] .question')).direction")
        == "rtl"
    )
    page.reload()
    expect(page.get_by_label("Find")).to_have_value("hebrew")
    page.get_by_label("Find").fill("")
    page.get_by_role("link", name="tiny/rule").click()
    page.wait_for_url("**/study/tiny/rule")


def test_an_empty_home_shows_how_to_start_and_then_the_first_study(visit: Visit, tmp_path: Path) -> None:
    with run_server(tmp_path) as server:
        page = ready(visit(server))
        expect(page.locator("#none")).to_contain_text("seedbed run quickstart")
        fill(tmp_path, "first")
        expect(page.locator("[data-name='first']")).to_be_visible()
        expect(page.locator("#none")).to_have_count(0)
        page.close()


# ---- a study ----


@pytest.mark.parametrize("dark", [False, True])
def test_a_study_shows_its_answers_figures_configs_and_tables(visit: Visit, trained_home: Path, dark: bool) -> None:
    page = ready(visit(trained_home, "/study/tiny/rule", dark=dark))
    page.wait_for_selector(DRAWN)
    expect(page.locator(".answers .sentence").first).to_contain_text("it is 0.050 in every seed of both")
    expect(page.locator("#state")).to_have_text("4 runs: 4 finished.")
    assert page.locator("tr.config").count() == 2
    expect(page.locator("#figure-1 figcaption")).to_contain_text("n = 2 seeds per line")
    expect(page.locator("#tables table").first).to_be_visible()
    assert page.evaluate(INK) > 0.004
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(22, 24, 28)" if dark else "rgb(255, 255, 255)"
    )
    page.problems[:] = [one for one in page.problems if "getImageData" not in one]  # type: ignore[attr-defined]


def test_the_theme_switch_redraws_charts_and_is_remembered(visit: Visit, trained_home: Path) -> None:
    page = ready(visit(trained_home, "/study/tiny/rule"))
    page.wait_for_selector(DRAWN)
    pixel = "document.querySelector('#figure-1 canvas').getContext('2d').getImageData(2, 2, 1, 1).data"
    corner = f"[...{pixel}].slice(0, 3).join()"
    page.get_by_label("Theme").select_option("dark")
    until(page, f"{corner} === '22,24,28'")
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.get_by_label("Theme").select_option("system")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.problems[:] = [one for one in page.problems if "getImageData" not in one]  # type: ignore[attr-defined]


def test_the_url_holds_the_view(visit: Visit, trained_home: Path) -> None:
    page = ready(visit(trained_home, "/study/tiny/rule"))
    page.get_by_label("Colour").select_option("none")
    page.get_by_label("Columns").select_option("train.weight_decay")
    page.get_by_label("Only runs with").select_option("seed=0")
    expect(page.locator("#state")).to_have_text("2 runs: 2 finished.")
    shared = page.url.partition("/study/")[2]
    assert shared == "tiny/rule?colour=none&column=train.weight_decay&only=seed%3D0"
    again = ready(visit(trained_home, f"/study/{shared}"))
    expect(again.locator("#state")).to_have_text("2 runs: 2 finished.")
    expect(again.get_by_label("Columns")).to_have_value("train.weight_decay")
    expect(again.locator("#figure-1 .series")).to_be_visible()
    page.get_by_role("button", name="remove the filter seed=0").click()
    expect(page.locator("#state")).to_have_text("4 runs: 4 finished.")
    page.go_back()
    expect(page.locator("#state")).to_have_text("2 runs: 2 finished.")
    page.get_by_role("button", name="Reset view").click()
    expect(page.locator("#state")).to_have_text("4 runs: 4 finished.")
    assert page.url.endswith("/study/tiny/rule")


def test_a_series_is_hidden_and_shown_again_without_moving_the_axes(visit: Visit, trained_home: Path) -> None:
    page = ready(visit(trained_home, "/study/tiny/rule"))
    page.wait_for_selector(DRAWN)
    before = page.evaluate(INK), page.evaluate("document.querySelector('#figure-1 canvas').width")
    button = page.locator("#figure-1 .series button").first
    button.click()
    until(page, f"{INK} < {before[0]} * 0.97")
    expect(button).to_have_attribute("aria-pressed", "false")
    assert "hide=0.1" in page.url
    assert page.evaluate("document.querySelector('#figure-1 canvas').width") == before[1]
    button.click()
    until(page, f"Math.abs({INK} - {before[0]}) < 1e-4")
    page.problems[:] = [one for one in page.problems if "getImageData" not in one]  # type: ignore[attr-defined]


def test_configs_are_sorted_searched_and_expanded_into_their_runs(visit: Visit, trained_home: Path) -> None:
    page = ready(visit(trained_home, "/study/tiny/rule"))
    table = page.locator(".configs")
    first = table.locator("tr.config td").nth(1)
    page.get_by_role("button", name="weight decay").click()
    page.get_by_role("button", name="weight decay").click()
    expect(first).to_have_text("1")
    expect(table.locator("th[data-key='train.weight_decay']")).to_have_attribute("aria-sort", "descending")
    page.get_by_role("button", name="runs of train.weight_decay=0.1").click()
    assert table.locator("tr.run").count() == 2
    page.get_by_label("Find in the table").fill("weight_decay=0.1")
    expect(page.locator("#count")).to_have_text("1 of 2 configs")
    page.reload()
    ready(page)
    assert table.locator("tr.run").count() == 2, "expanded rows stay expanded"
    page.get_by_label("Find in the table").fill("")
    page.get_by_label("One line for each").select_option("runs")
    expect(page.locator("#count")).to_have_text("4 of 4 runs")
    page.locator("#columns summary").click()
    page.get_by_role("checkbox", name="t_f(A_val)").check()
    expect(table.locator("th[data-key='t_f val/accuracy']")).to_be_visible()
    page.get_by_role("checkbox", name="tick train.weight_decay=0.1 seed 1").check()
    page.get_by_role("checkbox", name="tick train.weight_decay=1 seed 1").check()
    with page.expect_download() as saved:
        page.locator("#csv button").click()
    head, *rows = Path(saved.value.path()).read_text().splitlines()
    assert head.startswith("train.weight_decay,seed,status,step,train/loss,val/loss")
    assert [row.split(",")[:3] for row in rows] == [[w, s, "finished"] for w in ("1", "0.1") for s in ("0", "1")]
    page.get_by_role("button", name="Hide").click()
    expect(page.locator("#state")).to_have_text("2 runs: 2 finished.")
    page.go_back()
    expect(page.locator("#state")).to_have_text("4 runs: 4 finished.")
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_url("**/compare?a=*&b=*")


def test_hovering_a_line_shows_its_config_and_the_step_in_every_panel(visit: Visit, trained_home: Path) -> None:
    page = ready(visit(trained_home, "/study/tiny/rule"))
    page.wait_for_selector(DRAWN)
    canvas = page.locator("#figure-1 canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box
    for across in range(60, 240, 6):
        for down in range(40, int(box["height"]) - 60, 12):
            page.mouse.move(box["x"] + across, box["y"] + down)
            if page.evaluate("document.querySelector('#tip') !== null"):
                break
        else:
            continue
        break
    expect(page.locator("#tip")).to_contain_text("weight decay ")
    expect(page.locator("#tip")).to_contain_text("n 2")
    expect(page.locator("#figure-1 .cursor")).to_have_count(2)
    steps = page.locator("#figure-1 .cursor").all_inner_texts()
    assert steps[0] == steps[1]
    assert 0 <= float(steps[0]) <= 61
    domain = "document.querySelector('#figure-1').figure.vega.scale('concat_0_x').domain().join()"
    before = page.evaluate(domain)
    page.mouse.wheel(0, 200)
    until(page, "scrollY > 100")
    assert page.evaluate(domain) == before, "the wheel alone scrolls the page"
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box
    page.mouse.move(box["x"] + across, box["y"] + down)  # the same panel, which the page has moved
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    until(page, f"{domain} !== '{before}'")


def test_everything_is_usable_by_keyboard(visit: Visit, trained_home: Path) -> None:
    page = ready(visit(trained_home, "/study/tiny/rule"))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    page.get_by_role("button", name="runs of train.weight_decay=0.1").focus()
    page.keyboard.press("Enter")
    expect(page.locator("tr.run")).to_have_count(2)
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "runs of train.weight_decay=0.1", (
        "focus stays"
    )
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    unlabelled = page.evaluate(UNLABELLED)
    assert unlabelled == []


@pytest.mark.parametrize("path", ["/", "/study/tiny/rule", "run"])
def test_there_is_no_layout_shift_and_a_small_screen_scrolls_only_charts(
    visit: Visit, trained_home: Path, path: str
) -> None:
    with open_store(trained_home, read_only=True) as store:
        run = store.runs("tiny/hebrew")[0].id
    for width in (1200, 390):
        page = visit(trained_home, f"/run/{run}" if path == "run" else path, width=width)
        page.evaluate(SHIFT)
        ready(page)
        page.evaluate(SETTLED)
        assert page.evaluate("window.shift") < 0.1, "cumulative layout shift; up to 0.1 is good"
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_print_is_light_and_without_controls(visit: Visit, trained_home: Path) -> None:
    page = ready(visit(trained_home, "/study/tiny/rule", dark=True))
    page.wait_for_selector(DRAWN)
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#controls").is_visible()
    until(
        page, "document.querySelectorAll('figure .chart.drawn').length === document.querySelectorAll('figure').length"
    )
    assert page.locator("#tables th").first.is_visible()


# ---- live updates ----


def _start_study(home: Path) -> tuple[list[Run], str]:
    runs = [
        Run(f"{seed}aa{seed}", seed, {}, Settings.from_flat({"train.steps": 10**6}), ParameterCounts(20, 10))
        for seed in (0, 1)
    ]
    with open_store(home) as store:
        store.register(Plan("grows", 'name = "grows"\n[[figures]]\nmetrics = ["val/loss"]\n', (), tuple(runs)))
        (pack,) = store.claim([Pack("made", tuple(runs), 1)], lambda _: Placement())
        store.resume(pack.id)
    return runs, pack.id


def test_curves_are_updated_during_training_within_seconds(visit: Visit, tmp_path: Path) -> None:
    _, pack = _start_study(tmp_path)
    ended, written = threading.Event(), {}

    def train() -> None:
        with open_store(tmp_path) as store, store.lock(pack):
            for step in count(0, 10):  # until the page has shown enough, however slow the machine
                store.record(
                    pack,
                    [EvaluationEvent(step, (0, 1), ("val/loss",), np.array([[3 / (1 + step)], [3.1 / (1 + step)]]))],
                )
                written[step] = time.monotonic()
                if ended.wait(0.25):
                    break

    with run_server(tmp_path) as server:
        trainer = threading.Thread(target=train)
        trainer.start()
        page = ready(visit(server, "/study/grows"))
        last = "Math.max(...document.querySelector('#figure-1').figure.spec?.datasets.rows.map((row) => row.x) ?? [-1])"
        latest, delays = -1, []
        end = time.monotonic() + 120
        while len(delays) < 6:
            assert time.monotonic() < end, "the curves are not updated"
            if (now := page.evaluate(f"(() => {{ try {{ return {last}; }} catch {{ return -1; }} }})()")) > latest:
                latest = now
                newer = [at for step, at in written.items() if step > now]
                delays.append(time.monotonic() - min(newer) if newer else 0.0)
            time.sleep(0.05)
        expect(page.locator("#left")).to_contain_text("left")
        ended.set()
        trainer.join()
        page.close()
    if os.getloadavg()[0] <= (os.cpu_count() or 1):  # a delay says something about the page on an idle machine only
        assert sorted(delays)[len(delays) // 2] <= 2.0, delays


def test_a_removed_study_and_a_stopped_server_are_reported(visit: Visit, tmp_path: Path) -> None:
    fill(tmp_path, "going")
    with run_server(tmp_path) as server:
        page = ready(visit(server, "/study/going"))
        with open_store(tmp_path) as store:
            store.remove("going", [run.id for run in store.runs("going")])
        expect(page.locator("#status")).to_contain_text("was removed from the store")
    expect(page.locator("#status")).to_contain_text("connection lost")
    page.problems.clear()  # type: ignore[attr-defined] – the browser logs the lost connection


# ---- a run ----


def test_a_run_shows_curves_settings_time_checkpoints_and_samples(visit: Visit, trained_home: Path) -> None:
    with open_store(trained_home, read_only=True) as store:
        run = store.runs("tiny/hebrew")[0].id
    page = ready(visit(trained_home, f"/run/{run}"))
    page.wait_for_selector(DRAWN)
    expect(page.get_by_role("heading", level=1)).to_contain_text(", seed ")
    assert page.locator("canvas").bounding_box()["width"] > 0.8 * page.locator("#body").bounding_box()["width"]
    expect(page.locator("#state")).to_contain_text("finished at step 60 of 60")
    expect(page.locator("#settings")).to_contain_text("train.sample_every")
    expect(page.locator("#time")).to_contain_text("1 run trained side by side on cpu")
    assert page.locator("#checkpoints tbody tr").count() == 2
    expect(page.get_by_role("link", name="Look inside", exact=True)).to_have_attribute("href", f"/inside?run={run}")
    slider = page.get_by_label("Training step")
    last = page.locator(".written").inner_text()
    slider.focus()
    page.keyboard.press("Home")
    expect(page.locator("#at")).to_have_text("20")
    assert page.locator(".written").inner_text() != last
    assert "step=20" in page.url


def test_copied_spans_are_marked_in_samples(visit: Visit, tmp_path: Path) -> None:
    corpus = tmp_path / "poem.txt"
    corpus.write_text(POEM, encoding="utf-8")
    settings = Settings.from_flat(
        {"task.kind": "text", "task.corpus": str(corpus), "task.length": 24, "train.sample_every": 10}
    )
    run = Run("writes", 0, {}, settings, ParameterCounts(20, 10), settings.task.dataset_info())
    with open_store(tmp_path) as store:
        store.register(Plan("writes", 'name = "writes"\n', (), (run,)))
        (pack,) = store.claim([Pack("made", (run,), 1)], lambda _: Placement())
        with store.lock(pack.id):
            store.resume(pack.id)
            text = "אבגדה <b>x</b> " + POEM[100:130] + " זחט"
            store.record(pack.id, [SampleEvent(0, 10, "", text, (1, 2), (-0.1, -0.2)), FinishEvent(0, 10)])
    page = ready(visit(tmp_path, "/run/writes"))
    expect(page.locator(".written mark")).to_have_text(POEM[100:130].strip(), use_inner_text=False)
    expect(page.locator(".written")).to_contain_text("<b>x</b>")
    assert page.locator(".written b").count() == 0
    assert page.evaluate("getComputedStyle(document.querySelector('.written')).direction") == "rtl"


# ---- hostile strings ----

EVIL = "<img src=x onerror=window.pwned=1><script>window.pwned=1</script>&quot;'\"`${window.pwned=1}"


def test_hostile_names_and_texts_are_shown_and_never_executed(visit: Visit, tmp_path: Path) -> None:
    fill(
        tmp_path,
        EVIL,
        question=EVIL,
        diverges=0,
        shown='[[figures]]\nmetrics = ["val/loss"]\ntitle = """<img src=x onerror=window.pwned=1>"""\n',
    )
    with open_store(tmp_path, read_only=True) as store:
        run = store.runs(EVIL)[0].id
    page = ready(visit(tmp_path, "/"))
    expect(page.locator(".card h2")).to_have_text(EVIL)
    page.locator(".card h2 a").click()
    ready(page)
    page.wait_for_selector(DRAWN)
    expect(page.locator("h1")).to_have_text(EVIL)
    page.locator("tr.config button").first.click()
    page.locator("tr.run a").first.click()
    ready(page)
    expect(page.locator("h1")).to_contain_text("seed 0")
    assert unquote(page.url).endswith(f"/run/{run}")
    assert page.evaluate("window.pwned") is None
    assert page.locator("img:not([src='/static/icon.svg'])").count() == 0
