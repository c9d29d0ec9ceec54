"""The Compare and Start pages in a browser: choose groups, see results, start a real study, see every job state."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from seedbed.web.jobs import JobOutcome, JobRecord, JobStore
from seedbed.web.processes import ProcessIdentity, terminate

from ..report.factories import fill

Visit = Callable[..., Page]
# How many pixels are coloured between the two axes of the last chart: a brush fades the other lines.
INK = """() => {
  const canvas = document.querySelector("[data-figure=parallel] canvas");
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(80, 0, 200, canvas.height);
  let n = 0;
  for (let i = 0; i < data.length; i += 4) n += Math.abs(data[i] - data[i + 2]) > 40;
  return n;
}"""


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("compared")
    fill(home, "toy", (0.1, 0.3, 1.0, 3.0), range(6), special={2: 0.2, 9: 1.0})
    fill(home, "עברית/<img src=x onerror=alert(1)>", (0.1, 0.5), range(3))
    return home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home whose jobs are stopped after the test."""
    yield tmp_path / "lab"
    for one in JobStore(tmp_path / "lab").all():
        if one.process is not None:
            terminate(one.process)


def all_drawn(page: Page) -> None:
    """Waits until the three charts of a comparison are drawn."""
    expect(page.locator(".chart.drawn canvas")).to_have_count(3)


# ---- compare ----


@pytest.mark.parametrize("dark", [False, True])
def test_splitting_a_study_by_a_setting_compares_its_values(visit: Visit, compared: Path, dark: bool) -> None:
    page = visit(compared, "/compare", dark=dark)
    expect(page.locator(".empty")).to_contain_text("Choose two or more configs")
    page.select_option("#study", "toy")
    page.select_option("#by", "train.weight_decay")
    expect(page.locator(".verdict")).to_contain_text("weight decay 0.1")
    all_drawn(page)
    assert "by=train.weight_decay" in page.url
    expect(page.locator("table").first.locator("tbody tr")).to_have_count(6)
    page.select_option("#metric", "val/loss")
    expect(page.locator(".verdict")).to_contain_text("validation loss")
    again = page.url
    page.goto(again.replace("val%2Floss", "train%2Floss"))
    expect(page.locator(".verdict")).to_contain_text("training loss")


def test_configs_are_added_and_removed_and_the_url_can_be_shared(visit: Visit, compared: Path) -> None:
    page = visit(compared, "/compare")
    page.select_option("#study", "toy")
    page.get_by_role("checkbox", name="weight decay 0.1").check()
    expect(page.locator("#found")).to_contain_text("choose another")
    page.get_by_role("checkbox", name="weight decay 3").check()
    expect(page.locator(".verdict")).to_be_visible()
    shared = visit(compared, page.url[page.url.index("/compare") :])
    expect(shared.locator("#groups li")).to_have_count(2)
    expect(shared.locator(".verdict")).to_have_text(page.locator(".verdict").inner_text())
    page.get_by_role("button", name=re.compile(r"remove .*=3\.0$")).click()
    expect(page.locator("#groups li")).to_have_count(1)
    page.go_back()
    expect(page.locator("#groups li")).to_have_count(2)


def test_a_brush_on_one_axis_fades_the_other_lines(visit: Visit, compared: Path) -> None:
    page = visit(compared, "/compare?a=toy&by=train.weight_decay&metric=val/loss")
    all_drawn(page)
    canvas = page.locator("[data-figure=parallel] canvas")
    canvas.scroll_into_view_if_needed()
    before = page.evaluate(INK)
    box = canvas.bounding_box()
    assert box is not None
    x, top = box["x"] + 12 + 45, box["y"] + box["height"] - 12 - 260  # the first axis, in chart coordinates
    page.mouse.move(x, top + 150)
    page.mouse.down()
    page.mouse.move(x, top + 200, steps=3)
    page.mouse.move(x, top + 255, steps=3)
    page.mouse.up()
    page.wait_for_function(f"() => ({INK})() < 0.9 * {before}")
    page.mouse.click(x, top + 60)
    page.wait_for_function(f"() => ({INK})() === {before}")


def test_a_chart_and_a_table_are_downloaded(visit: Visit, compared: Path) -> None:
    page = visit(compared, "/compare?a=toy&by=train.weight_decay&metric=val/loss")
    all_drawn(page)
    with page.expect_download() as got:
        page.locator("[data-figure=differences]").get_by_role("link", name="PDF").click()
    assert got.value.path().read_bytes().startswith(b"%PDF-")
    assert got.value.suggested_filename.endswith("differences.pdf")
    with page.expect_download() as got:
        page.get_by_role("link", name="CSV").first.click()
    assert got.value.path().read_text().startswith("first,second,difference")


def test_a_study_name_is_shown_and_never_executed(visit: Visit, compared: Path) -> None:
    name = "עברית/<img src=x onerror=alert(1)>"
    page = visit(compared, "/compare")
    page.on("dialog", lambda _: pytest.fail("a name was executed"))
    page.select_option("#study", name)
    page.select_option("#by", "train.weight_decay")
    all_drawn(page)
    expect(page.locator("#groups")).to_contain_text(name)
    assert page.locator("main img").count() == 0


