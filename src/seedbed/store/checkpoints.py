"""Arrays in safetensors files that say whose they are and are checked before use; nothing is ever unpickled.

The identity is canonical JSON under the one metadata key `seedbed`: the format keeps metadata in no stable order, and
equal studies must give equal bytes. The digest of the whole file lives in the database.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from seedbed.errors import DamagedCheckpoint
from seedbed.records import Arrays
from seedbed.store.files import explained, make_folders, write_whole

WRITERS = 8  # files that are put in place at a time: most of it is waiting for the disk


@dataclass(frozen=True)
class Identity:
    """What a file holds: the weights of a run, or the state of a pack."""

    kind: Literal["weights", "state"]
    owner: str  # id of the run or pack
    step: int
    settings: str  # digest of the run's seed and settings, or of the pack's members

    def __str__(self) -> str:
        owner = "run" if self.kind == "weights" else "pack"
        return f"the {self.kind} of {owner} {self.owner} at step {self.step:,}"


@dataclass(frozen=True)
class Written:
    """What the database must remember of a file."""

    digest: str
    bytes: int


@dataclass(frozen=True)
class File:
    """Arrays to be written, whose they are, and where."""

    path: Path
    arrays: Arrays
    identity: Identity


def digest_of(data: bytes) -> str:
    """BLAKE2b-256 in hexadecimal."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def digest_of_value(value: Any) -> str:
    """Digest of a plain value, whatever the order of its keys."""
    return digest_of(_canonical(value).encode())


def write_arrays(file: File, kept: str) -> Written:
    """Put arrays in a file, whole or not at all."""
    # safetensors reads memory as if C-ordered: a transposed view would be saved with its numbers shuffled.
    ordered = {name: np.asarray(array, order="C") for name, array in file.arrays.items()}
    data = save(ordered, {"seedbed": _canonical(asdict(file.identity))})
    write_whole(file.path, data, kept)
    return Written(digest_of(data), len(data))


def write_files(files: Sequence[File], kept: str) -> list[Written]:
    """Put each of these in place, several at a time; an error is raised when no file is being written any more."""
    with explained(files[0].path, kept):
        make_folders(file.path.parent for file in files)
    with ThreadPoolExecutor(min(WRITERS, len(files))) as pool:
        written = [pool.submit(write_arrays, file, kept) for file in files]
    return [one.result() for one in written]


def read_arrays(path: Path, identity: Identity, digest: str) -> Arrays:
    """The arrays of a file whose bytes and owner are the expected ones, or DamagedCheckpoint."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DamagedCheckpoint(f"{identity} cannot be read from {path}: {error.strerror}") from error
    if digest_of(data) != digest:
        raise DamagedCheckpoint(
            f"{identity} in {path} is damaged: its {len(data):,} bytes differ from their stored digest"
        )
    try:
        arrays = load(data)
        found = _metadata(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise DamagedCheckpoint(f"{identity} in {path} is not a checkpoint of seedbed: {error}") from error
    if found != _canonical(asdict(identity)):
        raise DamagedCheckpoint(f"{path} should hold {identity}, but says it is {found}")
    return arrays


def take_slots(state: Arrays, slots: Sequence[int], n_slots: int) -> Arrays:
    """Some slots' part of a pack's state: of arrays that have a row for each slot, theirs; all others are common."""
    return {
        name: array[list(slots)] if array.ndim and len(array) == n_slots else array for name, array in state.items()
    }


def _metadata(data: bytes) -> str:
    """The identity inside a file that safetensors has already accepted."""
    length = int.from_bytes(data[:8], "little")
    return str(json.loads(data[8 : 8 + length])["__metadata__"]["seedbed"])


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
