"""Study files on disk and in the package: found by path or shipped name, size-checked, parsed as TOML.

read.py interprets the keys. Every error here is one sentence that gives the place and the reason.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

from seedbed.errors import Problem, StudyError
from seedbed.settings import Value
from seedbed.study.toml_format import did_you_mean, format_toml_value, truncate_text
from seedbed.study.toml_scanner import LimitError, check_toml_limits

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


def study_error(where: str, what: str) -> StudyError:
    return StudyError([Problem(where, what)])


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


def _describe_repeated_key(text: str, line: int, what: str) -> str | None:
    """`seeds is given twice (lines 2 and 3)`, if that is what the parser objects to."""
    if not what.startswith(("Cannot overwrite a value", "Cannot declare")):
        return None
    lines = text.splitlines()
    key = re.match(r"\s*(\[{1,2}[^]]+\]{1,2}|[^=]+?)\s*(?:=|$)", lines[line - 1])
    if key is None:
        return None
    earlier = [n for n in range(1, line) if re.match(rf"\s*{re.escape(key[1])}\s*(?:=|#|$)", lines[n - 1])]
    return f"{truncate_text(key[1])} is given twice (lines {earlier[-1]} and {line})" if earlier else None


def parse_toml(text: str, path: str) -> dict[str, Value]:
    """The TOML document; StudyError if it exceeds the limits or is not TOML."""
    try:
        check_toml_limits(text)
        return tomllib.loads(text)
    except LimitError as limit:
        raise study_error(f"{path}:{limit.line}", str(limit)) from None
    except tomllib.TOMLDecodeError as error:
        what, _, position = str(error).rpartition(" (at ")
        found = re.match(r"line (\d+), (column \d+)", position)
        line = int(found[1]) if found else text.count("\n") + 1
        if not re.search(r"(?m)^\s*(\[|[\w.\"'-]+\s*=)", text):
            raise study_error(
                path, "not a study file; expected TOML, such as seeds = 3, or [base] above settings"
            ) from None
        what = _describe_repeated_key(text, line, what) or f"{what} ({found[2] if found else 'end of file'})"
        raise study_error(f"{path}:{line}", what) from None
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits, a date that does not exist
        raise study_error(path, f"cannot be read as TOML ({error})") from None


def study_question(text: str, name: str) -> str:
    """The question that the text of a study file states; problems of the text are reported at this name."""
    return str(parse_toml(text, name).get("question", ""))
