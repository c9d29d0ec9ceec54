"""Pretrained embeddings from an .npz file: `tokens` (V × D) and `positions` (T × D); nothing is ever unpickled.

Loads the arrays, checks their shapes against the task and computes a digest; whether they are trained further is up to
the model. GPT-1's tables, `model.embeddings = "gpt1"`, are downloaded once, verified, and cached as an .npz.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from seedbed.data import catalogue
from seedbed.errors import MissingData, SeedbedError, UsageError
from seedbed.settings import DatasetInfo, Settings

GPT1: Final = "gpt1"
GPT1_TABLES = ("positions", "tokens")  # in the order in which their values are hashed
GPT1_REPOSITORY: Final = "openai/finetune-transformer-lm"
GPT1_COMMIT: Final = "a69b5c43b0452462890bca8ff92fb75dee9290cf"
GPT1_FILE: Final = "gpt1_embeddings/gpt1.npz"  # relative to SEEDBED_DATA and to the cache
API_HOST = "https://api.github.com"


def load_embeddings(settings: Settings, info: DatasetInfo) -> dict[str, NDArray[Any]]:
    """Returns the tables that the model takes from the file that these settings name, by name, with checked shapes."""
    path = settings.model.embeddings
    tables = settings.model.embedding_tables(info) if path is not None else {}
    return {name: _load_table(path, name, table.n_rows, table.dim) for name, table in tables.items()}


@cache
def embeddings_digest(path: str) -> str:
    """Returns the SHA-256 of the file; of GPT-1's tables, that of their values."""
    if path == GPT1:
        with _open_npz(str(ensure_gpt1_embeddings())) as archive:
            return hashlib.sha256(b"".join(_read_array(archive, name).tobytes() for name in GPT1_TABLES)).hexdigest()
    with _open_npz(path):
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@contextmanager
def _open_npz(path: str) -> Iterator[zipfile.ZipFile]:
    """The archive; MissingData or UsageError, whatever is in the file."""
    setting = f"model.embeddings = {path}"
    if not Path(path).exists():
        raise MissingData(f"{setting}: no such file; expected an .npz, or omit the setting")
    if not Path(path).is_file():
        raise UsageError(f"{setting} is not a file; expected an .npz that numpy.savez wrote")
    try:
        with zipfile.ZipFile(path) as file:
            yield file
    except SeedbedError:
        raise
    except zipfile.BadZipFile as error:
        reason = str(error)[:1].lower() + str(error)[1:]
        raise UsageError(f"{setting}: not an .npz that numpy.savez wrote, or damaged ({reason})") from None
    except Exception as error:  # whatever decompressing and parsing a hostile file raises
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise UsageError(f"{setting}: damaged, or not an .npz that numpy.savez wrote ({reason})") from None


@cache
def _load_table(path: str, name: str, n_rows: int, dim: int) -> NDArray[Any]:
    """Returns the first `n_rows` rows of an array of the file, which is read only if its header says that it fits."""
    setting = f"model.embeddings = {path}"
    with _open_npz(str(ensure_gpt1_embeddings()) if path == GPT1 else path) as archive:
        member = f"{name}.npy"
        if member not in archive.namelist():
            names = ", ".join(one.removesuffix(".npy") for one in archive.namelist()[:5]) or "nothing"
            raise UsageError(f"{setting}: holds {names}; an array {name} of {n_rows:,} × {dim} is needed")
        with archive.open(member) as stream:
            shape, dtype = _read_header(stream)
            n_bytes = archive.getinfo(member).file_size - stream.tell()
        # Token ids must match exactly; positions may cover a longer context.
        has_enough_rows = len(shape) == 2 and (shape[0] >= n_rows if name == "positions" else shape[0] == n_rows)
        if not has_enough_rows or shape[1] != dim:
            found = " × ".join(f"{size:,}" for size in shape) or "a single number"
            raise UsageError(f"{setting}: {name} is {found}; this task and model need {n_rows:,} × {dim}")
        if dtype.kind != "f":
            kind = "Python objects" if dtype.hasobject else str(dtype)
            raise UsageError(f"{setting}: {name} holds {kind}, not floats; save it as an array of float32")
        if n_bytes != math.prod(shape) * dtype.itemsize:
            raise UsageError(f"{setting}: {name} is cut short or damaged; save it again with numpy.savez")
        table = _read_array(archive, name)
    if not np.isfinite(table).all():
        raise UsageError(f"{setting}: {name} holds values that are not finite floats")
    return table[:n_rows]


