"""The Playground page in a browser: streamed text, alternatives to continue from, equations and labels."""

from __future__ import annotations

import re
from urllib.parse import quote, urlencode

from playwright.sync_api import Page, expect

import seedbed

from ..web.server import run_server


def url(model_zoo, name: str, prompt: str, **more: object) -> str:
    return "/playground?" + urlencode({"run": model_zoo[name], "prompt": prompt} | more, quote_via=quote)


def generate(page: Page) -> None:
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#stop")).to_be_disabled()


def text_of(page: Page, side: int = 0) -> str:
    return page.locator(".written").nth(side).evaluate("(one) => one.textContent")


def test_generated_text_depends_on_the_seed_and_is_escaped(visit, model_zoo):
    page = visit(model_zoo.home, url(model_zoo, "english", "so <b>it", tokens=40, seed=3, temperature=0.5))
    generate(page)
    expect(page.locator(".token")).to_have_count(48)
    (expected,) = seedbed.load(model_zoo["english"], model_zoo.home).sample("so <b>it", 40, temperature=0.5, seed=3)
    assert text_of(page) == "so <b>it" + expected.text
    assert page.locator(".written b").count() == 0
    expect(page.locator(".note")).to_contain_text(re.compile(r"^40 tokens, .* bits per token"))
    page.reload()
    generate(page)
    assert text_of(page) == "so <b>it" + expected.text


def test_a_token_shows_its_alternatives_and_generation_continues_from_one(visit, model_zoo):
    page = visit(model_zoo.home, url(model_zoo, "english", "my lord", tokens=20))
    generate(page)
    before = text_of(page)
    page.locator(".token").nth(12).click()
    choices = page.locator(".alternatives button")
    expect(choices).to_have_count(12)
    expect(page.locator(".alternatives li.here")).to_have_count(1)
    other = page.locator(".alternatives li:not(.here) button").first
    chosen = other.locator("bdi").inner_text().replace("·", " ").replace("¶", "\n")
    other.click()
    expect(page.locator(".token")).to_have_count(12 + 1 + 20)
    assert text_of(page)[:12] == before[:12]
    assert text_of(page)[12] == chosen != before[12]


def test_colours_follow_surprisal_and_the_prompt_is_marked(visit, model_zoo):
    page = visit(model_zoo.home, url(model_zoo, "english", "my lord", tokens=60, temperature=2))
    generate(page)
    shown = page.locator(".token").evaluate_all(
        "(all) => all.map((one) => [parseFloat(one.title), Number(one.dataset.bits), one.dataset.given === 'yes'])"
    )
    for bits, colour, _ in shown[1:]:
        assert colour == sum(bits >= edge - 0.005 for edge in (1, 2, 4, 6, 9)) or bits in (1, 2, 4, 6, 9)
    assert [given for *_, given in shown] == [True] * 7 + [False] * 60
    assert len({colour for _, colour, _ in shown[1:]}) > 2


def test_generation_can_be_stopped(visit, model_zoo):
    page = visit(model_zoo.home, url(model_zoo, "english", "my", tokens=2000))
    page.get_by_role("button", name="Generate").click()
    expect(page.locator(".token").nth(20)).to_be_attached()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#stop")).to_be_disabled()
    assert 20 < page.locator(".token").count() < 2000


def test_two_models_generate_side_by_side_in_their_own_direction(visit, model_zoo):
    page = visit(model_zoo.home, url(model_zoo, "hebrew", " ", other_run=model_zoo["english"], tokens=30), dark=True)
    generate(page)
    for side, direction in ((0, "rtl"), (1, "ltr")):
        text = page.locator(".written").nth(side)
        expect(text.locator(".token")).to_have_count(31)
        assert text.evaluate("(one) => getComputedStyle(one).direction") == direction
    page.locator(".written").nth(0).locator(".token").nth(9).click()
    expect(page.locator(".side").nth(0).locator(".alternatives button")).to_have_count(12)
    expect(page.locator(".side").nth(1).locator(".alternatives button")).to_have_count(0)


def test_an_equation_is_answered_with_probabilities(visit, model_zoo):
    page = visit(model_zoo.home, url(model_zoo, "sums", "3 + 2 =", temperature=0), width=390)
    generate(page)
    best = seedbed.load(model_zoo["sums"], model_zoo.home).top_next_tokens("3 + 2 =", 1)[0]
    here = page.locator(".alternatives li.here")
    expect(here.locator("bdi")).to_have_text(best.text)
    expect(here.locator(".share")).to_have_text(f"{100 * best.probability:.0f} % (100 %)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_classifier_shows_label_probabilities(visit, model_zoo):
    page = visit(model_zoo.home, url(model_zoo, "labels", "day 2 was grey"))
    generate(page)
    expect(page.locator(".alternatives li").first).to_contain_text("sad")
    expect(page.locator(".note")).to_have_text("most likely label: sad")


def test_an_lstm_generates_and_links_to_the_inside_page(visit, model_zoo):
    page = visit(model_zoo.home, url(model_zoo, "lstm", "good", tokens=12))
    generate(page)
    expect(page.locator(".token")).to_have_count(16)
    page.get_by_role("link", name="Look inside this text").click()
    expect(page.locator(".token")).to_have_count(16)
    expect(page.locator(".note")).to_contain_text("input gradients")


def test_an_invalid_prompt_is_reported(visit, model_zoo):
    page = visit(model_zoo.home, url(model_zoo, "sums", "3 + 9 ="))
    generate(page)
    expect(page.locator(".note.error")).to_contain_text("'9' (column 5) is not a token of this task; expected 0 … 6")
    assert [one for one in page.problems if "400" not in one] == []
    page.problems.clear()


def test_a_missing_run_and_a_stopped_server_are_reported(visit, model_zoo):
    with run_server(model_zoo.home) as server:
        page = visit(server, "/playground?run=zzz")
        expect(page.locator("#status")).to_contain_text("there is no run 'zzz'")
        page.goto(server.base + url(model_zoo, "english", "my lord"))
        expect(page.locator("#write")).to_be_enabled()
    page.get_by_role("button", name="Generate").click()
    expect(page.locator(".note.error")).to_contain_text("the server does not answer; start it again")
    assert [one for one in page.problems if "404" not in one and "ERR_CONNECTION_REFUSED" not in one] == []
    page.problems.clear()
