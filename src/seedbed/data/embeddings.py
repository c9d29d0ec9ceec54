"""Pretrained embeddings from an .npz file: `tokens` (V × D) and `positions` (T × D); nothing is ever unpickled.

Loads the arrays, checks their shapes against the task and computes a digest; whether they are trained further is up to
the model.
"""

from __future__ import annotations

import hashlib
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.errors import MissingData, UsageError
from seedbed.settings import DatasetInfo, Settings


def load_embeddings(settings: Settings, info: DatasetInfo | None = None) -> dict[str, NDArray[Any]]:
    """Returns the tables that the model takes from the file that these settings name, by name, with checked shapes."""
    model, info = settings.model, info or settings.task.dataset_info()
    if model.embeddings is None:
        return {}
    arrays = _load_arrays(model.embeddings)
    return {
        name: _check_table(model.embeddings, arrays, name, table.n_rows, table.dim)
        for name, table in model.embedding_tables(info).items()
    }


@cache
def embeddings_digest(path: str) -> str:
    """Returns the SHA-256 of the file."""
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
        raise MissingData(f"model.embeddings = {path}: no such file; expected an .npz, or omit the setting") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"model.embeddings = {path}: not an .npz of plain arrays ({error})") from None


def _check_table(path: str, arrays: dict[str, NDArray[Any]], name: str, n_rows: int, dim: int) -> NDArray[Any]:
    """Returns the first `n_rows` rows of an array of the file; UsageError unless it fits."""
    if name not in arrays:
        names = ", ".join(arrays) or "neither tokens nor positions"
        raise UsageError(f"model.embeddings = {path}: holds {names}; an array {name} of {n_rows:,} × {dim} is needed")
    table = arrays[name]
    # Token ids must match exactly; positions may cover a longer context.
    has_enough_rows = table.ndim == 2 and (len(table) >= n_rows if name == "positions" else len(table) == n_rows)
    if not has_enough_rows or table.shape[1] != dim:
        shape = " × ".join(f"{size:,}" for size in table.shape)
        raise UsageError(f"model.embeddings = {path}: {name} is {shape}; this task and model need {n_rows:,} × {dim}")
    if table.dtype.kind != "f" or not np.isfinite(table).all():
        raise UsageError(f"model.embeddings = {path}: {name} holds values that are not finite floats")
    return table[:n_rows]
