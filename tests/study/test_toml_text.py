from __future__ import annotations

from textwrap import dedent

import pytest

from seedbed.study.toml_text import LimitError, check_toml_limits, find_key_lines

TEXT = dedent(
    '''\
    # a comment with [brackets] and = signs
    question = """
    [not.a.table]
    key = "still text" """
    seeds = [
      0, # first
      42,
    ]

    [base.model]   # header
    "layers" = 2
    dim=3

    [grid]
    "train.lr" = [1.5, 2e-3]
    model . heads = [ [1],
                      [2] ]

    [[zip]]
    a = '] = ['
    [[zip]]
    b.c = {x = 1, "y.z" = [{w = 2}]}
    [zip.sub]
    d = 1979-05-27T07:32:00
    '''
)


def test_every_key_and_item_has_its_line_number() -> None:
    found = find_key_lines(TEXT)
    wanted = {
        "question": 2,
        "seeds": 5,
        "seeds.0": 6,
        "seeds.1": 7,
        "base": 10,
        "base.model": 10,
        "base.model.layers": 11,
        "base.model.dim": 12,
        "grid": 14,
        "grid.train.lr": 15,
        "grid.model.heads": 16,
        "grid.model.heads.0": 16,
        "grid.model.heads.1": 17,
        "zip.0": 19,
        "zip.0.a": 20,
        "zip.1": 21,
        "zip.1.b.c": 22,
        "zip.1.b.c.x": 22,
        "zip.1.b.c.y.z.0.w": 22,
        "zip.1.sub.d": 24,
    }
    assert {key: found.get(key) for key in wanted} == wanted
    assert not any("not" in key for key in found)


def test_crlf_counts_as_one_line_break() -> None:
    assert find_key_lines("a = 1\r\nb = 2\r\n") == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a = 1\nb = " + "[" * 33 + "]" * 33, "nested"),
        ("a = 1\n" + ".".join("k" * 33) + " = 1", "parts"),
        ("a = 1\n[" + ".".join("k" * 20_000) + "]", "parts"),
        (f'a = 1\nb = "{"x" * 10_001}"', "characters"),
        (f'a = 1\nb = """{"x" * 10_001}"""', "characters"),
        ("a = 1\n" + "k" * 10_001 + " = 1", "characters"),
    ],
)
def test_too_deep_or_too_long_text_is_rejected_with_its_line(text: str, what: str) -> None:
    with pytest.raises(LimitError, match=what) as error:
        check_toml_limits(text)
    assert error.value.line == 2


def test_sizes_at_the_limit_pass() -> None:
    check_toml_limits("b = " + "[" * 32 + "]" * 32)
    check_toml_limits(".".join("k" * 32) + " = 1")
    check_toml_limits(f'b = "{"x" * 9_998}"')
    check_toml_limits("a = [" + "1.5, " * 50 + "]")
