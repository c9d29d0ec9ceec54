"""A user's own data: headers, columns, JSON Lines, Parquet, folders of `datasets`, and parts by file name."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from seedbed.data.corpora import find_parts, open_corpus, open_labelled_texts
from seedbed.data.documents import iter_text
from seedbed.data.table_files import Columns, LabelledTexts
from seedbed.errors import MissingData, StudyError, UsageError
from seedbed.tasks import LabelsSettings, TextSettings
from seedbed.tasks.labels import load_labelled_dataset
from seedbed.tasks.text import load_text_dataset

SAMPLES = [("good" if i % 2 else "bad", f"sample {i}, with words") for i in range(8)]


def labelled(path: Path, part: str = "train", **columns: str | int) -> list[tuple[str, str]]:
    samples: LabelledTexts = open_labelled_texts(str(path), part, columns=Columns(**columns))
    return list(zip(samples.labels, samples.texts, strict=True))


def write_csv(path: Path, rows: list[tuple[str, ...]], separator: str = ",") -> Path:
    quote = '"' if separator == "," else ""
    lines = [separator.join(f"{quote}{cell}{quote}" for cell in row) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
@pytest.mark.parametrize(
    ("header", "order"),
    [
        (("label", "text"), (0, 1)),
        (("text", "label"), (1, 0)),
        (("Sentence", "Category"), (1, 0)),
        (("category", "headline"), (0, 1)),  # headline is not a usual name, but nothing else is left
    ],
)
def test_a_header_names_the_columns_in_any_order(tmp_path, name, header, order):
    rows = [tuple(sample[i] for i in order) for sample in SAMPLES]
    path = write_csv(tmp_path / name, [header, *rows], "," if name.endswith("csv") else "\t")
    assert labelled(path) == SAMPLES


def test_other_columns_are_named_by_settings(tmp_path):
    rows = [("7", text, label) for label, text in SAMPLES]
    path = write_csv(tmp_path / "t.csv", [("id", "words", "stars"), *rows])
    assert labelled(path, text="words", label="stars") == SAMPLES
    with pytest.raises(UsageError, match=r"task\.label_column = star is not among its columns: id, words, stars"):
        labelled(path, text="words", label="star")


def test_a_file_without_a_header_is_label_and_text_or_has_numbered_columns(tmp_path):
    assert labelled(write_csv(tmp_path / "t.csv", SAMPLES)) == SAMPLES
    reverse = write_csv(tmp_path / "r.csv", [(text, label) for label, text in SAMPLES])
    assert labelled(reverse, text=1, label=2) == SAMPLES
    with pytest.raises(UsageError, match=r"task\.text_column = 1 and task\.label_column = 2"):
        labelled(reverse)


def test_a_first_row_that_may_be_a_header_is_asked_about(tmp_path):
    path = write_csv(tmp_path / "t.csv", [("mood", "words"), *SAMPLES])
    with pytest.raises(UsageError, match="'mood', 'words' may be a header or a sample"):
        labelled(path)
    assert labelled(path, text="words", label="mood") == SAMPLES
    assert labelled(path, text=2, label=1) == [("mood", "words"), *SAMPLES]


def test_a_malformed_row_of_a_table_with_a_header_is_reported_with_its_line(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("label,text\ngood,fine\nbad,one,two\n,empty\n")
    with pytest.raises(StudyError) as error:
        labelled(path)
    assert [problem.where.rsplit(":", 1)[1] for problem in error.value.problems] == ["3", "4"]
    assert "3 cells; expected 2 cells (label, text); put quotes" in error.value.problems[0].what
    assert "an empty label" in error.value.problems[1].what


def test_json_lines(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(
        "\n".join(json.dumps({"id": i, "label": a, "text": b}) for i, (a, b) in enumerate(SAMPLES)) + "\n\n"
    )
    assert labelled(path) == SAMPLES
    documents = open_corpus(str(path)).documents
    assert ["".join(iter_text(one)) for one in documents] == [text for _, text in SAMPLES]
    path.write_text('{"text": "a"}\n{"text": \n')
    with pytest.raises(UsageError, match=r"t\.jsonl:2: not JSON"):
        open_corpus(str(path))
    path.write_text('["a"]\n')
    with pytest.raises(UsageError, match="is not an object"):
        open_corpus(str(path))


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    path = tmp_path / "t.parquet"
    write_table(pyarrow.table({"text": [text for _, text in SAMPLES], "label": [label for label, _ in SAMPLES]}), path)
    assert labelled(path) == SAMPLES
    assert len(open_corpus(str(path)).documents) == len(SAMPLES)
    path.write_bytes(b"no table")
    with pytest.raises(UsageError, match="is not a Parquet file"):
        labelled(path)


def test_a_saved_dataset_keeps_its_splits_and_the_names_of_its_labels(tmp_path):
    datasets = pytest.importorskip("datasets")
    names = datasets.ClassLabel(names=["bad", "good"])
    features = datasets.Features({"text": datasets.Value("string"), "label": names})
    values = {"text": [text for _, text in SAMPLES], "label": [names.str2int(label) for label, _ in SAMPLES]}
    whole = datasets.Dataset.from_dict(values, features=features)
    datasets.DatasetDict({"train": whole, "test": whole.select([1])}).save_to_disk(str(tmp_path / "dict"))
    assert list(find_parts(tmp_path / "dict")) == ["train", "test"]
    assert labelled(tmp_path / "dict") == SAMPLES
    assert labelled(tmp_path / "dict", "test") == SAMPLES[1:2]
    whole.save_to_disk(str(tmp_path / "one"))
    assert labelled(tmp_path / "one") == SAMPLES
    whole.to_parquet(str(tmp_path / "named.parquet"))
    assert labelled(tmp_path / "named.parquet") == SAMPLES


@pytest.mark.parametrize(("module", "name"), [("pyarrow", "t.parquet"), ("datasets", "folder")])
def test_a_missing_extra_is_named_in_one_sentence(tmp_path, monkeypatch, module, name):
    monkeypatch.setitem(sys.modules, module, None)
    if name == "folder":
        (tmp_path / name).mkdir()
        (tmp_path / name / "state.json").write_text("{}")
    else:
        (tmp_path / name).write_bytes(b"PAR1")
    extra = "parquet" if module == "pyarrow" else "datasets"
    with pytest.raises(MissingData, match=rf"pip install 'seedbed\[{extra}\]'"):
        labelled(tmp_path / name)


def test_files_called_train_validation_and_test_are_the_parts_of_a_folder(tmp_path):
    for part, samples in {"train": SAMPLES, "valid": SAMPLES[:2], "test": SAMPLES[2:4]}.items():
        write_csv(tmp_path / f"{part}.csv", [("label", "text"), *samples])
    task = LabelsSettings(corpus=str(tmp_path), length=4, val_fraction=0.5)
    splits = load_labelled_dataset(task).splits
    assert {name: len(split.labels) for name, split in splits.items()} == {"train": 8, "val": 2, "test": 2}
    assert splits["val"].texts == tuple(text for _, text in SAMPLES[:2])


def test_text_files_called_train_and_test_are_parts_and_other_names_are_documents(tmp_path):
    (tmp_path / "train.txt").write_text("abc" * 50)
    (tmp_path / "test.txt").write_text("abd" * 20)
    dataset = load_text_dataset(TextSettings(corpus=str(tmp_path), length=4))
    assert {name: split.spans.n_tokens for name, split in dataset.splits.items()} == {
        "train": 135,
        "val": 15,
        "test": 60,
    }
    assert dataset.tokenizer.size == 5  # d occurs only in the test text, and is a token nevertheless
    (tmp_path / "preface.txt").write_text("abc")
    assert list(find_parts(tmp_path)) == ["train"]
    assert len(open_corpus(str(tmp_path)).documents) == 3


def test_a_table_beside_texts_is_no_part_unless_it_is_called_one(tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("a text")
    write_csv(tmp_path / "sources.csv", SAMPLES)
    assert len(open_corpus(str(tmp_path)).documents) == 2
    write_csv(tmp_path / "train.csv", SAMPLES)
    assert [path.name for path in find_parts(tmp_path)["train"].paths] == ["train.csv"]


def test_a_folder_of_tables_without_a_training_part_is_rejected(tmp_path):
    write_csv(tmp_path / "data.csv", SAMPLES)
    with pytest.raises(MissingData, match=r"has no part called train \(data\.csv\)"):
        find_parts(tmp_path)


def test_shards_of_a_part_are_read_in_order(tmp_path):
    for i in range(2):
        rows = "\n".join(json.dumps({"text": f"{i}{k}"}) for k in range(2))
        (tmp_path / f"train-0000{i}-of-00002.jsonl").write_text(rows)
    documents = open_corpus(str(tmp_path)).documents
    assert ["".join(iter_text(one)) for one in documents] == ["00", "01", "10", "11"]


def test_the_vocabulary_of_a_table_with_a_header_holds_its_texts_only(tmp_path):
    path = write_csv(tmp_path / "t.csv", [("label", "text"), *SAMPLES])
    words = LabelsSettings(corpus=str(path)).load_tokenizer().texts
    assert {"sample", "words"} < set(words)
    assert not {"label", "good", "bad"} & set(words)


def test_a_folder_of_texts_has_no_labels(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(UsageError, match="is a folder of texts without labels"):
        labelled(tmp_path)


@pytest.mark.parametrize("name", ["t.csv", "folder"])
@pytest.mark.parametrize("kind", [TextSettings, LabelsSettings])
def test_an_edited_text_is_read_again_by_the_same_process(tmp_path, monkeypatch, kind, name):
    task = kind(corpus=name, length=4)
    digests = []
    for folder in ("one", "two", "one"):
        path = tmp_path / folder / ("folder/train.csv" if name == "folder" else name)
        if not path.exists():
            path.parent.mkdir(parents=True)
            write_csv(path, [("label", "text"), *SAMPLES, ("good", f"only in {folder}")])
        monkeypatch.chdir(tmp_path / folder)
        digests.append(task.dataset_info().digest)
    assert digests[0] == digests[2] != digests[1]
    before = task.load_tokenizer()
    assert task.load_tokenizer() is before  # kept until the text is edited
    with path.open("a") as file:
        file.write('"good","one text more ~"\n')
    assert "~" in "".join(task.load_tokenizer().texts)
    assert task.dataset_info().digest not in digests
