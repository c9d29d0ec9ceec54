"""A trained run is used without the text it was trained on: its vocabulary is kept with its weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import seedbed
from seedbed.data.bpe import ByteLevelBPETokenizer, GPT1Tokenizer
from seedbed.data.datasets import tokenizer_from_vocabulary, tokenizer_to_vocabulary
from seedbed.data.documents import corpus_from_text
from seedbed.data.tokenizers import ByteTokenizer, CharTokenizer, Tokenizer
from seedbed.data.word_tokenizer import WordTokenizer
from seedbed.engines.machine import Machine
from seedbed.errors import MissingData
from seedbed.pipeline import SilentObserver, run_studies
from seedbed.records import Vocabulary
from seedbed.store import open_store
from seedbed.study.plan import plan_study
from seedbed.study.read import parse_study
from seedbed.tasks.corpus_task import CorpusTask

TINY = """
seeds = 2
[base]
model = { layers = 1, dim = 8, heads = 2 }
train = { steps = 4, batch_size = 4, eval_batches = 1, sample_every = 2, sample_tokens = 5 }
task = { kind = "text", corpus = "notes.txt", length = 12, tokenizer = "TOKENIZER" }
"""
LABELS = """
seeds = 1
[base]
model = { kind = "encoder", layers = 1, dim = 8, heads = 2 }
train = { steps = 4, batch_size = 4 }
task = { kind = "labels", corpus = "mood.tsv", length = 6 }
"""


def train(home: Path, text: str) -> list[str]:
    """Ids of the runs of a study named notes, trained in the current folder."""
    run_studies(
        [plan_study(parse_study(text, "notes"))], home, Machine("cpu", 1, "plain"), SilentObserver(), lambda: False
    )
    with open_store(home, read_only=True) as store:
        return [run.id for run in store.runs("notes")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with texts, which is the current one."""
    (tmp_path / "texts").mkdir()
    monkeypatch.chdir(tmp_path / "texts")
    Path("notes.txt").write_text("To be, or not to be: that is the question.\nמה טוב\n" * 30, encoding="utf-8")
    Path("mood.tsv").write_text("good\tall is well\nbad\tnothing is well\n" * 20, encoding="utf-8")
    return tmp_path


def move_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletes the texts, goes to another folder, and makes every use of the corpus an error, cached ones included."""

    def refuse(*_: object) -> None:
        raise AssertionError("the corpus was read")

    for path in (folder / "texts").iterdir():
        path.unlink()
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    for kind in CorpusTask.__subclasses__():
        for method in ("load_tokenizer", "dataset_info", "text_dataset", "label_names"):
            monkeypatch.setattr(kind, method, refuse)


@pytest.mark.parametrize("tokenizer", ["characters", "words", "bytes"])
def test_a_model_of_a_deleted_text_samples_scores_and_attends_as_before(folder, monkeypatch, tokenizer):
    [first, _] = train(folder / "home", TINY.replace("TOKENIZER", tokenizer))
    before = seedbed.load(first, folder / "home")
    expected = before.sample("To be", tokens=20, seed=1)[0], before.surprisal("not to be").losses[1:].tolist()
    move_away(folder, monkeypatch)
    loaded = seedbed.load(first, folder / "home")
    assert (loaded.sample("To be", tokens=20, seed=1)[0], loaded.surprisal("not to be").losses[1:].tolist()) == expected
    assert loaded.attention("not to be").shape[:2] == (1, 2)
    assert loaded.tokenizer.digest == before.tokenizer.digest
    assert len(seedbed.load_all("notes", folder / "home")) == 2


def test_a_classifier_of_a_deleted_file_keeps_the_names_of_its_labels(folder, monkeypatch):
    [run] = train(folder / "home", LABELS)
    before = seedbed.load(run, folder / "home").logits("all is well")
    move_away(folder, monkeypatch)
    loaded = seedbed.load(run, folder / "home")
    assert loaded.label_names == ("bad", "good")
    assert loaded.logits("all is well").tolist() == before.tolist()


def test_what_needs_the_text_itself_says_that_it_is_gone(folder, monkeypatch):
    [run, _] = train(folder / "home", TINY.replace("TOKENIZER", "characters"))
    move_away(folder, monkeypatch)
    loaded = seedbed.load(run, folder / "home")
    gone = rf"notes\.txt, which run {run} was trained on, is not in .*elsewhere"
    with pytest.raises(MissingData, match=gone):
        loaded.sample("To", tokens=3, copied=True)
    with pytest.raises(MissingData, match=gone):
        loaded.analysis_inputs(4)


def seedbed_command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own: nothing of the corpus is cached."""
    command = [sys.executable, "-m", "seedbed", *arguments, "--home", str(folder / "home")]
    return subprocess.run(command, cwd=folder / "texts", capture_output=True, text=True, check=False)


