"""Study files on disk and in the package: found by path or shipped name, and read as text of a limited size.

read.py interprets the text. Every error here is one sentence that gives the place and the reason.
"""

from __future__ import annotations

import os
from collections import Counter
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

from seedbed.study.toml_text import did_you_mean, format_toml_value, parse_toml, study_error, truncate_text

MAX_STUDY_BYTES: Final = 1_000_000


def find_study(name_or_path: str) -> Path:
    """The path of a study given as a file path or a shipped name (`quickstart`, `arithmetic/sanity`)."""
    if os.path.isfile(name_or_path):
        return Path(name_or_path)
    shipped = shipped_studies()
    if name_or_path in shipped:
        return shipped[name_or_path]
    where = truncate_text(format_toml_value(name_or_path)[1:-1])
    if os.path.isdir(name_or_path):
        raise study_error(where, "is a folder; expected a study file or the name of a shipped study")
    guess = did_you_mean(name_or_path, shipped)
    if name_or_path.endswith(".toml"):
        raise study_error(where, f"no such file{guess}; `seedbed init {where}` writes one to start from")
    what = "neither a file nor a shipped study"
    raise study_error(where, f"{what}{guess}" if guess else f"{what}; shipped studies: {summarize_shipped()}")


def summarize_shipped() -> str:
    """`quickstart, arithmetic/* (6), …`: the shipped studies with folders shortened."""
    folders = Counter(name.rpartition("/")[0] for name in shipped_studies() if "/" in name)
    return ", ".join(
        [*(name for name in shipped_studies() if "/" not in name), *(f"{f}/* ({n})" for f, n in folders.items())]
    )


def expand_study_pattern(name: str) -> list[str]:
    """Names of the shipped studies that match a glob (`arithmetic/*`); a name without `*` is returned as is."""
    if "*" not in name:
        return [name]
    if found := [shipped for shipped in shipped_studies() if fnmatchcase(shipped, name)]:
        return found
    raise study_error(truncate_text(name), f"matches no shipped study; shipped studies: {summarize_shipped()}")


@cache
def shipped_studies() -> dict[str, Path]:
    """Paths of all studies in the package, by name; the quickstart first, then those outside a folder."""
    library = Path(str(resources.files("seedbed.study") / "library"))

    def order(file: Path) -> tuple[bool, int, Path]:
        return file.name != "quickstart.toml", len(file.relative_to(library).parts), file

    files = sorted(library.rglob("*.toml"), key=order)
    return {file.relative_to(library).with_suffix("").as_posix(): file for file in files}


def read_study_text(path: Path) -> str:
    """The text of a study file; StudyError if it is too large or not UTF-8."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_STUDY_BYTES + 1)
    except FileNotFoundError:
        raise study_error(str(path), "no such file") from None
    except IsADirectoryError:
        raise study_error(str(path), "is a folder; expected a study file") from None
    except (OSError, ValueError) as error:
        raise study_error(str(path), f"cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if len(content) > MAX_STUDY_BYTES:
        raise study_error(str(path), f"is larger than {MAX_STUDY_BYTES:,} bytes, the limit for a study file")
    if content.startswith(b"\xef\xbb\xbf"):
        raise study_error(f"{path}:1", "begins with a byte-order mark; save it as plain UTF-8")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise study_error(f"{path}:{line}", f"byte {error.start} is not UTF-8; save the file as UTF-8") from None


def study_question(text: str, name: str) -> str:
    """The question that the text of a study file states; problems of the text are reported at this name."""
    return str(parse_toml(text, name).get("question", ""))


def load_example_study() -> str:
    """A commented study file to start from."""
    return (resources.files("seedbed.study") / "example.toml").read_text(encoding="utf-8")
