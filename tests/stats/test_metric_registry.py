from __future__ import annotations

import pytest

from seedbed.stats.metric_registry import QUANTITIES, MetricName, metric_sort_key, metric_symbol


@pytest.mark.parametrize(
    ("name", "split", "quantity", "group"),
    [
        ("train/loss", "train", "loss", ""),
        ("val/accuracy[order=2]", "val", "accuracy", "[order=2]"),
        ("test[obama]/perplexity", "test[obama]", "perplexity", ""),
        ("test[a/b]/loss[length=8]", "test[a/b]", "loss", "[length=8]"),
        ("norm", "", "norm", ""),
        ("something/else", "", "something/else", ""),
        ("", "", "", ""),
    ],
)
def test_a_name_is_parsed_into_its_parts(name: str, split: str, quantity: str, group: str) -> None:
    assert MetricName.parse(name) == MetricName(split, quantity, group)


def test_labels_are_the_reports_symbols_and_unknown_names_stay() -> None:
    names = ["train/loss", "val/accuracy[order=2]", "test[obama]/perplexity", "norm", "loss", "val/flavour"]
    assert [metric_symbol(name) for name in names] == [
        "L_train", "A_val[order=2]", "PPL_test[obama]", "‖θ‖₂", "L", "val/flavour",
    ]  # fmt: skip


def test_tables_show_loss_before_accuracy_train_before_val_and_groups_last() -> None:
    expected = [
        "train/loss", "val/loss", "test[a]/loss", "train/accuracy", "val/accuracy", "norm", "val/flavour",
        "train/loss[order=2]", "val/accuracy[order=2]", "train/loss[order=3]",
    ]  # fmt: skip
    assert sorted(set(expected), key=metric_sort_key) == expected


def test_every_entry_is_registered_under_its_name_with_unit_and_meaning() -> None:
    for name, entry in QUANTITIES.items():
        assert entry.name == name
        assert entry.unit
        assert entry.meaning
        assert entry.symbol