def test_sample_works_after_the_text_was_edited_and_says_why_copies_are_not_marked(folder):
    [run, _] = train(folder / "home", TINY.replace("TOKENIZER", "characters"))
    (folder / "texts" / "notes.txt").write_text("Quite another text, with Zs.\n" * 30)
    result = seedbed_command(folder, "sample", run, "--tokens", "5", "--prompt", "מה טוב")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("מה טוב")
    assert f"copied text is not marked: notes.txt has changed since run {run} was trained on it (dataset " in (
        result.stderr
    )


def drop_vocabularies(home):
    """Leaves the home as a version wrote it that kept no vocabularies."""
    with open_store(home) as store, store._database.transaction() as connection:
        connection.exec_driver_sql("DROP TABLE vocabularies")
        connection.exec_driver_sql("DELETE FROM meta WHERE key IN ('tables', 'vocabularies')")


def test_a_run_stored_without_its_vocabulary_needs_its_text_and_says_so(folder):
    [run, _] = train(folder / "home", TINY.replace("TOKENIZER", "characters"))
    drop_vocabularies(folder / "home")
    assert seedbed.load(run, folder / "home").sample(tokens=3)
    (folder / "texts" / "notes.txt").unlink()
    with pytest.raises(
        MissingData, match=r"did not keep its vocabulary: put the text back as it was, and run its study"
    ):
        seedbed.load(run, folder / "home")


def test_running_a_study_again_keeps_the_vocabulary_of_its_finished_runs(folder, monkeypatch):
    text = TINY.replace("TOKENIZER", "characters")
    [run, _] = train(folder / "home", text)
    drop_vocabularies(folder / "home")
    train(folder / "home", text)
    move_away(folder, monkeypatch)
    assert seedbed.load(run, folder / "home").sample(tokens=3)


# ---- every tokenizer ----


def gpt1_tokenizer() -> GPT1Tokenizer:
    texts = ("<pad>", "<unk>", "b", "e", "e</w>", "be</w>", "t", "o</w>", "to</w>")
    return GPT1Tokenizer(texts, (("b", "e</w>"), ("t", "o</w>")))


TOKENIZERS = {
    "characters": lambda corpus: CharTokenizer.from_corpora(corpus),
    "words": lambda corpus: WordTokenizer.from_corpora(corpus),
    "bytes": lambda _: ByteTokenizer(),
    "bpe": lambda corpus: ByteLevelBPETokenizer.train(corpus, vocab_size=270),
    "gpt1": lambda _: gpt1_tokenizer(),
}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_tokenizer_is_restored_from_what_is_kept(tmp_path, kind):
    if kind in ("bpe", "gpt1"):
        pytest.importorskip("tokenizers")
    text = "to be or not to be, שלום\n" * 5
    tokenizer: Tokenizer = TOKENIZERS[kind](corpus_from_text("text", text))
    vocabulary = tokenizer_to_vocabulary(tokenizer, ("yes", "no"))
    assert vocabulary is not None
    with open_store(tmp_path) as store:
        store.save_vocabulary("text/1/aa", vocabulary)
        found = store.load_vocabulary("text/1/aa")
    assert found == vocabulary
    restored = tokenizer_from_vocabulary(found)
    ids = tokenizer.encode(text)
    assert restored == tokenizer
    assert (restored.digest, restored.encode(text).tolist()) == (tokenizer.digest, ids.tolist())
    assert restored.decode(ids) == tokenizer.decode(ids)


def test_a_tokenizer_of_a_later_version_is_named():
    with pytest.raises(MissingData, match="this version has no tokenizer 'syllables'; it has characters, words"):
        tokenizer_from_vocabulary(Vocabulary("syllables", ()))
