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
from seedbed.store.durable_files import make_folders, translate_os_errors, write_atomic

MAX_WRITER_THREADS = 8  # files that are put in place at a time: most of it is waiting for the disk


@dataclass(frozen=True)
class CheckpointIdentity:
    """What a file holds: the weights of a run, or the state of a pack."""

    kind: Literal["weights", "state"]
    owner: str  # id of the run or pack
    step: int
    settings: str  # digest of the run's seed and settings, or of the pack's members

    def __str__(self) -> str:
        owner = "run" if self.kind == "weights" else "pack"
        return f"the {self.kind} of {owner} {self.owner} at step {self.step:,}"


@dataclass(frozen=True)
class FileDigest:
    """What the database must remember of a file."""

    digest: str
    bytes: int


@dataclass(frozen=True)
class CheckpointFile:
    """Arrays to be written, whose they are, and where."""

    path: Path
    arrays: Arrays
    identity: CheckpointIdentity


def digest_bytes(data: bytes) -> str:
    """BLAKE2b-256 in hexadecimal."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def digest_json(value: Any) -> str:
    """Digest of a plain value, whatever the order of its keys."""
    return digest_bytes(_canonical_json(value).encode())


def write_checkpoint(file: CheckpointFile, preserved: str) -> FileDigest:
    """Put arrays in a file, whole or not at all."""
    # safetensors reads memory as if C-ordered: a transposed view would be saved with its numbers shuffled.
    ordered = {name: np.asarray(array, order="C") for name, array in file.arrays.items()}
    data = save(ordered, {"seedbed": _canonical_json(asdict(file.identity))})
    write_atomic(file.path, data, preserved)
    return FileDigest(digest_bytes(data), len(data))


def write_checkpoints(files: Sequence[CheckpointFile], preserved: str) -> list[FileDigest]:
    """Put each of these in place, several at a time; an error is raised when no file is being written any more."""
    with translate_os_errors(files[0].path, preserved):
        make_folders(file.path.parent for file in files)
    with ThreadPoolExecutor(min(MAX_WRITER_THREADS, len(files))) as pool:
        written = [pool.submit(write_checkpoint, file, preserved) for file in files]
    return [one.result() for one in written]


def read_checkpoint(path: Path, identity: CheckpointIdentity, digest: str) -> Arrays:
    """The arrays of a file whose bytes and owner are the expected ones, or DamagedCheckpoint."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DamagedCheckpoint(f"{identity} cannot be read from {path}: {error.strerror}") from error
    if digest_bytes(data) != digest:
        raise DamagedCheckpoint(
            f"{identity} in {path} is damaged: its {len(data):,} bytes differ from their stored digest"
        )
    try:
        arrays = load(data)
        found = _read_metadata(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise DamagedCheckpoint(f"{identity} in {path} is not a checkpoint of seedbed: {error}") from error
    if found != _canonical_json(asdict(identity)):
        raise DamagedCheckpoint(f"{path} should hold {identity}, but says it is {found}")
    return arrays


def select_slots(state: Arrays, slots: Sequence[int], n_slots: int) -> Arrays:
    """Some slots' part of a pack's state: of arrays that have a row for each slot, theirs; all others are common."""
    return {
        name: array[list(slots)] if array.ndim and len(array) == n_slots else array for name, array in state.items()
    }


def _read_metadata(data: bytes) -> str:
    """The identity inside a file that safetensors has already accepted."""
    length = int.from_bytes(data[:8], "little")
    return str(json.loads(data[8 : 8 + length])["__metadata__"]["seedbed"])


def _canonical_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
