"""Datasets: splits, vocabularies and sample counts as in the reports, pretrained embeddings, and error messages."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from seedbed.data.embeddings import load_embeddings
from seedbed.errors import MissingData, UsageError
from seedbed.settings import DatasetInfo, Settings
from seedbed.tasks import ArithmeticSettings, LabelsSettings, TextSettings
from seedbed.tasks.labels import load_labelled_dataset
from seedbed.tasks.text import load_text_dataset


@pytest.fixture
def poem(tmp_path: Path) -> str:
    (tmp_path / "poem.txt").write_text("abcdefghij" * 10, encoding="utf-8")
    return str(tmp_path / "poem.txt")


def test_the_info_of_arithmetic_follows_from_its_settings() -> None:
    assert ArithmeticSettings().dataset_info() == DatasetInfo(
        36, 6, 480, padding_id=35, digest="arithmetic/1", tokens_per_sample=6.0, chance=1 / 31, eos_id=34
    )


def test_splits_partition_the_text(poem: str) -> None:
    text = load_text_dataset(
        TextSettings(corpus=poem, length=4, val_fraction=0.2, test_fraction=0.1, data_fraction=0.5)
    )
    spans = {name: (part.spans.starts.tolist(), part.spans.lengths.tolist()) for name, part in text.splits.items()}
    assert spans == {"train": ([0], [35]), "val": ([70], [20]), "test": ([90], [10])}
    assert text.tokenizer.decode(text.splits["val"].ids[70:80]) == "abcdefghij"


@pytest.mark.parametrize(("sampler", "n_train"), [("length", 23), ("documents", 23), ("windows", 86), ("epochs", 23)])
def test_the_number_of_training_samples_depends_on_the_sampler(poem: str, sampler: str, n_train: int) -> None:
    task = TextSettings.model_validate({"corpus": poem, "length": 4, "sampler": sampler})
    assert task.dataset_info().n_train == n_train
    assert task.dataset_info().vocab_size == 11


def test_a_split_by_documents_holds_out_whole_documents(tmp_path: Path) -> None:
    for i in range(10):
        (tmp_path / f"{i}.txt").write_text(str(i) * 20, encoding="utf-8")
    text = load_text_dataset(TextSettings(corpus=str(tmp_path), length=4, split="documents", val_fraction=0.3))
    kinds = [
        {int(text.splits[name].ids[start]) for start in text.splits[name].spans.starts} for name in ("train", "val")
    ]
    assert (len(kinds[0]), len(kinds[1]), kinds[0] & kinds[1]) == (7, 3, set())


def test_different_texts_have_different_digests(tmp_path: Path) -> None:
    names = []
    for content in ("abcd" * 20, "abdc" * 20):
        (tmp_path / f"{content[:4]}.txt").write_text(content, encoding="utf-8")
        names.append(str(tmp_path / f"{content[:4]}.txt"))
    one, other = (TextSettings(corpus=name, length=4).dataset_info() for name in names)
    assert one.digest != other.digest
    assert (one.vocab_size, one.n_train) == (other.vocab_size, other.n_train)


def test_labelled_texts_are_padded_truncated_and_held_out(tmp_path: Path) -> None:
    lines = [f"{'yes' if i % 2 else 'no'}\tword{i} and more words" for i in range(10)]
    (tmp_path / "own.tsv").write_text("\n".join(lines), encoding="utf-8")
    task = LabelsSettings(corpus=str(tmp_path / "own.tsv"), length=3, val_fraction=0.2)
    labelled = load_labelled_dataset(task)
    assert (labelled.label_names, {name: part.rows.shape for name, part in labelled.splits.items()}) == (
        ("no", "yes"),
        {"train": (8, 3), "val": (2, 3)},
    )
    info = task.dataset_info()
    assert (info.n_classes, info.n_train, info.context_length) == (2, 8, 3)


def test_corpora_of_the_reports_have_the_expected_vocabularies_and_samples(real_data: Path) -> None:
    speeches = TextSettings(corpus="speeches", tokenizer="words", length=32, sampler="windows", val_fraction=0.0)
    assert set(load_text_dataset(speeches).splits) == {"train", "test[obama]", "test[hbush]", "test[wbush]"}
    assert set(load_text_dataset(speeches.model_copy(update={"tests": ("obama",)})).splits) == {"train", "test[obama]"}
    wiki = TextSettings(corpus="wikitext2", tokenizer="bpe", vocabulary="gpt1", length=256, sampler="epochs")
    assert set(load_text_dataset(wiki).splits) == {"train", "val", "test"}
    found = {
        (info.vocab_size, info.n_train, info.n_classes)
        for info in (task.dataset_info() for task in (speeches, wiki, LabelsSettings(val_fraction=0.0)))
    }
    assert found == {(5_755, 32_039, 0), (40_479, 9_205, 0), (5_755, 2_092, 3)}
    assert TextSettings(corpus="shakespeare").dataset_info().vocab_size == 66
    assert TextSettings(corpus="hebrew", sampler="documents").dataset_info().vocab_size == 159


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"length": 200}, "no document holds a sample of 200 \\+ 1 tokens"),
        ({"tests": ("obama",)}, "has no test set 'obama'; it has none"),
    ],
)
def test_a_corpus_that_does_not_fit_the_settings_is_rejected(
    poem: str, values: dict[str, object], message: str
) -> None:
    task = TextSettings.model_validate({"corpus": poem, "sampler": "windows"} | values)
    with pytest.raises(UsageError, match=message):
        task.dataset_info()


def test_a_corpus_of_stored_ids_requires_the_bpe_tokenizer(real_data: Path) -> None:
    with pytest.raises(UsageError, match=r"stored as GPT-1's ids; it needs task\.tokenizer = bpe"):
        TextSettings(corpus="wikitext2").dataset_info()


# ---- pretrained embeddings ----

SETTINGS = {"task.kind": "text", "model.dim": 6, "model.heads": 2, "model.positions": "learned"}
INFO = DatasetInfo(vocab_size=9, context_length=4, n_train=1)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"tokens": np.zeros((9, 6))}, "holds tokens; an array positions of 4 × 6 is needed"),
        ({"tokens": np.zeros((8, 6)), "positions": np.zeros((4, 6))}, "tokens is 8 × 6; .* need 9 × 6"),
        ({"tokens": np.zeros((9, 6)), "positions": np.zeros((3, 6))}, "positions is 3 × 6; .* need 4 × 6"),
        ({"tokens": np.full((9, 6), np.nan), "positions": np.zeros((4, 6))}, "holds values that are not finite floats"),
        ({"other": np.zeros(3)}, "holds other; an array tokens of 9 × 6"),
        ({"tokens": np.zeros(()), "positions": np.zeros((4, 6))}, "tokens is a single number; .* need 9 × 6"),
        ({"tokens": np.zeros((9, 6), int), "positions": np.zeros((4, 6))}, "tokens holds int64, not floats"),
        ({"tokens": np.full((9, 6), None)}, "tokens holds Python objects, not floats"),
    ],
)
def test_embeddings_of_the_wrong_shape_are_rejected(
    tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    np.savez(tmp_path / "embeddings.npz", **arrays)
    settings = Settings.from_flat(SETTINGS | {"model.embeddings": str(tmp_path / "embeddings.npz")})
    with pytest.raises(UsageError, match=message):
        load_embeddings(settings, INFO)


def test_a_missing_or_malformed_embeddings_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="no such file"):
        load_embeddings(Settings.from_flat(SETTINGS | {"model.embeddings": str(tmp_path / "none.npz")}), INFO)
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(UsageError, match="not an"):
        load_embeddings(Settings.from_flat(SETTINGS | {"model.embeddings": str(tmp_path / "text.npz")}), INFO)


def embeddings_file(path: Path, damage: str) -> Path:
    """An .npz that fits, with something wrong in it."""
    np.savez(path, tokens=np.zeros((9, 6), np.float32), positions=np.zeros((4, 6), np.float32))
    data = path.read_bytes()
    if damage == "a folder":
        path.unlink()
        path.mkdir()
    elif damage == "one array":
        with path.open("wb") as file:
            np.save(file, np.zeros((9, 6)))
    elif damage == "a pickle":
        path.write_bytes(pickle.dumps(Path))
    elif damage == "a flipped bit":  # in the data of the first array
        at = data.index(b"NUMPY") + 300
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    elif damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "nothing":
        return path
    else:
        header = {"huge": "(1000000000000, 6)", "short": "(9, 6)", "no header": "(", "deep": "(" * 9000}[damage]
        text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {header}, }}\n".encode()
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("tokens.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + b"\0" * 9)
    return path


DAMAGES = ["a folder", "one array", "a pickle", "a flipped bit", "cut", "huge", "short", "no header", "deep"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_whatever_is_in_an_embeddings_file_one_sentence_says_so(tmp_path: Path, damage: str) -> None:
    path = embeddings_file(tmp_path / "e.npz", damage)
    with pytest.raises(UsageError) as caught:
        load_embeddings(Settings.from_flat(SETTINGS | {"model.embeddings": str(path)}), INFO)
    assert str(caught.value).startswith(f"model.embeddings = {path}")
    assert len(str(caught.value).splitlines()) == 1
    assert "pickle" not in str(caught.value)  # NumPy's advice to allow it is no advice


def test_control_an_undamaged_embeddings_file_is_loaded(tmp_path: Path) -> None:
    path = embeddings_file(tmp_path / "e.npz", "nothing")
    loaded = load_embeddings(Settings.from_flat(SETTINGS | {"model.embeddings": str(path)}), INFO)
    assert {name: array.shape for name, array in loaded.items()} == {"tokens": (9, 6), "positions": (4, 6)}
