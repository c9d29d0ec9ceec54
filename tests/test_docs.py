"""Prose that is true: commands are accepted, links lead somewhere, and what pages name is in the source."""

from __future__ import annotations

import doctest
import importlib.util
import re
import shlex
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from seedbed import __version__
from seedbed.cli import app
from seedbed.report.reference import find_settings
from seedbed.stats.metric_registry import QUANTITIES
from seedbed.stats.run_statistics import STATISTICS

ROOT = Path(__file__).parent.parent
DOCS, SOURCE = ROOT / "docs", ROOT / "src" / "seedbed"
FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
PAGES = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in FILES}
README, CONTRIBUTING, PROCESSES = PAGES["README.md"], PAGES["CONTRIBUTING.md"], PAGES["docs/processes.md"]


def test_the_readmes_tree_names_every_part_and_no_other():
    tree = re.search(r"```\nsrc/seedbed/\n(.*?)```", README, re.DOTALL)
    assert tree is not None
    named = {line.split()[0].rstrip("/") for line in tree[1].splitlines() if re.match(r"  \w", line)}
    there = {path.name for path in SOURCE.iterdir() if not path.name.startswith("__")}
    assert named == there


def test_every_file_that_the_map_names_exists():
    """The stops of the tour, and where each of the twelve changes begins, is entered and is tested."""
    tour = paths_in((DOCS / "tour.md").read_text(encoding="utf-8"))
    changes = [paths_in(row) for row in CONTRIBUTING.splitlines() if re.match(r"\| an? ", row)]
    assert len(changes) == 12
    assert len(tour) > 25
    assert max(map(len, changes)) <= 5
    assert [path for path in {*tour}.union(*changes) if not path.exists()] == []


def test_every_registry_that_the_map_names_is_where_it_says():
    for name, path in re.findall(r"`([A-Z_]+)` in `((?!tests)[\w/]+\.py)`", CONTRIBUTING):
        assert re.search(rf"^{name}\b.*=", (SOURCE / path).read_text(encoding="utf-8"), re.MULTILINE), name


def paths_in(text: str) -> list[Path]:
    """The files that a text names in backquotes, relative to the source, or to the root where they say so."""
    named = dict.fromkeys(re.findall(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|toml|html|js|json))`", text))
    return [(ROOT if name.startswith(("src/", "tests/")) else SOURCE) / name for name in named]


STARTS = re.compile(r"\b(?:Popen|ThreadPoolExecutor|ProcessPoolExecutor|Thread|fork|start_process)\(")


def test_every_process_and_thread_is_on_the_page_of_processes():
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if STARTS.search(re.sub(r'"""(?:.*?)"""', "", text, flags=re.DOTALL)):
            assert f"`{path.relative_to(SOURCE)}`" in PROCESSES, f"docs/processes.md names nothing that {path} starts"
        for name in re.findall(r'(?:thread_name_prefix|Thread\(.*\bname)="([^"]+)"', text):
            assert f"`{name}`" in PROCESSES, f"docs/processes.md does not name the thread {name}"


def test_every_environment_variable_is_on_the_page_of_processes():
    source = "".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    used = {*re.findall(r"SEEDBED_[A-Z]+\b", source)}
    assert used == {*re.findall(r"^\| `(SEEDBED_[A-Z]+)` \|", PROCESSES, re.MULTILINE)}
    assert used >= {"SEEDBED_HOME", "SEEDBED_DATA", "SEEDBED_RATES"}


def test_every_test_that_shows_a_promise_exists():
    path, named = "", re.findall(r"`(tests/[\w/]+\.py)?::(test_\w+)`", PAGES["docs/promises.md"])
    assert len(named) > 40
    for file, name in named:
        path = file or path  # as in a row of the page: `tests/a.py::test_b`, `::test_c`
        assert re.search(rf"def {name}\(", (ROOT / path).read_text(encoding="utf-8")), f"{path}::{name}"


# ---- commands ----


def find_commands(text: str) -> list[str]:
    """The lines of a page's code blocks that start with `seedbed`, without comments."""
    blocks = re.findall(r"^ *```(?:console|sh)?\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    lines = (line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines())
    return [line for line in lines if re.match(r"(?:[A-Z_]+=\S+ )*seedbed ", line)]


