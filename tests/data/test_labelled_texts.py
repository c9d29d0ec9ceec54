"""Labelled texts: TSV and CSV files, and every problem reported with its line."""

from __future__ import annotations

import pytest

from seedbed.data.documents import corpus_from_path
from seedbed.data.table_files import collect_label_names, encode_labels, read_labelled_texts
from seedbed.errors import StudyError, UsageError


def read(tmp_path, content: str, name: str = "t.tsv"):
    (tmp_path / name).write_bytes(content.encode())
    return read_labelled_texts(corpus_from_path(tmp_path / name))


def test_the_first_tab_separates_label_and_text(tmp_path):
    samples = read(tmp_path, "0\tone, two\r\n\n1\ta\tb\n")
    assert samples.labels == ("0", "1")
    assert samples.texts == ("one, two", "a\tb")
    assert samples.line_numbers == (1, 3)


def test_quoted_csv_cells_may_contain_commas(tmp_path):
    samples = read(tmp_path, 'good,"one, two"\nbad,three\n', "t.csv")
    assert samples.texts == ("one, two", "three")


def test_every_malformed_row_is_reported_with_its_line(tmp_path):
    with pytest.raises(StudyError) as error:
        read(tmp_path, "0\tfine\nno tab here\n1\tfine\n2\t \n\tno label\n")
    problems = error.value.problems
    assert [problem.where.rsplit(":", 1)[1] for problem in problems] == ["2", "4", "5"]
    assert "no tab in 'no tab here'" in problems[0].what
    assert "empty text" in problems[1].what
    assert "empty label" in problems[2].what


def test_the_number_of_reported_problems_is_limited(tmp_path):
    with pytest.raises(StudyError) as error:
        read(tmp_path, "bad\n" * 1000)
    assert len(error.value.problems) == 21
    assert "980 more malformed lines" in str(error.value)


def test_an_empty_file_is_rejected(tmp_path):
    with pytest.raises(UsageError, match="holds no samples"):
        read(tmp_path, "\n")


def test_a_label_that_occurs_only_in_the_test_set_is_reported_with_its_line(tmp_path):
    train = read(tmp_path, "b\tx\na\ty\n")
    test = read(tmp_path, "a\tx\nc\ty\n", "test.tsv")
    assert collect_label_names(train) == ("a", "b")
    assert encode_labels(train, ("a", "b")) == [1, 0]
    with pytest.raises(UsageError, match=r"test\.tsv:2: label 'c' is in no training sample; .* has a, b"):
        collect_label_names(train, test)


def test_a_single_label_is_rejected(tmp_path):
    with pytest.raises(UsageError, match="at least 2"):
        collect_label_names(read(tmp_path, "a\tx\na\ty\n"))
