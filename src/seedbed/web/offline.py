"""Keeps the server off the network: missing corpora are not downloaded while it serves a store.

Studies started from the page are separate processes and get the original environment.
"""

from __future__ import annotations

import os
from functools import cache


@cache
def original_environment() -> dict[str, str]:
    """The environment that `seedbed serve` was started in, for the processes it spawns."""
    return dict(os.environ)


def forbid_network() -> None:
    """Disables corpus downloads in this process, after saving the original environment."""
    original_environment()
    os.environ["SEEDBED_OFFLINE"] = "1"
