"""Digit addition, compared with Python's own arithmetic: the table, the split, metrics by brute force, and resuming."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from seedbed.errors import UsageError
from seedbed.records import CheckpointEvent, EvaluationEvent, Placement
from seedbed.settings import Settings
from seedbed.tasks.addition import AdditionSettings
from seedbed.tasks.base import BatchLimits
from seedbed.training.loop import train_pack
from tests.equivalence.reference_gpt import PlainGPT

TINY = {
    "task.kind": "addition", "task.equations": 57, "model.dim": 8, "model.heads": 2, "model.layers": 1,
    "train.batch_size": 10, "train.lr": 0.02, "train.steps": 12, "train.eval_first": 0, "train.eval_every": 4,
    "train.save_every": 6,
}  # fmt: skip


def equation_texts(task: AdditionSettings) -> list[str]:
    tokens = task.vocabulary()
    return [" ".join(tokens[token] for token in row if tokens[token] != "PAD") for row in task.build_table().tokens]


def test_equations_are_written_digit_by_digit():
    """Worked by hand."""
    forwards, backwards = AdditionSettings(), AdditionSettings(reverse_result=True)
    for task, expected in (
        (forwards, ["BOS 0 + 7 = 7 EOS", "BOS 4 7 + 3 8 = 8 5 EOS", "BOS 9 9 + 1 = 1 0 0 EOS"]),
        (backwards, ["BOS 0 + 7 = 7 EOS", "BOS 4 7 + 3 8 = 5 8 EOS", "BOS 9 9 + 1 = 0 0 1 EOS"]),
    ):
        texts = equation_texts(task)
        assert [texts[100 * a + b] for a, b in ((0, 7), (47, 38), (99, 1))] == expected


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("digits", [1, 2])
def test_the_table_holds_every_pair_once_with_its_sum(digits, reverse):
    n = 10**digits
    expected = []
    for a in range(n):
        for b in range(n):
            result = str(a + b)[::-1] if reverse else str(a + b)
            expected.append(f"BOS {' '.join(str(a))} + {' '.join(str(b))} = {' '.join(result)} EOS")
    task = AdditionSettings(digits=digits, reverse_result=reverse)
    assert equation_texts(task) == expected
    assert max(len(text.split()) for text in expected) == task.dataset_info().context_length + 1


def test_the_digits_of_the_result_and_eos_are_scored():
    task = AdditionSettings(digits=2)
    table, tokens = task.build_table(), task.vocabulary()
    targets = np.take_along_axis(table.tokens[:, 1:], table.scored_positions, axis=1)
    for row in (7, 4738, 9901, 9999):
        scored = [tokens[token] for token in targets[row][table.is_scored[row]]]
        assert scored == [*str(row // 100 + row % 100), "EOS"]
        assert table.n_scored[row] == len(scored)
    assert set(table.n_scored) == {2, 3, 4}


def test_drawn_equations_are_the_same_for_every_run_and_smaller_draws_are_part_of_larger_ones():
    small, large = (set(equation_texts(AdditionSettings(equations=n))) for n in (50, 80))
    assert (len(small), len(large)) == (50, 80)
    assert small < large
    assert AdditionSettings(equations=10_000).build_table().tokens.shape == (10_000, 11)


def test_every_length_is_split_in_the_same_proportion():
    task = AdditionSettings(digits=1, train_fraction=0.3)
    lengths = np.array([len(text.split()) for text in equation_texts(task)])
    splits = [task.split_rows(seed) for seed in (0, 1)]
    for train, val in splits:
        assert sorted([*train, *val]) == list(range(100))
        # 55 sums have one digit and 45 have two; 16.5 rounds to even, 13.5 too.
        assert [int((lengths[train] == n).sum()) for n in (7, 8)] == [16, 14]
    assert set(splits[0][0]) != set(splits[1][0])
    assert task.count_train_samples() == 30
    train, val = AdditionSettings(digits=1, train_fraction=1.0).split_rows(3)
    assert len(train) == 100
    assert val.tolist() == [train[-1]]


def test_settings_that_leave_nothing_are_conflicts():
    assert [name for name, _ in AdditionSettings(equations=101, digits=1).conflicts()] == ["task.equations"]
    assert [name for name, _ in AdditionSettings(equations=3, train_fraction=0.01).conflicts()] == [
        "task.train_fraction"
    ]


def test_typed_equations_are_encoded_digit_by_digit():
    tokenizer = AdditionSettings().load_tokenizer()
    expected = [12, 4, 7, 10, 3, 8, 11]
    assert tokenizer.encode("47 + 38 =").tolist() == tokenizer.encode("4 7 + 3 8=").tolist() == expected
    assert tokenizer.decode([*expected, 8, 5, 13]) == "4 7 + 3 8 = 8 5"
    with pytest.raises(UsageError, match=r"'\*' \(column 4\) is not a token of this task; expected 0 … 9, \+ or ="):
        tokenizer.encode("47 * 38 =")


def events(settings, seeds=(5,), resume_state=None):
    return list(train_pack([settings] * len(seeds), seeds, Placement(), resume_state))


def test_metrics_match_a_computation_sample_by_sample():
    """Loss, accuracy and token accuracy from the saved weights with a plain model, equation by equation."""
    settings = Settings.from_flat(TINY | {"train.steps": 60, "train.eval_every": 20})
    history = events(settings)
    saved = [event for event in history if isinstance(event, CheckpointEvent)][-1]
    last = [event for event in history if isinstance(event, EvaluationEvent)][-1]
    plain = PlainGPT(settings.model, 15, 10)
    plain.load({name: torch.from_numpy(array) for name, array in saved.weights[0].items()})
    vocabulary, found = settings.task.vocabulary(), {}
    for split, rows in zip(("train", "val"), settings.task.split_rows(5), strict=True):
        for row in rows:
            words = equation_texts(settings.task)[row].split()
            ids = torch.tensor([vocabulary.index(word) for word in words])
            scored = range(words.index("="), len(words) - 1)
            logits = plain(ids[None, :-1])[0]
            n_digits = max(len(part.split()) for part in " ".join(words[1 : words.index("=")]).split(" + "))
            values = (
                np.mean([F.cross_entropy(logits[t], ids[t + 1]).item() for t in scored]),
                [bool(logits[t].argmax() == ids[t + 1]) for t in scored],
            )
            for suffix in ("", f"[digits={n_digits}]"):
                found.setdefault((split, suffix), []).append(values)
    assert {suffix for _, suffix in found} >= {"", "[digits=2]"}
    for (split, suffix), values in found.items():
        expected = {
            "loss": np.mean([loss for loss, _ in values]),
            "accuracy": np.mean([all(correct) for _, correct in values]),
            "token_accuracy": np.mean([one for _, correct in values for one in correct]),
        }
        for name, value in expected.items():
            column = last.metrics.index(f"{split}/{name}{suffix}")
            assert last.values[0][column] == pytest.approx(value, abs=1e-5), (split, name, suffix)


def test_shared_prefixes_change_nothing():
    """Equal operands are computed once where there is no dropout; batches then hold what follows them."""
    settings = Settings.from_flat(TINY | {"task.equations": 2_000, "train.batch_size": 500})
    plain, shared = (
        settings.task.make_batches([settings], [3], "cpu", BatchLimits(can_share_prefixes=can)) for can in (False, True)
    )
    assert shared.prefix_length > 0
    whole, rest = (batches.draw(torch.tensor([0])) for batches in (plain, shared))
    prefixes = rest.shared_prefixes[0][rest.prefix_index[0]]
    assert torch.equal(torch.cat([prefixes, rest.inputs[0]], 1), whole.inputs[0])
    assert torch.equal(rest.scored_positions + shared.prefix_length, whole.scored_positions)
    assert torch.equal(rest.targets, whole.targets)
    assert torch.equal(rest.target_mask, whole.target_mask)


def test_a_resumed_run_equals_an_uninterrupted_one():
    settings = Settings.from_flat(TINY)
    whole = events(settings, (5, 6))
    saved = next(event for event in whole if isinstance(event, CheckpointEvent))
    assert 0 < saved.step < settings.n_steps()
    resumed = events(settings, (5, 6), saved.state)
    for kind in (EvaluationEvent, CheckpointEvent):
        expected = [event for event in whole if isinstance(event, kind) and event.step > saved.step]
        actual = [event for event in resumed if isinstance(event, kind)]
        assert [event.step for event in actual] == [event.step for event in expected]
        for first, second in zip(actual, expected, strict=True):
            if kind is EvaluationEvent:
                assert np.array_equal(first.values, second.values)
            else:
                assert all(np.array_equal(first.state[name], array) for name, array in second.state.items())
