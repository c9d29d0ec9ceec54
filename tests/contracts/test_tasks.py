"""Every kind of task keeps the contract; a task that breaks it is found out."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from seedbed.settings import TASK_SETTINGS, Settings
from seedbed.tasks import ArithmeticSettings
from tests.contracts.task import TINY_MODEL, TaskContract, Values


class TestArithmetic(TaskContract):
    kind = "arithmetic"
    task: ClassVar[Values] = {"task.p": 5, "task.orders": (2,)}
    packable = ({}, {"task.operator": "-"}, {"task.train_fraction": 0.7, "task.operator": "*"})
    unpackable = ({"task.operator": "/"}, {"task.p": 7}, {"task.orders": (2, 3)})


class TestArithmeticOfMixedOrders(TestArithmetic):
    task: ClassVar[Values] = {"task.p": 3, "task.orders": (2, 3), "task.train_fraction": 0.6}
    unpackable = ({"task.operator": "/"}, {"task.p": 7}, {"task.orders": (3, 2)})


class TestAddition(TaskContract):
    kind = "addition"
    task: ClassVar[Values] = {"task.digits": 2, "task.equations": 61}
    packable = ({}, {"task.reverse_result": True}, {"task.train_fraction": 0.7})
    unpackable = ({"task.digits": 1}, {"task.equations": 60}, {"task.digits": 3})


class TestText(TaskContract):
    """Windows with a stride of 1, which are all full; the sampler is not per run."""

    kind = "text"
    task: ClassVar[Values] = {"task.sampler": "windows", "task.length": 6, "task.val_fraction": 0.3}
    unpackable = ({"task.length": 5}, {"task.sampler": "length"}, {"task.val_fraction": 0.2})

    def write_data(self, folder: Path) -> Values:
        path = folder / "letters.txt"
        path.write_text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", encoding="utf-8")
        return {"task.corpus": str(path)}


class TestLabels(TaskContract):
    kind = "labels"
    task: ClassVar[Values] = {"task.length": 4, "task.val_fraction": 0.3}
    model: ClassVar[Values] = TINY_MODEL | {"model.kind": "encoder", "model.classifier_hidden": 6}
    unpackable = ({"task.length": 5}, {"task.val_fraction": 0.2}, {"task.tokenizer": "bytes"})

    def write_data(self, folder: Path) -> Values:
        path = folder / "days.tsv"
        lines = [f"{('wet', 'dry', 'grey')[i % 3]}\tday {i} was {('cold', 'warm')[i % 2]}\n" for i in range(31)]
        path.write_text("".join(lines), encoding="utf-8")
        return {"task.corpus": str(path)}


def test_every_kind_of_task_is_held_to_the_contract() -> None:
    assert {cls.kind for cls in contract_tests()} == set(TASK_SETTINGS)


def contract_tests() -> list[type[TaskContract]]:
    return [value for value in globals().values() if isinstance(value, type) and issubclass(value, TaskContract)
            and value is not TaskContract]  # fmt: skip


def test_a_task_that_counts_its_tokens_wrongly_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: an equation of six tokens, counted as seven."""
    settings = Settings.from_flat({"task.p": 5, "train.batch_size": 5, "train.epochs": 2})
    TestArithmetic().test_budgets_count_what_is_drawn(settings)
    monkeypatch.setattr(ArithmeticSettings, "mean_sample_tokens", lambda self: 7.0)
    with pytest.raises(AssertionError):
        TestArithmetic().test_budgets_count_what_is_drawn(settings)


def test_a_task_whose_samples_depend_on_its_pack_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: every run is split by the first run's seed."""
    from seedbed.tasks.equation_batches import EquationBatches

    pack = [Settings.from_flat({"task.p": 5, "train.batch_size": size}) for size in (5, 6, 5)]
    TestArithmetic().test_a_batch_depends_on_seed_and_index_alone(pack)
    original = EquationBatches.__init__

    def broken(self: EquationBatches, tasks, seeds, *args, **kwargs) -> None:  # type: ignore[no-untyped-def]
        original(self, tasks, [seeds[0]] * len(seeds), *args, **kwargs)

    monkeypatch.setattr(EquationBatches, "__init__", broken)
    with pytest.raises(AssertionError):
        TestArithmetic().test_a_batch_depends_on_seed_and_index_alone(pack)