# ---- start ----


def test_an_invalid_value_is_reported_at_its_setting_and_disables_start(visit: Visit, home: Path) -> None:
    page = visit(home, "/start")
    expect(page.locator("#go")).to_be_enabled()
    rate = page.get_by_label("train.lr", exact=True)
    rate.fill("fast")
    expect(page.locator("[data-setting='train.lr'] .error")).to_have_text(
        'train.lr = "fast": expected a number above 0'
    )
    expect(page.locator("#go")).to_be_disabled()
    assert rate.get_attribute("aria-invalid") == "true"
    rate.fill("0.001,0.01")
    expect(page.locator("#plan")).to_contain_text("16 runs")
    expect(page.locator("#plan caption").first).to_contain_text("2 configs")
    assert "override=train.lr%3D0.001%2C0.01" in page.url
    page.get_by_role("button", name="train.lr: reset").click()
    expect(page.locator("#plan")).to_contain_text("8 runs")
    assert "override" not in page.url


def test_choices_are_checked_and_another_kind_brings_its_settings(visit: Visit, home: Path) -> None:
    page = visit(home, "/start?study=quickstart")
    kind = page.locator("[data-setting='model.kind']")
    kind.get_by_label("lstm").check()
    expect(page.locator("[data-setting='model.gate_biases']")).to_have_count(1)
    expect(page.locator("#plan")).to_contain_text("16 runs")
    page.locator("[data-setting='model.kind']").get_by_label("gpt").uncheck()
    expect(page.locator("#plan")).to_contain_text("model.heads has no effect")
    page.fill("#find", "gate")
    expect(page.locator("[data-setting='model.gate_init']")).to_be_visible()
    expect(page.locator("[data-setting='seeds']")).to_be_hidden()


def test_a_study_is_started_paused_and_removed_from_the_list(visit: Visit, home: Path) -> None:
    page = visit(home, "/start?study=quickstart&override=train.steps=100000&override=task.p=7&override=seeds=1")
    page.locator("#go").click()
    job = page.locator(".job")
    expect(job).to_have_attribute("data-state", "running")
    expect(job).to_contain_text("train.steps=100000")
    page.locator("#go").click()
    expect(page.locator("#status")).to_contain_text("already")
    job.get_by_role("button", name="Pause").click()
    expect(job).to_have_attribute("data-state", "paused")
    expect(job).to_contain_text("Everything up to here is saved")
    job.get_by_role("button", name="Remove from list").click()
    expect(page.locator(".job")).to_have_count(0)
    page.problems[:] = [one for one in page.problems if "503" not in one]  # type: ignore[attr-defined]


def test_every_job_state_is_explained(visit: Visit, home: Path) -> None:
    store = JobStore(home)
    store.folder.mkdir(parents=True)
    outcomes = [
        ("finished", "", JobOutcome(0, {"finished": 2})), ("failed", "", JobOutcome(6, {"finished": 1, "failed": 1})),
        ("failed", "", JobOutcome(-9, {"running": 2})), ("stopped", "stop", JobOutcome(143, {"stopped": 2})),
        ("planned", "", None),
    ]  # fmt: skip
    for number, (_, stop_request, outcome) in enumerate(outcomes):
        started_at = f"2030-01-0{9 - number}T00:00:00+00:00"
        process = ProcessIdentity(1, "exited") if outcome else None
        ids = ("r0", "r1")
        store.write(
            JobRecord(f"{number:016x}", "quickstart", "shipped", (), ids, started_at, process, stop_request, outcome)
        )  # type: ignore[arg-type]
        store.path(f"{number:016x}", "log").write_text(
            "training 2 runs\n<b>seedbed</b>: pack 2/2 failed: no more memory\n"
        )
    page = visit(home, "/start", width=390)
    jobs = page.locator(".job")
    expect(jobs).to_have_count(len(outcomes))
    assert [jobs.nth(i).get_attribute("data-state") for i in range(len(outcomes))] == [
        state for state, _, _ in outcomes
    ]
    expect(jobs.nth(1)).to_contain_text("exit code 6: some runs failed")
    expect(jobs.nth(1).locator("pre")).to_be_visible()
    expect(jobs.nth(1).locator("pre")).to_contain_text("<b>seedbed</b>: pack 2/2 failed")
    expect(jobs.nth(2)).to_contain_text("killed (SIGKILL)")
    expect(jobs.nth(3).get_by_role("button", name="Resume")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_form_is_usable_by_keyboard(visit: Visit, home: Path) -> None:
    page = visit(home, "/start")
    expect(page.locator("#go")).to_be_enabled()
    page.get_by_label("seeds", exact=True).focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("2")
    expect(page.locator("#plan")).to_contain_text("2 runs")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "reset"