COMMANDS = [(page, command) for page in PAGES for command in find_commands(PAGES[page])]


@pytest.mark.parametrize("page", sorted({page for page, _ in COMMANDS}))
def test_every_command_of_a_page_is_accepted_by_the_command_line(page, tmp_path, monkeypatch):
    """Verbs, arguments, options and their values, and the names of settings; guides and tutorials are run as well."""
    monkeypatch.chdir(tmp_path)
    for command in (command for other, command in COMMANDS if other == page):
        for part in re.split(r" (?:&&|\||>) ", command):
            words = shlex.split(part, comments=True)
            while words and words[0] != "seedbed" and "=" in words[0]:
                del words[0]
            if words[:1] == ["seedbed"]:
                check_words(words[1:], command)


def check_words(words: list[str], command: str) -> None:
    group = typer.main.get_command(app)
    while words[0].startswith("--"):  # options of seedbed itself: --plugin FILE
        assert words[0] in ("--plugin", "--trace", "--version"), command
        words = words[2 if words[0] == "--plugin" else 1 :]
        if not words:
            return
    for word in words:
        if word.endswith(".toml"):
            Path(word).write_text('question = "?"\n', encoding="utf-8")
    while hasattr(group, "commands"):
        assert words[0] in group.commands, command
        name, group, words = words[0], group.commands[words[0]], words[1:]
    try:
        context = group.make_context(name, [*words])
    except Exception as error:
        pytest.fail(f"{command}: {type(error).__name__} {error}")
    for override in context.params.get("overrides") or []:
        name = override.partition("=")[0].removeprefix("random.")
        if name not in ("seeds", "scale", "n_configs", "seed", "exclude"):
            assert find_settings(name), command


def test_every_verb_has_help_that_ends_in_an_example():
    for verb in app.registered_commands:
        name = verb.name or verb.callback.__name__
        done = CliRunner().invoke(app, [name, "--help"])
        assert "Example: seedbed" in done.output.strip().splitlines()[-1], name


# ---- the reference ----


@pytest.fixture(scope="module")
def build():
    """docs/build.py, as a module."""
    spec = importlib.util.spec_from_file_location("seedbed_docs_build", DOCS / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["settings", "study-file", "verbs", "metrics", "json"])
def test_the_reference_is_what_the_code_says(name, build):
    assert name in build.PAGES
    assert len(build.PAGES) == 5
    written = (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")
    assert build.PAGES[name]() == written, "run `make reference` and commit what it writes"


def test_the_index_for_language_models_is_current_and_names_every_page(build):
    assert build.llms_text() == (DOCS / "llms.txt").read_text(encoding="utf-8"), "run `make reference`"
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    unlisted = [
        page for page in PAGES if page.startswith("docs/") and f" {page.removeprefix('docs/')}\n" not in navigation
    ]
    assert [page for page in unlisted if not page.startswith("docs/decisions/")] == []


def test_every_metric_and_statistic_has_a_formula():
    quantities = [one for name, one in QUANTITIES.items() if not name.startswith("attention_")]
    assert [one.name for one in (*quantities, *STATISTICS.values()) if not one.formula] == []


# ---- links ----

LINK = re.compile(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)")


@pytest.mark.parametrize("page", PAGES)
def test_every_link_and_picture_of_a_page_exists(page):
    text = re.sub(r"^ *```.*?^ *```", "", PAGES[page], flags=re.DOTALL | re.MULTILINE)
    for target in LINK.findall(re.sub(r"`[^`\n]*`", "", text)):
        if re.match(r"https?://", target):
            continue
        name, _, anchor = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(path.read_text(encoding="utf-8")), f"{page}: {target}"


def anchors(text: str) -> set[str]:
    """Ids of the headings of a page, as GitHub and Python-Markdown make them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles}


def test_the_changelog_speaks_of_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## Unreleased" in text if "dev" in __version__ else f"## {__version__}" in text


WITH_EXAMPLES = [path for path in sorted(SOURCE.rglob("*.py")) if ">>>" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.stem)
def test_examples_in_docstrings_are_true(path):
    name = ".".join(("seedbed", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert not result.failed
