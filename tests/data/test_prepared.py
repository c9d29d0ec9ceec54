"""Texts ready to train on: parts, vocabularies and counts as the reports have them, and what cannot be is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seedbed.data.embeddings import read_tables
from seedbed.data.facts import facts_of
from seedbed.data.prepared import prepare_labels, prepare_text
from seedbed.errors import MissingData, UsageError
from seedbed.settings import Arithmetic, DataFacts, Labels, Settings, Text


@pytest.fixture
def poem(tmp_path: Path) -> str:
    (tmp_path / "poem.txt").write_text("abcdefghij" * 10, encoding="utf-8")
    return str(tmp_path / "poem.txt")


def test_arithmetic_s_facts_follow_from_its_dials() -> None:
    assert facts_of(Arithmetic()) == DataFacts(36, 6, 480, padding=35, digest="arithmetic/1")


def test_parts_share_out_the_text_without_overlap(poem: str) -> None:
    text = prepare_text(Text(corpus=poem, length=4, val_fraction=0.2, test_fraction=0.1, data_fraction=0.5))
    spans = {name: (part.spans.starts.tolist(), part.spans.lengths.tolist()) for name, part in text.parts.items()}
    assert spans == {"train": ([0], [35]), "val": ([70], [20]), "test": ([90], [10])}
    assert text.tokens.decode(text.parts["val"].ids[70:80]) == "abcdefghij"


@pytest.mark.parametrize(("sampler", "n_train"), [("length", 23), ("documents", 23), ("windows", 86), ("epochs", 23)])
def test_an_epoch_holds_the_samplers_samples(poem: str, sampler: str, n_train: int) -> None:
    task = Text.model_validate({"corpus": poem, "length": 4, "sampler": sampler})
    assert facts_of(task).n_train == n_train
    assert facts_of(task).vocabulary == 11


def test_whole_documents_are_held_out_and_alike_for_all(tmp_path: Path) -> None:
    for i in range(10):
        (tmp_path / f"{i}.txt").write_text(str(i) * 20, encoding="utf-8")
    text = prepare_text(Text(corpus=str(tmp_path), length=4, split="documents", val_fraction=0.3))
    kinds = [{int(text.parts[name].ids[start]) for start in text.parts[name].spans.starts} for name in ("train", "val")]
    assert (len(kinds[0]), len(kinds[1]), kinds[0] & kinds[1]) == (7, 3, set())


def test_another_text_has_another_digest(tmp_path: Path) -> None:
    names = []
    for content in ("abcd" * 20, "abdc" * 20):
        (tmp_path / f"{content[:4]}.txt").write_text(content, encoding="utf-8")
        names.append(str(tmp_path / f"{content[:4]}.txt"))
    one, other = (facts_of(Text(corpus=name, length=4)) for name in names)
    assert one.digest != other.digest
    assert (one.vocabulary, one.n_train) == (other.vocabulary, other.n_train)


def test_labelled_texts_are_padded_cut_and_held_out(tmp_path: Path) -> None:
    lines = [f"{'yes' if i % 2 else 'no'}\tword{i} and more words" for i in range(10)]
    (tmp_path / "own.tsv").write_text("\n".join(lines), encoding="utf-8")
    task = Labels(corpus=str(tmp_path / "own.tsv"), length=3, val_fraction=0.2)
    labelled = prepare_labels(task)
    assert (labelled.names, {name: part.rows.shape for name, part in labelled.parts.items()}) == (
        ("no", "yes"),
        {"train": (8, 3), "val": (2, 3)},
    )
    facts = facts_of(task)
    assert (facts.classes, facts.n_train, facts.context) == (2, 8, 3)


def test_reports_corpora_have_their_vocabularies_and_samples(real: Path) -> None:
    speeches = Text(corpus="speeches", tokens="words", length=32, sampler="windows", val_fraction=0.0)
    assert set(prepare_text(speeches).parts) == {"train", "test[obama]", "test[hbush]", "test[wbush]"}
    assert set(prepare_text(speeches.model_copy(update={"tests": ("obama",)})).parts) == {"train", "test[obama]"}
    wiki = Text(corpus="wikitext2", tokens="bpe", length=256, sampler="epochs")
    assert set(prepare_text(wiki).parts) == {"train", "val", "test"}
    found = {
        (facts.vocabulary, facts.n_train, facts.classes)
        for facts in map(facts_of, (speeches, wiki, Labels(val_fraction=0.0)))
    }
    assert found == {(5_755, 32_039, 0), (40_479, 9_205, 0), (5_755, 2_092, 3)}
    assert facts_of(Text(corpus="shakespeare")).vocabulary == 66
    assert facts_of(Text(corpus="hebrew", sampler="documents")).vocabulary == 159


@pytest.mark.parametrize(
    ("dials", "said"),
    [
        ({"length": 200}, "no document holds a sample of 200 \\+ 1 tokens"),
        ({"tests": ("obama",)}, "has no test set 'obama'; it has none"),
    ],
)
def test_what_a_corpus_cannot_give_is_said(poem: str, dials: dict[str, object], said: str) -> None:
    task = Text.model_validate({"corpus": poem, "sampler": "windows"} | dials)
    with pytest.raises(UsageError, match=said):
        facts_of(task)


def test_stored_ids_are_pieces_and_nothing_else(real: Path) -> None:
    with pytest.raises(UsageError, match=r"stored as GPT-1's ids; it needs task\.tokens = bpe"):
        facts_of(Text(corpus="wikitext2"))


# ---- tables from a file ----

SETTINGS = {"task.kind": "text", "model.dim": 6, "model.heads": 2, "model.positions": "learned"}
FACTS = DataFacts(vocabulary=9, context=4, n_train=1)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"tokens": np.zeros((9, 6))}, "holds tokens; an array positions of 4 × 6 is needed"),
        ({"tokens": np.zeros((8, 6)), "positions": np.zeros((4, 6))}, "tokens is 8 × 6; .* need 9 × 6"),
        ({"tokens": np.zeros((9, 6)), "positions": np.zeros((3, 6))}, "positions is 3 × 6; .* need 4 × 6"),
        ({"tokens": np.full((9, 6), np.nan), "positions": np.zeros((4, 6))}, "other things than finite numbers"),
        ({"other": np.zeros(3)}, "neither tokens nor positions"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray], said: str) -> None:
    np.savez(tmp_path / "tables.npz", **arrays)
    settings = Settings.of(SETTINGS | {"model.embeddings": str(tmp_path / "tables.npz")})
    with pytest.raises(UsageError, match=said):
        read_tables(settings, FACTS)


def test_a_missing_or_foreign_file_of_tables_is_said(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="no such file"):
        read_tables(Settings.of(SETTINGS | {"model.embeddings": str(tmp_path / "none.npz")}), FACTS)
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(UsageError, match="not an"):
        read_tables(Settings.of(SETTINGS | {"model.embeddings": str(tmp_path / "text.npz")}), FACTS)
