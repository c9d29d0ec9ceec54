"""Settings: births that never change, the one matcher of filters, and the one count of samples and tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seedbed.settings import (
    MODEL_SETTINGS,
    TASK_SETTINGS,
    DatasetInfo,
    Settings,
    TrainSettings,
    all_settings,
    former_setting_names,
    matches_value,
    setting_traits,
    traits_of,
)

BIRTHS = Path(__file__).parent / "births.json"
GROUPS = {"task": TASK_SETTINGS, "model": MODEL_SETTINGS, "train": {"train": TrainSettings}}


def births() -> dict[str, dict[str, Any]]:
    """The name and default that each setting of each kind was born with."""
    found: dict[str, dict[str, Any]] = {}
    for group, kinds in GROUPS.items():
        for kind, cls in kinds.items():
            for name, field in cls.model_fields.items():
                traits = traits_of(field)
                born_name = traits.former_names[0] if traits.former_names else f"{group}.{name}"
                found.setdefault(kind, {})[born_name] = traits.born
    return found


def test_no_setting_is_ever_born_anew() -> None:
    """Where this fails a default or a name was changed: give the old one as `born` or among `former_names`.

    A setting that is new, or of a new kind, is added to births.json, and then stays there.
    """
    pinned = json.loads(BIRTHS.read_text(encoding="utf-8"))
    assert json.loads(json.dumps(births())) == pinned


def test_a_former_name_is_no_name_of_today() -> None:
    assert not set(former_setting_names()) & set(all_settings())


def test_conditions_name_settings_that_exist() -> None:
    for fields in all_settings().values():
        for field in fields:
            assert all(condition.setting in all_settings() for condition in traits_of(field).active_when)


def test_settings_without_effect_are_not_part_of_the_identity() -> None:
    plain = Settings.from_flat({"train.momentum": 0.5, "train.lr_every": 7})
    assert plain.identity() == {}
    assert Settings.from_flat({"train.momentum": 0.5, "train.optimizer": "momentum"}).identity() == {
        "train.momentum": 0.5,
        "train.optimizer": "momentum",
    }
    assert not Settings.from_flat({"train.epochs": 3}).is_active("train.steps")
    assert not Settings().is_active("task.tokenizer")


def test_identities_use_the_names_that_settings_were_born_with() -> None:
    text = {"task.kind": "text", "task.tokenizer": "words", "train.max_tokens": 5, "train.exclusive": True}
    assert Settings.from_flat(text).identity() == {
        "task.kind": "text", "task.tokens": "words", "train.tokens": 5, "train.alone": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("found", "wanted", "expected"),
    [
        ((2,), 2, True),
        ((2,), [2], True),
        ((2, 3), [2, 3], True),
        ((2,), (2, 3), False),
        ((2,), ((2,), (2, 3)), True),
        (8, (8, 16), True),
        (8, 16, False),
        ("gpt", ("gpt", "lstm"), True),
        (None, 4, False),
        (None, (4, 5), False),
    ],
)
def test_values_match_alike_in_files_commands_and_pages(found: Any, wanted: Any, expected: bool) -> None:
    assert matches_value(found, wanted) is expected


def test_the_budget_and_the_token_axis_count_the_same_tokens() -> None:
    settings = Settings.from_flat({"train.max_tokens": 288_000})
    assert settings.n_steps() == 100
    assert settings.tokens_per_update() * settings.n_steps() == 288_000


def test_tokens_of_mixed_orders_are_counted_without_padding() -> None:
    settings = Settings.from_flat({"task.p": 5, "task.orders": (2, 3), "train.batch_size": 10**6})
    assert settings.samples_per_update() == 12 + 62
    assert settings.tokens_per_update() == 12 * 6 + 62 * 8


def test_an_update_never_counts_more_samples_than_the_training_set_has() -> None:
    text = Settings.from_flat({"task.kind": "text", "task.length": 16, "train.batch_size": 64, "train.accumulate": 3})
    assert text.samples_per_update() == 192
    assert text.samples_per_update(DatasetInfo(100, 16, 150)) == 150
    assert text.tokens_per_update(DatasetInfo(100, 16, 150)) == 150 * 16


def test_settings_have_labels_and_units() -> None:
    assert setting_traits("train.batch_size").label == "batch size B"
    assert setting_traits("train.warmup").unit == "steps"


def test_a_renamed_value_is_read_from_earlier_stores_and_changes_no_identity() -> None:
    """GPT-1's vocabulary was called None, and was the default that `task.vocabulary` was born with."""
    stored = {"task.kind": "text", "task.tokenizer": "bpe", "task.vocabulary": None}
    assert Settings.from_stored(stored).task.vocabulary == "gpt1"
    values = {"task.kind": "text", "task.tokenizer": "bpe"}
    assert "task.vocabulary" not in Settings.from_flat(values | {"task.vocabulary": "gpt1"}).identity()
    assert Settings.from_flat(values).identity()["task.vocabulary"] == "auto"
    assert Settings.from_flat(values | {"task.vocabulary": 500}).identity()["task.vocabulary"] == 500
