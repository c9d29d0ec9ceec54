"""`seedbed data`: what the verbs print and with which code they end."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from seedbed.cli import app

runner = CliRunner()


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.delenv("SEEDBED_DATA", raising=False)
    monkeypatch.setenv("SEEDBED_OFFLINE", "1")
    monkeypatch.setattr("seedbed.data.corpora.cache_folder", lambda: tmp_path / "cache")
    monkeypatch.chdir(tmp_path)


def test_ls_names_every_corpus_with_its_licence_and_place():
    listed = json.loads(runner.invoke(app, ["data", "ls", "--json"]).stdout)
    assert {one["name"] for one in listed} >= {"shakespeare", "hebrew", "speeches", "wikitext2", "python-docs"}
    assert all(one["licence"] for one in listed)
    assert {one["name"] for one in listed if one["where"] == "here"} == {"python-docs"}
    assert "CC BY-SA 3.0" in runner.invoke(app, ["data", "ls"]).stdout


def test_show_tells_origin_without_fetching():
    shown = json.loads(runner.invoke(app, ["data", "show", "shakespeare", "--json"]).stdout)
    assert shown["commit"] == "6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e"
    assert "seedbed data get shakespeare" in shown["parts"]["train"]["notes"][0]


def test_show_counts_the_characters_of_an_own_file(tmp_path):
    (tmp_path / "own.txt").write_bytes("\ufeffab\r\nb\x1b[2J\u05d0".encode())
    shown = json.loads(runner.invoke(app, ["data", "show", "own.txt", "--json"]).stdout)["parts"]["train"]
    assert (shown["characters"], shown["distinct"], shown["bytes"]) == (9, 8, 14)
    assert shown["commonest"][0] == ["b", 2]
    assert len(shown["notes"]) == 2
    assert "\x1b" not in runner.invoke(app, ["data", "show", "own.txt"]).stdout


def test_one_symbol_is_nothing_to_learn(tmp_path):
    (tmp_path / "own.txt").write_text("aaaa")
    assert "nothing to learn" in runner.invoke(app, ["data", "show", "own.txt"]).stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["get", "shakespeare"], 4, "SEEDBED_OFFLINE forbids the network"),
        (["get", "shakespere"], 4, "did you mean shakespeare"),
        (["show", "nowhere.txt"], 4, "no such file or folder"),
        (["show", "speeches", "--part", "x"], 2, "it has classifier/train"),
        (["show", "/dev/zero"], 2, "is a device"),
    ],
)
def test_problems_are_one_sentence_and_an_exit_code(words, code, message):
    result = runner.invoke(app, ["data", *words])
    assert result.exit_code == code
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_get_of_what_comes_with_python_works_offline():
    result = runner.invoke(app, ["data", "get", "python-docs"])
    assert result.exit_code == 0
    assert "comes with Python" in result.stdout


def test_baseline_tells_what_n_grams_know_of_held_out_text(tmp_path):
    (tmp_path / "own.txt").write_text("ab" * 5000, encoding="utf-8")
    told = json.loads(runner.invoke(app, ["data", "baseline", "own.txt", "--orders", "1,2", "--json"]).stdout)
    assert [(one["part"], one["order"]) for one in told] == [("val", 1), ("val", 2)]
    assert told[0]["perplexity"] == pytest.approx(2, rel=0.01)  # a and b are equally common
    assert told[1]["perplexity"] == pytest.approx(1, rel=0.01)  # and each is told by the one before
    assert told[0]["bits_per_character"] == pytest.approx(1, rel=0.01)


def test_baseline_refuses_what_it_cannot_count(tmp_path):
    (tmp_path / "own.txt").write_text("ab" * 5000, encoding="utf-8")
    for words, said in ((["--orders", "two"], "--orders two"), (["--tokens", "runes"], "task.tokenizer = runes")):
        done = runner.invoke(app, ["data", "baseline", "own.txt", *words])
        assert done.exit_code == 2
        assert said in done.stderr
