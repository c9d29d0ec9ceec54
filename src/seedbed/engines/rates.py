"""Measured times of packs on this machine, in one file per user that all homes share; no torch.

    add_rates([MeasuredRate(…)])
    for rate in read_rates(): …

The file is a cache: an unreadable one counts as empty, and without it estimates are only less precise.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from seedbed.data.catalogue import cache_folder
from seedbed.errors import SeedbedError
from seedbed.store.durable_files import file_lock, make_folder, write_atomic

RATES_VERSION = 6  # raised whenever older numbers would mislead, such as after a change of what is measured
MAX_STORED_RATES = 2_000  # the newest are kept


@dataclass(frozen=True)
class MeasuredRate:
    """Mean seconds of each section of one pack, and its memory; the field names are the keys of the file."""

    machine: str
    device: str
    mode: str
    threads: int
    workers: int  # concurrent packs
    family: str  # task, model and precision: shapes of one family share one fitted line
    shape: str  # digest of the settings that affect the time of an update
    n_runs: int
    update: float  # seconds that the cost model predicts for one update of one run
    record: float  # and for one evaluation
    seconds: Mapping[str, float] = field(default_factory=dict)  # by section
    steady: int | None = None  # bytes
    peak: int | None = None

    @property
    def key(self) -> tuple[str | int, ...]:
        """Identifies what was measured: a newer rate replaces an older one with the same key."""
        return (self.machine, self.device, self.mode, self.threads, self.workers, self.shape, self.n_runs)


def rates_path() -> Path:
    """`SEEDBED_RATES`, or a file in the user's cache."""
    path = os.environ.get("SEEDBED_RATES")
    return Path(path) if path else cache_folder() / "rates.json"


def read_rates() -> list[MeasuredRate]:
    """All stored rates, oldest first."""
    try:
        document = json.loads(rates_path().read_text(encoding="utf-8"))
        if document["version"] != RATES_VERSION:
            return []
        return [MeasuredRate(**entry) for entry in document["rates"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def add_rates(new: Sequence[MeasuredRate]) -> None:
    """Stores rates in place of older ones with the same key; a file that cannot be written is left unchanged."""
    if not new:
        return
    path = rates_path().absolute()
    try:
        make_folder(path.parent)
        with file_lock(path.with_suffix(".lock"), "the file of rates", wait=True):
            rates = {rate.key: rate for rate in read_rates()}
            for rate in new:
                rates.pop(rate.key, None)  # so that it becomes the newest
                rates[rate.key] = rate
            newest = list(rates.values())[-MAX_STORED_RATES:]
            document = {"version": RATES_VERSION, "rates": [asdict(rate) for rate in newest]}
            write_atomic(path, json.dumps(document, indent=1).encode(), "older rates")
    except (OSError, SeedbedError):
        return
