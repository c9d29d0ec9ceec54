"""The home that Python code uses where none is given; it is the variable SEEDBED_HOME, so that commands see it too."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT_HOME = Path("lab")


def home(path: str | os.PathLike[str] | None = None) -> Path:
    """The folder of the store: sets it if a path is given; otherwise SEEDBED_HOME, or `lab` in the working directory.

    >>> before = os.environ.get("SEEDBED_HOME", "")
    >>> home("course/lab").name, home().is_absolute()
    ('lab', True)
    >>> os.environ["SEEDBED_HOME"] = before
    """
    if path is not None:
        os.environ["SEEDBED_HOME"] = str(Path(path).absolute())
    return Path(os.environ.get("SEEDBED_HOME") or DEFAULT_HOME)
