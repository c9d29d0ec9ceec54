"""The field's words: retired identifiers, setting names, verbs and words do not come back.

What earlier versions called things is named only where that is the subject: the changelog's table, the table of former
words, the upgrade of old stores, and their tests.
"""

from __future__ import annotations

import ast
import builtins
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from seedbed.settings import all_settings, former_setting_names
from seedbed.study.former_words import FORMER_FIGURE_KINDS, FORMER_KEYS, FORMER_OPTIONS, FORMER_VERBS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "seedbed"
PROSE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
STUDIES = sorted((SOURCE / "study").rglob("*.toml"))
PAGES = sorted(path for path in SOURCE.rglob("*") if path.suffix in (".html", ".js", ".css"))
PYTHON = sorted(SOURCE.rglob("*.py"))
TESTS = sorted(path for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
ABOUT_THE_PAST = {"src/seedbed/study/former_words.py", "src/seedbed/store/upgrade.py", "src/seedbed/settings.py"}

# A reading is a noun after an article or the like, or in the plural; "reading the file" is none.
BEFORE_A_NOUN = r"(?:an?|the|each|one|this|that|no|last|every|which|any|its|first|second|another|per|same|named|whose)"
RETIRED_WORDS = re.compile(
    rf"\b(?:dials?|readings|taps?|tapped|stems?|grafts?|grafted|lanes?)\b|\b{BEFORE_A_NOUN}\s+reading\b(?!\s+(?:the|of))",
    re.IGNORECASE,
)
RETIRED_PARTS = {"dial", "dials", "readings", "tap", "taps", "stem", "stems", "graft", "grafts", "lane", "lanes"}
RETIRED_NAMES = {
    "NEEDS", "PER_RUN", "CALENDAR", "DROPOUTS", "DIALS", "NAMES", "FROM_FILES", "Bank", "Dials", "DataFacts",
    "Happening", "Standing", "Shown", "Words", "Findings", "Told", "Seen", "Look", "Taps", "Room", "MIN_USE",
    "facts_of", "closing_record", "map_runs", "remember",
}  # fmt: skip
ADVERBS = {
    "FEW", "MANY", "MUCH", "SHORT", "LONG", "CLEARLY", "NEAR", "MOST", "LEAST", "ROOM", "REST", "LIGHT",
    "SAVED", "OFTEN", "EVERYWHERE", "ALONE", "ALONG", "AHEAD", "ASIDE", "TOGETHER", "BESIDE", "ENOUGH",
    "RATHER", "HARDLY", "NEARLY",
}  # fmt: skip
IRREGULAR_PARTICIPLES = {
    "told", "shown", "seen", "found", "chosen", "kept", "said", "made", "written", "taken", "given", "held",
    "drawn", "known", "read", "begun", "left", "put", "set", "grown", "broken", "spelt", "built", "sent",
    "lost", "met", "done", "gone",
}  # fmt: skip
NOUNS_LIKE_PARTICIPLES = {
    "embedding", "encoding", "finding", "setting", "speed", "stopping", "string", "timing", "tuning",
}  # fmt: skip


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in PYTHON}


def words_of(name: str) -> list[str]:
    """The words of an identifier: `n_shared_Prefixes` has three."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers and texts of what people read in a file: comments and strings of Python, all of anything else."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield from enumerate(token.string.splitlines(), token.start[0])


@pytest.mark.parametrize("path", [*PROSE, *STUDIES, *PAGES, *PYTHON], ids=relative)
def test_retired_words_are_not_written(path: Path) -> None:
    if relative(path) in ABOUT_THE_PAST:
        pytest.skip("it is about the words of earlier versions")
    found = [f"{relative(path)}:{line}: {text.strip()}" for line, text in prose_of(path) if RETIRED_WORDS.search(text)]
    assert found == []


@pytest.mark.parametrize("path", PYTHON, ids=relative)
def test_identifiers_are_not_made_of_retired_words(path: Path) -> None:
    names = {node.id for node in ast.walk(trees()[path]) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(trees()[path]) if isinstance(node, ast.Attribute)}
    names |= {node.arg for node in ast.walk(trees()[path]) if isinstance(node, ast.arg)}
    names |= set(defined_names(trees()[path]))
    names -= {*dir(builtins), "stem"}  # pathlib's name of a file without its suffix
    assert sorted(name for name in names if RETIRED_PARTS & set(words_of(name)) or name in RETIRED_NAMES) == []


def defined_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def test_no_class_is_named_by_a_participle() -> None:
    def is_participle(name: str) -> bool:
        last = words_of(name)[-1]
        if last in NOUNS_LIKE_PARTICIPLES:
            return False
        return last.endswith(("ed", "ing")) or last in IRREGULAR_PARTICIPLES

    classes = {node.name for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    assert sorted(filter(is_participle, classes)) == []
    assert is_participle("Shown")
    assert is_participle("Stepped")
    assert not is_participle("StepEvent")


def test_no_constant_is_named_by_an_adverb() -> None:
    constants = {
        target.id
        for tree in trees().values()
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id.isupper()
    }
    assert len(constants) > 200
    assert sorted(constants & ADVERBS) == []


def test_retired_settings_keys_kinds_verbs_and_options_are_gone() -> None:
    """None of them stands where a user could copy it from."""
    old = [*former_setting_names(), *FORMER_OPTIONS, *(f"seedbed {verb}" for verb in FORMER_VERBS)]
    old += [f"[[{key}]]" for key in FORMER_KEYS] + [f'kind = "{kind}"' for kind in FORMER_FIGURE_KINDS]
    pattern = re.compile("|".join(rf"(?<![\w.\"-]){re.escape(word)}(?![\w])" for word in old))
    found = [
        f"{relative(path)}:{line}: {text.strip()}"
        for path in [*PROSE, *STUDIES, *PAGES, *PYTHON]
        if relative(path) not in ABOUT_THE_PAST
        for line, text in prose_of(path)
        if pattern.search(text)
    ]
    assert found == []
    assert not set(former_setting_names()) & set(all_settings())
