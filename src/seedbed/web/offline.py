"""No request ever leaves the server: corpora that are not here stay missing while it looks at a store.

Studies that the page starts are programs of their own and get the environment as it was.
"""

from __future__ import annotations

import os
from functools import cache


@cache
def original_environment() -> dict[str, str]:
    """The environment that `seedbed serve` was started in, for programs that it starts."""
    return dict(os.environ)


def forbid_network() -> None:
    """From here on this process fetches no corpus."""
    original_environment()
    os.environ["SEEDBED_OFFLINE"] = "1"
