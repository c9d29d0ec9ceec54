"""Playground, in a browser: text streams in, tokens have alternatives to go on from, sums and labels are answered."""

from __future__ import annotations

import re
from urllib.parse import quote, urlencode

from playwright.sync_api import Page, expect

import seedbed

from ..web.server import served


def place(kinds, name: str, prompt: str, **more: object) -> str:
    return "/playground?" + urlencode({"run": kinds[name], "prompt": prompt} | more, quote_via=quote)


def write(page: Page) -> None:
    page.get_by_role("button", name="Write").click()
    expect(page.locator("#stop")).to_be_disabled()


def text_of(page: Page, side: int = 0) -> str:
    return page.locator(".written").nth(side).evaluate("(one) => one.textContent")


def test_a_text_is_the_one_of_its_seed_and_is_shown_as_text_whatever_it_holds(visit, kinds):
    page = visit(kinds.home, place(kinds, "english", "so <b>it", tokens=40, seed=3, temperature=0.5))
    write(page)
    expect(page.locator(".token")).to_have_count(48)
    (expected,) = seedbed.load(kinds["english"], kinds.home).sample("so <b>it", 40, temperature=0.5, seed=3)
    assert text_of(page) == "so <b>it" + expected.text
    assert page.locator(".written b").count() == 0
    expect(page.locator(".note")).to_contain_text(re.compile(r"^40 tokens, .* bits a token"))
    page.reload()
    write(page)
    assert text_of(page) == "so <b>it" + expected.text


def test_a_token_shows_its_alternatives_and_the_text_goes_on_from_another(visit, kinds):
    page = visit(kinds.home, place(kinds, "english", "my lord", tokens=20))
    write(page)
    before = text_of(page)
    page.locator(".token").nth(12).click()
    choices = page.locator(".alternatives button")
    expect(choices).to_have_count(12)
    expect(page.locator(".alternatives li.here")).to_have_count(1)
    other = page.locator(".alternatives li:not(.here) button").first
    sign = other.locator("bdi").inner_text().replace("·", " ").replace("¶", "\n")
    other.click()
    expect(page.locator(".token")).to_have_count(12 + 1 + 20)
    assert text_of(page)[:12] == before[:12]
    assert text_of(page)[12] == sign != before[12]


def test_colours_follow_surprisal_and_the_prompt_is_marked(visit, kinds):
    page = visit(kinds.home, place(kinds, "english", "my lord", tokens=60, temperature=2))
    write(page)
    shown = page.locator(".token").evaluate_all(
        "(all) => all.map((one) => [parseFloat(one.title), Number(one.dataset.bits), one.dataset.given === 'yes'])"
    )
    for bits, colour, _ in shown[1:]:
        assert colour == sum(bits >= edge - 0.005 for edge in (1, 2, 4, 6, 9)) or bits in (1, 2, 4, 6, 9)
    assert [given for *_, given in shown] == [True] * 7 + [False] * 60
    assert len({colour for _, colour, _ in shown[1:]}) > 2


def test_a_text_can_be_stopped(visit, kinds):
    page = visit(kinds.home, place(kinds, "english", "my", tokens=2000))
    page.get_by_role("button", name="Write").click()
    expect(page.locator(".token").nth(20)).to_be_attached()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#stop")).to_be_disabled()
    assert 20 < page.locator(".token").count() < 2000


def test_two_models_write_side_by_side_in_their_own_direction(visit, kinds):
    page = visit(kinds.home, place(kinds, "hebrew", " ", other_run=kinds["english"], tokens=30), dark=True)
    write(page)
    for side, direction in ((0, "rtl"), (1, "ltr")):
        text = page.locator(".written").nth(side)
        expect(text.locator(".token")).to_have_count(31)
        assert text.evaluate("(one) => getComputedStyle(one).direction") == direction
    page.locator(".written").nth(0).locator(".token").nth(9).click()
    expect(page.locator(".side").nth(0).locator(".alternatives button")).to_have_count(12)
    expect(page.locator(".side").nth(1).locator(".alternatives button")).to_have_count(0)


def test_a_sum_is_answered_with_probabilities(visit, kinds):
    page = visit(kinds.home, place(kinds, "sums", "3 + 2 =", temperature=0), width=390)
    write(page)
    best = seedbed.load(kinds["sums"], kinds.home).top_next_tokens("3 + 2 =", 1)[0]
    here = page.locator(".alternatives li.here")
    expect(here.locator("bdi")).to_have_text(best.text)
    expect(here.locator(".share")).to_have_text(f"{100 * best.probability:.0f} % (100 %)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_classifier_tells_how_likely_each_label_is(visit, kinds):
    page = visit(kinds.home, place(kinds, "labels", "day 2 was grey"))
    write(page)
    expect(page.locator(".alternatives li").first).to_contain_text("sad")
    expect(page.locator(".note")).to_have_text("the likeliest label: sad")


def test_an_lstm_writes_and_leads_inside(visit, kinds):
    page = visit(kinds.home, place(kinds, "lstm", "good", tokens=12))
    write(page)
    expect(page.locator(".token")).to_have_count(16)
    page.get_by_role("link", name="Look inside this text").click()
    expect(page.locator(".token")).to_have_count(16)
    expect(page.locator(".note")).to_contain_text("input gradients")


def test_what_is_wrong_with_a_prompt_is_said(visit, kinds):
    page = visit(kinds.home, place(kinds, "sums", "3 + 9 ="))
    write(page)
    expect(page.locator(".note.error")).to_contain_text("'9' (column 5) is no token of this task; expected 0 … 6")
    assert [one for one in page.troubles if "400" not in one] == []
    page.troubles.clear()


def test_a_run_that_is_gone_and_a_server_that_has_ended_are_said(visit, kinds):
    with served(kinds.home) as server:
        page = visit(server, "/playground?run=zzz")
        expect(page.locator("#said")).to_contain_text("there is no run 'zzz'")
        page.goto(server.base + place(kinds, "english", "my lord"))
        expect(page.locator("#write")).to_be_enabled()
    page.get_by_role("button", name="Write").click()
    expect(page.locator(".note.error")).to_contain_text("the server does not answer; start it again")
    assert [one for one in page.troubles if "404" not in one and "ERR_CONNECTION_REFUSED" not in one] == []
    page.troubles.clear()
