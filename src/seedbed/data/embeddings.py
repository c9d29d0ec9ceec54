"""Tables of vectors from a file: `tokens` (V × D) and `positions` (T × D) of an .npz; nothing is ever unpickled.

Whether they are learned further is the model's; here they are read, checked against the task, and named by a digest.
"""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.data.dataset_info import get_dataset_info
from seedbed.errors import MissingData, UsageError
from seedbed.settings import DatasetInfo, LSTMSettings, Settings


@dataclass(frozen=True)
class PretrainedEmbeddings:
    """Vectors by token id, and by position where the model asks for them."""

    tokens: NDArray[Any]
    positions: NDArray[Any] | None


def load_embeddings(settings: Settings, info: DatasetInfo | None = None) -> PretrainedEmbeddings | None:
    """The tables that these settings ask for, of the sizes they need; None where they ask for none."""
    model, info = settings.model, info or get_dataset_info(settings.task)
    if model.embeddings is None:
        return None
    arrays = _load_arrays(model.embeddings)
    tokens = _check_table(model.embeddings, arrays, "tokens", info.vocab_size, model.dim)
    if isinstance(model, LSTMSettings) or model.positions != "learned":
        return PretrainedEmbeddings(tokens, None)
    return PretrainedEmbeddings(
        tokens, _check_table(model.embeddings, arrays, "positions", info.context_length, model.dim)
    )


@cache
def embeddings_digest(path: str) -> str:
    """What names the file's content."""
    with _open_npz(path):
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@cache
def _load_arrays(path: str) -> dict[str, NDArray[Any]]:
    with _open_npz(path) as file:
        return {name: file[name] for name in ("tokens", "positions") if name in file.files}


def _open_npz(path: str) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise MissingData(f"model.embeddings = {path}: no such file; expected an .npz, or leave the dial out") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"model.embeddings = {path}: not an .npz of plain arrays ({error})") from None


def _check_table(path: str, arrays: dict[str, NDArray[Any]], name: str, n_rows: int, dim: int) -> NDArray[Any]:
    if name not in arrays:
        held = ", ".join(arrays) or "neither tokens nor positions"
        raise UsageError(f"model.embeddings = {path}: holds {held}; an array {name} of {n_rows:,} × {dim} is needed")
    found = arrays[name]
    if (
        found.ndim != 2
        or found.shape[1] != dim
        or (len(found) < n_rows if name == "positions" else len(found) != n_rows)
    ):
        shape = " × ".join(f"{size:,}" for size in found.shape)
        raise UsageError(f"model.embeddings = {path}: {name} is {shape}; this task and model need {n_rows:,} × {dim}")
    if found.dtype.kind != "f" or not np.isfinite(found).all():
        raise UsageError(f"model.embeddings = {path}: {name} holds other things than finite numbers")
    return found[:n_rows]
