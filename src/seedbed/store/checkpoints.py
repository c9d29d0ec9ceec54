"""Checkpoints as safetensors files that carry their identity and are verified on load; nothing is ever unpickled.

The identity is canonical JSON under a single metadata key, `seedbed`: safetensors does not keep metadata in a stable
order, and equal studies must give equal bytes. The digest of the whole file is stored in the database; that of an
analysis, which readers of the database may write, in the file itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from seedbed.errors import DamagedCheckpoint
from seedbed.interp.analysis import Analysis
from seedbed.records import Arrays
from seedbed.store.durable_files import make_folders, translate_os_errors, write_atomic

MAX_WRITER_THREADS = 8  # files written concurrently; the threads mostly wait for fsync
ANALYSIS_SUFFIX = ".analysis.json"
_ANALYSIS_KEYS = {field.name for field in fields(Analysis)}
STATES = "packs"  # the folder of the states of packs, beside those of runs


# ---- where the files are, in the folder of the checkpoints ----


def weights_path(folder: Path, run_id: str, step: int) -> Path:
    return folder / run_id / f"{step:09d}.safetensors"


def analysis_path(folder: Path, run_id: str, step: int) -> Path:
    return folder / run_id / f"{step:09d}{ANALYSIS_SUFFIX}"


def state_path(folder: Path, pack_id: str, step: int) -> Path:
    return folder / STATES / pack_id / f"{step:09d}.safetensors"


def checkpoint_path(folder: Path, identity: CheckpointIdentity) -> Path:
    path = weights_path if identity.kind == "weights" else state_path
    return path(folder, identity.owner, identity.step)


def path_with_digest(path: Path, digest: str) -> Path:
    """The name of a checkpoint in a folder that several machines write to: no two of them write different bytes to one
    file.

    >>> str(path_with_digest(Path("3f2a/000000100.safetensors"), "0123456789abcdef0123"))
    '3f2a/000000100.0123456789abcdef.safetensors'
    """
    return path.with_suffix(f".{digest[:16]}{path.suffix}")


# ---- what they hold ----


@dataclass(frozen=True)
class CheckpointIdentity:
    """What a checkpoint holds: the weights of a run, or the training state of a pack."""

    kind: Literal["weights", "state"]
    owner: str  # id of the run or pack
    step: int
    settings: str  # digest of the run's seed and settings, or of the pack's members

    def __str__(self) -> str:
        owner = "run" if self.kind == "weights" else "pack"
        return f"the {self.kind} of {owner} {self.owner} at step {self.step:,}"


def weights_identity(run_id: str, fingerprint: str, step: int) -> CheckpointIdentity:
    return CheckpointIdentity("weights", run_id, step, fingerprint)


def state_identity(pack_id: str, members: Sequence[str], step: int) -> CheckpointIdentity:
    return CheckpointIdentity("state", pack_id, step, digest_json(members))


@dataclass(frozen=True)
class FileDigest:
    """Digest and size of a written file, as stored in the database."""

    digest: str
    bytes: int


@dataclass(frozen=True)
class CheckpointFile:
    """Arrays to write, with their identity and path; `is_shared`: its digest becomes a part of its name."""

    path: Path
    arrays: Arrays
    identity: CheckpointIdentity
    is_shared: bool = False


def digest_bytes(data: bytes) -> str:
    """Hex BLAKE2b-256 digest."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def digest_json(value: Any) -> str:
    """Digest of a JSON value, independent of the order of its keys."""
    return digest_bytes(_canonical_json(value).encode())


def write_checkpoint(file: CheckpointFile, preserved: str) -> FileDigest:
    """Write one checkpoint atomically; `preserved` is quoted in the error if it fails."""
    # safetensors assumes C order: a transposed view would be saved with its elements shuffled.
    ordered = {name: np.asarray(array, order="C") for name, array in file.arrays.items()}
    data = save(ordered, {"seedbed": _canonical_json(asdict(file.identity))})
    digest = digest_bytes(data)
    if file.is_shared:
        write_atomic(path_with_digest(file.path, digest), data, preserved, f"{uuid4().hex[:12]}.part")
    else:
        write_atomic(file.path, data, preserved)
    return FileDigest(digest, len(data))


def write_checkpoints(files: Sequence[CheckpointFile], folder: Path, preserved: str) -> list[FileDigest]:
    """Write checkpoints into a folder concurrently; an error is raised only after all writers have ended."""
    with translate_os_errors(files[0].path, preserved):
        make_folders([file.path.parent for file in files], folder)
    with ThreadPoolExecutor(min(MAX_WRITER_THREADS, len(files))) as pool:
        futures = [pool.submit(write_checkpoint, file, preserved) for file in files]
    return [future.result() for future in futures]


def read_checkpoint(path: Path, identity: CheckpointIdentity, digest: str) -> Arrays:
    """The arrays of a checkpoint; DamagedCheckpoint if its digest or identity is not the expected one."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DamagedCheckpoint(f"{identity} cannot be read from {path}: {error.strerror}") from error
    return parse_checkpoint(data, path, identity, digest)


def parse_checkpoint(data: bytes, path: Path | str, identity: CheckpointIdentity, digest: str) -> Arrays:
    """The arrays in the bytes of a checkpoint; `path` is quoted in the error if they are not what is expected."""
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


# ---- analyses ----


def analysis_bytes(document: Mapping[str, Any]) -> bytes:
    """An analysis as it is put into archives."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def write_analysis(path: Path, document: Mapping[str, Any], preserved: str) -> None:
    """Write an analysis atomically, with the digest of its document in it."""
    write_atomic(path, analysis_bytes({"digest": digest_json(document), **document}), preserved)


def read_analysis(path: Path) -> dict[str, Any]:
    """The document of an analysis; OSError or ValueError if it is not as it was written.

    Those of earlier versions have no digest. A damaged one does not pass for one of these: they have no other keys.
    """
    try:
        document = json.loads(path.read_bytes())
        digest = document.pop("digest", None)
        is_intact = document.keys() <= _ANALYSIS_KEYS if digest is None else digest == digest_json(document)
    except (AttributeError, TypeError, RecursionError) as error:
        raise ValueError(f"it is not an analysis: {error}") from error
    if not is_intact:
        raise ValueError("it differs from its digest")
    return dict(document)


def select_slots(state: Arrays, slots: Sequence[int], n_slots: int) -> Arrays:
    """The state of a part of a pack: rows of these slots from per-slot arrays; other arrays are shared as they are."""
    return {
        name: array[list(slots)] if array.ndim and len(array) == n_slots else array for name, array in state.items()
    }


def _read_metadata(data: bytes) -> str:
    """The identity string in the header of a valid safetensors file."""
    length = int.from_bytes(data[:8], "little")
    return str(json.loads(data[8 : 8 + length])["__metadata__"]["seedbed"])


def _canonical_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def run_fingerprint(seed: int, identity: Mapping[str, Any]) -> str:
    """What a weights file says of the run it belongs to, besides its id."""
    return digest_json({"seed": seed, "settings": identity})
