"""Times that packs took on this machine, kept in one file of the user so that every home profits; no torch.

    add_rates([Rate(…)])
    for rate in read_rates(): …

The file is a cache: one that cannot be read counts as empty, and losing it loses only the precision of prices.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from seedbed.data.corpora import cache_folder
from seedbed.errors import SeedbedError
from seedbed.store.durable_files import file_lock, make_folder, write_atomic

RATES_VERSION = 3  # raised whenever older numbers would mislead, such as after a change of what is counted
MAX_STORED_RATES = 2_000  # entries kept, the newest


@dataclass(frozen=True)
class MeasuredRate:
    """What one pack took: seconds a time by what was done, and bytes; `shape` and `n_runs` say of which pack."""

    machine: str
    device: str
    mode: str
    threads: int
    workers: int  # packs side by side
    family: str  # task and model: shapes of one family follow one law
    shape: str
    n_runs: int
    update: float  # seconds that the closed form expects of one update of one run, before it is fitted
    record: float  # and of one record
    seconds: Mapping[str, float] = field(default_factory=dict)
    steady: int | None = None
    peak: int | None = None

    @property
    def key(self) -> tuple[str | int, ...]:
        """What a newer measurement replaces."""
        where = (self.machine, self.device, self.mode, self.threads, self.workers)
        return (*where, self.shape, self.n_runs)


def rates_path() -> Path:
    """`SEEDBED_RATES`, or a file in the user's cache."""
    named = os.environ.get("SEEDBED_RATES")
    return Path(named) if named else cache_folder() / "rates.json"


def read_rates() -> list[MeasuredRate]:
    """All that is kept, the oldest first."""
    try:
        document = json.loads(rates_path().read_text(encoding="utf-8"))
        if document["version"] != RATES_VERSION:
            return []
        return [MeasuredRate(**entry) for entry in document["rates"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def add_rates(new: Sequence[MeasuredRate]) -> None:
    """Puts measurements in the place of older ones of the same packs; a file that cannot be written is left alone."""
    if not new:
        return
    path = rates_path().absolute()
    try:
        make_folder(path.parent)
        with file_lock(path.with_suffix(".lock"), "the file of rates", wait=True):
            kept = {rate.key: rate for rate in read_rates()}
            for rate in new:
                kept.pop(rate.key, None)
                kept[rate.key] = rate
            document = {
                "version": RATES_VERSION,
                "rates": [asdict(rate) for rate in list(kept.values())[-MAX_STORED_RATES:]],
            }
            write_atomic(path, json.dumps(document, indent=1).encode(), "older rates")
    except (OSError, SeedbedError):
        return
