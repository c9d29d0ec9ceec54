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
    monkeypatch.setattr("seedbed.data.catalogue.cache_folder", lambda: tmp_path / "cache")
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


def test_show_counts_the_classes_duplicates_and_leaks_of_labelled_files(tmp_path):
    rows = [f"{'good' if i % 3 else 'bad'},sample number {i}" for i in range(12)]
    (tmp_path / "own").mkdir()
    (tmp_path / "own/train.csv").write_text("\n".join(["label,text", *rows, "bad,Sample  number 1!", rows[2]]))
    (tmp_path / "own/test.csv").write_text("\n".join(["label,text", rows[0], "good,SAMPLE number 1", "bad,unseen"]))
    shown = json.loads(runner.invoke(app, ["data", "show", "own", "--json"]).stdout)
    train = shown["parts"]["train"]
    assert train["classes"] == {"bad": 5, "good": 9}
    assert train["duplicates"] == {"exact": 1, "normalized": 2}
    assert train["conflicts"] == 1  # sample number 1 is good and bad
    assert shown["leaks"] == [{"train": "train", "held_out": "test", "texts": 3, "exact": 1, "normalized": 2}]
    printed = runner.invoke(app, ["data", "show", "own"]).stdout
    assert "bad: 5 (35.7%)" in printed
    assert "2 of 3 texts of test (66.7%) occur in train, 1 of them exactly" in printed


def test_show_says_what_a_labelled_file_lacks(tmp_path):
    (tmp_path / "one.csv").write_text("label,text\n" + "a,same\n" * 6)
    assert "every sample has the label 'a'" in runner.invoke(app, ["data", "show", "one.csv"]).stdout
    (tmp_path / "rare.csv").write_text("label,text\n" + "a,same\n" * 6 + "b,other\n")
    assert "class 'b' has only 1 sample" in runner.invoke(app, ["data", "show", "rare.csv"]).stdout
    (tmp_path / "bad.csv").write_text("a,one,two\nb\n")
    printed = runner.invoke(app, ["data", "show", "bad.csv"]).stdout
    assert "shown as plain text, since it cannot be read as labels and texts: " in printed
    assert "bad.csv:1: 3 cells" in printed


def test_show_counts_tokens_by_tokenizer_and_repeated_documents(tmp_path):
    (tmp_path / "texts").mkdir()
    for name, text in {"a": "to be or not", "b": "To be, or not!", "c": "  ", "d": "quite another"}.items():
        (tmp_path / f"texts/{name} no 1.txt").write_text(text)
    shown = json.loads(runner.invoke(app, ["data", "show", "texts", "--json"]).stdout)["parts"]["train"]
    assert shown["tokens"]["words"] == {"tokens": 12, "vocabulary": 11}
    assert shown["tokens"]["characters"]["tokens"] == shown["characters"] == 41
    assert shown["duplicates"] == {"exact": 0, "normalized": 1}
    assert shown["notes"] == ["1 of 4 documents are empty"]
