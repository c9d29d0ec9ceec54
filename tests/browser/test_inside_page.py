"""The Inside page in a browser: attention of every kind of run, by pointer and keyboard, in both text directions."""

from __future__ import annotations

import csv
from collections import Counter
from urllib.parse import quote, urlencode

import pytest
from playwright.sync_api import Page, expect

TEXTS = {
    "english": ("my <b>it</b> is", 15), "hebrew": ("שלום לך ארץ", 11), "sums": ("3 + 5 = 1", 6),
    "labels": ("day 2 was grey", 9), "lstm": ("good night", 10),
}  # fmt: skip
# How much of the left and of the right half of a canvas is drawn on.
INKED = """(canvas) => {
  const { width, height } = canvas, data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  const halves = [0, 0];
  for (let at = 3; at < data.length; at += 4) halves[((at >> 2) % width) * 2 < width ? 0 : 1] += data[at] / 255;
  return halves.map((sum) => sum / (width * height / 2));
}"""


def url(model_zoo, name: str, **more: object) -> str:
    return "/inside?" + urlencode({"run": model_zoo[name], "text": TEXTS[name][0]} | more, quote_via=quote)


def tokens(page: Page, side: int = 0):
    return page.locator(".side").nth(side).locator(".token")


@pytest.mark.parametrize("name", TEXTS)
def test_every_kind_of_run_shows_tokens_and_maps(visit, model_zoo, name):
    page = visit(model_zoo.home, url(model_zoo, name))
    expect(tokens(page)).to_have_count(TEXTS[name][1])
    assert sum(page.locator("canvas.map").evaluate(INKED)) > 0.02
    expect(page.locator(".heads button")).to_have_count(0 if name == "lstm" else 4)
    expect(page.locator(".note")).to_contain_text("input gradients" if name == "lstm" else "2 layers × 2 heads")
    if name == "labels":
        expect(page.locator(".token.pad")).to_have_count(5)
        expect(page.locator(".note")).to_contain_text("9 tokens, 5 of them padding")


def test_hovering_a_token_shades_its_attention_in_both_directions(visit, model_zoo):
    page = visit(model_zoo.home, url(model_zoo, "english"))
    tokens(page).nth(5).hover()
    expect(tokens(page).nth(5)).to_have_class("token here")
    shades = tokens(page).evaluate_all(
        "(all) => all.map((one) => ['--to', '--from'].map((name) => Number(one.style.getPropertyValue(name))))"
    )
    assert all(to == 0 for to, _ in shades[6:])  # causal: no attention to later tokens
    assert all(back == 0 for _, back in shades[:5])
    assert sum(to**2 for to, _ in shades) == pytest.approx(1, abs=0.01)  # shades are √weight, on one scale everywhere
    expect(page.locator(".weights .to li").first).to_contain_text("%")
    expect(page.locator(".scale")).to_contain_text("25 %")


def test_the_chosen_token_is_in_the_address_and_every_weight_is_downloaded(visit, model_zoo):
    page = visit(model_zoo.home, url(model_zoo, "english"))
    tokens(page).nth(5).hover()
    page.wait_for_url("**at=6*")
    page.reload()
    expect(tokens(page).nth(5)).to_have_class("token here")
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV of every head").click()
    rows = list(csv.DictReader(download.value.path().open(encoding="utf-8")))
    sums = Counter()
    for row in rows:
        sums[row["layer"], row["head"], row["query"]] += float(row["weight"])
    assert len(sums) == 2 * 2 * 15
    assert list(sums.values()) == pytest.approx([1] * 60, abs=2e-3)


def test_arrow_keys_follow_the_text_direction_and_the_grid_of_heads(visit, model_zoo):
    for name, forward in (("english", "ArrowRight"), ("hebrew", "ArrowLeft")):
        page = visit(model_zoo.home, url(model_zoo, name))
        tokens(page).nth(3).hover()
        tokens(page).nth(3).focus()
        page.keyboard.press(forward)
        expect(tokens(page).nth(4)).to_be_focused()
        expect(tokens(page).nth(4)).to_have_class("token here")
    page.locator(".heads button").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("figcaption")).to_contain_text("layer 2, head 1")
    assert "layer=2&head=1" in page.url


