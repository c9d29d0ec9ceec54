"""`seedbed data`: output and exit codes of its commands."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from seedbed.cli import app

runner = CliRunner()


@pytest.fixture(autouse=True)
def isolated(tmp_path, monkeypatch):
    monkeypatch.delenv("SEEDBED_DATA", raising=False)
    monkeypatch.setenv("SEEDBED_OFFLINE", "1")
    monkeypatch.setattr("seedbed.data.corpora.cache_folder", lambda: tmp_path / "cache")
    monkeypatch.chdir(tmp_path)


def test_ls_lists_every_corpus_with_its_licence_and_location():
    listed = json.loads(runner.invoke(app, ["data", "ls", "--json"]).stdout)
    assert {one["name"] for one in listed} >= {"shakespeare", "hebrew", "speeches", "wikitext2", "python-docs"}
    assert all(one["licence"] for one in listed)
    assert {one["name"] for one in listed if one["where"] == "here"} == {"python-docs"}
    assert "CC BY-SA 3.0" in runner.invoke(app, ["data", "ls"]).stdout


def test_show_prints_the_origin_without_downloading():
    shown = json.loads(runner.invoke(app, ["data", "show", "shakespeare", "--json"]).stdout)
    assert shown["commit"] == "6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e"
    assert "seedbed data get shakespeare" in shown["parts"]["train"]["notes"][0]


def test_show_counts_the_characters_of_a_local_file(tmp_path):
    (tmp_path / "own.txt").write_bytes("\ufeffab\r\nb\x1b[2J\u05d0".encode())
    shown = json.loads(runner.invoke(app, ["data", "show", "own.txt", "--json"]).stdout)["parts"]["train"]
    assert (shown["characters"], shown["distinct"], shown["bytes"]) == (9, 8, 14)
    assert shown["commonest"][0] == ["b", 2]
    assert len(shown["notes"]) == 2
    assert "\x1b" not in runner.invoke(app, ["data", "show", "own.txt"]).stdout


def test_a_corpus_of_one_character_is_reported(tmp_path):
    (tmp_path / "own.txt").write_text("aaaa")
    assert "nothing to learn" in runner.invoke(app, ["data", "show", "own.txt"]).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["get", "shakespeare"], 4, "SEEDBED_OFFLINE forbids the network"),
        (["get", "shakespere"], 4, "did you mean shakespeare"),
        (["show", "nowhere.txt"], 4, "not a file, a folder or a named corpus"),
        (["show", "speeches", "--part", "x"], 2, "it has classifier/train"),
        (["show", "/dev/zero"], 2, "is a device"),
    ],
)
def test_errors_are_one_line_with_an_exit_code(arguments, code, message):
    result = runner.invoke(app, ["data", *arguments])
    assert result.exit_code == code
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_get_of_a_builtin_corpus_works_offline():
    result = runner.invoke(app, ["data", "get", "python-docs"])
    assert result.exit_code == 0
    assert "comes with Python" in result.stdout


def test_baseline_evaluates_n_grams_on_held_out_text(tmp_path):
    (tmp_path / "own.txt").write_text("ab" * 5000, encoding="utf-8")
    rows = json.loads(runner.invoke(app, ["data", "baseline", "own.txt", "--orders", "1,2", "--json"]).stdout)
    assert [(one["part"], one["order"]) for one in rows] == [("val", 1), ("val", 2)]
    assert rows[0]["perplexity"] == pytest.approx(2, rel=0.01)  # a and b are equally common
    assert rows[1]["perplexity"] == pytest.approx(1, rel=0.01)  # and each determines the next
    assert rows[0]["bits_per_character"] == pytest.approx(1, rel=0.01)


def test_baseline_rejects_invalid_options(tmp_path):
    (tmp_path / "own.txt").write_text("ab" * 5000, encoding="utf-8")
    for options, message in (
        (["--orders", "two"], "--orders two"),
        (["--tokenizer", "runes"], "task.tokenizer = runes"),
    ):
        done = runner.invoke(app, ["data", "baseline", "own.txt", *options])
        assert done.exit_code == 2
        assert message in done.stderr