def _read_array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    with archive.open(f"{name}.npy") as stream:
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of an array in NumPy's format; reads no data."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    return shape, dtype


# ---- GPT-1's tables ----
# The published weights are one array, cut into files `params_0.npy`, `params_1.npy`, … regardless of where tensors end;
# `params_shapes.json` has the shapes of the tensors, positions and tokens first. Each downloaded file must have the Git
# blob id that the pinned commit gives it. Row 0 of `tokens` is the padding token of the task's ids, a row of zeros.


def ensure_gpt1_embeddings() -> Path:
    """The path of the .npz, downloading it into the cache if it is not there."""
    if (path := catalogue.find_local_file(GPT1_FILE)) is not None:
        return path
    arrays = "tokens (40,479 × 768) and positions (512 × 768)"
    place = f"put an .npz with arrays {arrays} at {catalogue.data_folder_name()}/{GPT1_FILE}"
    if catalogue.is_offline():
        raise MissingData(
            f"model.embeddings = {GPT1}: GPT-1's tables are not on this machine and SEEDBED_OFFLINE forbids "
            f"the network; unset it, or {place}"
        )
    target = catalogue.cache_folder() / GPT1_FILE
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetching-") as folder:
            positions, tokens = _download_tables(Path(folder))
            padding = np.zeros((1, tokens.shape[1]), np.float32)
            partial = Path(folder) / target.name
            np.savez(partial, tokens=np.concatenate([padding, tokens]), positions=positions)
            partial.replace(target)
    except (OSError, ValueError, KeyError, EOFError) as error:
        reason = " ".join(str(error).split())[:200]
        raise MissingData(
            f"model.embeddings = {GPT1}: GPT-1's tables could not be downloaded from {GPT1_REPOSITORY} ({reason}); "
            f"try again, or {place}"
        ) from None
    return target


def _download_tables(folder: Path) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Positions and tokens, from as many of the files as they are in."""
    listing = json.loads(_download(f"{API_HOST}/repos/{GPT1_REPOSITORY}/contents/model?ref={GPT1_COMMIT}", folder))
    blob_ids = {entry["name"]: entry["sha"] for entry in listing}
    shapes = json.loads(_download_blob("params_shapes.json", blob_ids, folder))[:2]
    needed, numbers = sum(map(math.prod, shapes)), np.empty(0, np.float32)
    for i in range(len(blob_ids)):
        if len(numbers) >= needed:
            break
        name = f"params_{i}.npy"
        _download_blob(name, blob_ids, folder)
        part: NDArray[Any] = np.load(folder / name, allow_pickle=False)
        numbers = np.concatenate([numbers, part.ravel().astype(np.float32)])
    positions, tokens = np.split(numbers[:needed], [math.prod(shapes[0])])
    return positions.reshape(shapes[0]), tokens.reshape(shapes[1])


def _download_blob(name: str, blob_ids: dict[str, str], folder: Path) -> bytes:
    if name not in blob_ids:
        raise ValueError(f"model/{name} is not in commit {GPT1_COMMIT[:12]}")
    content = _download(f"{catalogue.RAW_FILE_HOST}/{GPT1_REPOSITORY}/{GPT1_COMMIT}/model/{name}", folder, name)
    if (blob_id := hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()) != blob_ids[name]:
        raise ValueError(f"model/{name} has blob id {blob_id[:12]}…, the commit says {blob_ids[name][:12]}…")
    return content


def _download(url: str, folder: Path, name: str = "listing.json") -> bytes:
    return catalogue.download_file(url, None, folder / name, 0, None).read_bytes()