def test_a_right_to_left_text_and_its_map_start_at_the_right(visit, model_zoo):
    page = visit(model_zoo.home, url(model_zoo, "hebrew"), dark=True)
    expect(tokens(page)).to_have_count(11)
    first, last = (tokens(page).nth(at).bounding_box()["x"] for at in (0, 10))
    assert first > last
    left, right = page.locator("canvas.map").evaluate(INKED)
    assert right > left  # a causal map is a triangle on the side where the text starts
    page.goto(page.url.split("/inside")[0] + url(model_zoo, "english"))
    expect(tokens(page)).to_have_count(15)
    left, right = page.locator("canvas.map").evaluate(INKED)
    assert left > right


def test_the_slider_selects_checkpoints_and_the_url_keeps_the_view(visit, model_zoo):
    page = visit(model_zoo.home, url(model_zoo, "english"))
    expect(page.locator("output.step")).to_have_text("step 60 (3 of 3, the best)")
    before = page.locator(".weights").inner_text()
    page.get_by_label("checkpoint").press("Home")
    expect(page.locator("output.step")).to_have_text("step 20 (1 of 3)")
    expect(page.locator(".weights")).not_to_have_text(before, use_inner_text=True)
    assert "step=20" in page.url
    page.reload()
    expect(page.locator("output.step")).to_have_text("step 20 (1 of 3)")
    expect(page.locator("#text")).to_have_value(TEXTS["english"][0])


def test_two_runs_side_by_side_select_the_same_token(visit, model_zoo):
    page = visit(model_zoo.home, url(model_zoo, "english", other_run=model_zoo["english"], other_step=20))
    expect(tokens(page, 1)).to_have_count(15)
    tokens(page, 0).nth(7).hover()
    expect(tokens(page, 1).nth(7)).to_have_class("token here")
    first, second = (page.locator(".side").nth(side).bounding_box() for side in (0, 1))
    assert first["y"] == second["y"]
    page.get_by_label("a second run beside it").uncheck()
    expect(page.locator(".side")).to_have_count(1)
    assert "other" not in page.url


def test_tokens_are_grouped_by_word_and_head_statistics_link_to_their_head(visit, model_zoo):
    page = visit(model_zoo.home, url(model_zoo, "english"))
    page.get_by_label("group by word").check()
    expect(tokens(page)).to_have_count(3)
    page.get_by_text("Head statistics").click()
    page.get_by_role("table").first.get_by_role("row").nth(5).get_by_role("button").click()  # layer 2, head 2
    expect(page.locator("figcaption")).to_contain_text("layer 2, head 2")


def test_without_a_text_a_held_out_input_is_shown(visit, model_zoo):
    page = visit(model_zoo.home, f"/inside?run={model_zoo['sums']}")
    expect(tokens(page)).to_have_count(6)
    page.get_by_role("button", name="A held-out text").click()
    expect(page.locator("#text")).not_to_be_empty()


def test_an_invalid_text_is_reported_and_a_valid_one_clears_the_error(visit, model_zoo):
    page = visit(model_zoo.home, "/inside?" + urlencode({"run": model_zoo["english"], "text": "שלום"}))
    expect(page.locator(".note.error")).to_contain_text("not among the 24 characters of the vocabulary")
    page.locator("#text").fill("my lord")
    page.get_by_role("button", name="Show attention").click()
    expect(tokens(page)).to_have_count(7)
    expect(page.locator(".note.error")).to_have_count(0)
    assert [one for one in page.problems if "400" not in one] == []
    page.problems.clear()


def test_an_empty_home_shows_how_to_train_a_model(visit, tmp_path):
    for view in ("/inside", "/playground"):
        page = visit(tmp_path, view)
        expect(page.locator(".empty")).to_contain_text("seedbed run quickstart")


def test_a_small_screen_does_not_scroll_sideways(visit, model_zoo):
    page = visit(model_zoo.home, url(model_zoo, "hebrew"), width=390)
    expect(tokens(page)).to_have_count(11)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
