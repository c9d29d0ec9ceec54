"""Synthetic runs for the tests of charts: curves with known means, extrema and gaps."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from seedbed.interp.analysis import Analysis, FrequencyPlane
from seedbed.interp.text_attention import TextAttention
from seedbed.records import Curve, ParameterCounts, RunStatus, StoredRun
from seedbed.settings import Settings, Value
from seedbed.stats.summary import RunCurves

EQUATION = "BOS 3 + 4 ="


def make_run(
    config: Mapping[str, Value],
    seed: int,
    values: Mapping[str, Sequence[float]],
    steps: Sequence[int] | None = None,
    status: RunStatus = "finished",
    parameters: int = 1000,
) -> RunCurves:
    """A run with these values at steps 0, 10, 20, … or at the given steps."""
    n = max(map(len, values.values()), default=0)
    at = np.array(steps if steps is not None else np.arange(n) * 10, dtype=np.int64)
    curves = {name: Curve(at[: len(numbers)], np.array(numbers, dtype=float)) for name, numbers in values.items()}
    settings = Settings.from_flat({**config, "train.steps": 100})
    last = int(at[-1]) if at.size else 0
    run = StoredRun(
        f"{sorted(config.items())}-{seed}", seed, settings, ParameterCounts(2 * parameters, parameters), status, last
    )
    return RunCurves(run, dict(config), curves, {"compute": 5.0 + seed})


def with_analyses(run: RunCurves, text: str = EQUATION) -> RunCurves:
    """The run with analyses at two steps: uniform attention to this text, and seven numbers on a circle."""
    tokens = tuple(text.split())
    n, angle = len(tokens), 2 * np.pi * 3 * np.arange(7) / 7
    uniform = np.broadcast_to(np.tri(n) / np.arange(1, n + 1)[:, None], (2, 2, n, n))
    maps = TextAttention(run.run.id, 20, text, "attention", tokens, (False,) * n, uniform, (0, 1), (0, 1))
    plane = FrequencyPlane(3, 0.4, np.stack([np.cos(angle), np.sin(angle)], axis=1))
    analyses = (Analysis(run.run.id, step, "", "val", 9, {}, (maps,), (plane,)) for step in (10, 20))
    return replace(run, analyses=tuple(analyses))


def make_grid(seeds: Sequence[int] = (0, 1), n: int = 6) -> list[RunCurves]:
    """Two models × three batch sizes; loss falls faster for small batches, training accuracy is 1 − loss / 5."""
    runs = []
    for kind in ("gpt", "lstm"):
        for batch in (8, 16, 64):
            for seed in seeds:
                loss = [3.0 / (1 + i * 8 / batch) + 0.1 * seed + (kind == "lstm") for i in range(n)]
                metrics = {
                    "train/loss": loss,
                    "val/loss": [value + 0.5 for value in loss],
                    "train/accuracy": [1 - value / 5 for value in loss],
                    "val/accuracy": [0.9 - value / 5 for value in loss],
                    "norm": [10.0 + i for i in range(n)],
                }
                config = {"model.kind": kind, "train.batch_size": batch}
                run = make_run(config, seed, metrics, parameters=1000 + 500 * (kind == "lstm"))
                runs.append(with_analyses(run))
    return runs


def pixels(png: bytes) -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]:
    """The picture of an 8-bit RGB(A) PNG as (height, width, channels), by the PNG specification's five filters."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, place = {}, 8
    data = b""
    while place < len(png):
        (size,), kind = struct.unpack(">I", png[place : place + 4]), png[place + 4 : place + 8]
        body = png[place + 8 : place + 8 + size]
        chunks[kind] = body
        data += body if kind == b"IDAT" else b""
        place += 12 + size
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert depth == 8
    n = {2: 3, 6: 4}[colour]
    raw = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + width * n)
    return _unfiltered(raw, n).reshape(height, width, n)


def _unfiltered(raw: np.ndarray, n: int) -> np.ndarray:
    rows = np.zeros((raw.shape[0], raw.shape[1] - 1), np.uint8)
    above = np.zeros(raw.shape[1] - 1, np.int64)
    for number, line in enumerate(raw):
        kind, row = int(line[0]), line[1:].astype(np.int64)
        if kind == 2:
            row = (row + above) % 256
        elif kind == 1:
            row = row.reshape(-1, n).cumsum(axis=0).ravel() % 256
        elif kind in (3, 4):
            row = _sequential(row, above, n, kind)
        rows[number], above = row, row
    return rows


def _sequential(row: np.ndarray, above: np.ndarray, n: int, kind: int) -> np.ndarray:
    out = row.tolist()
    up = above.tolist()
    for i in range(len(out)):
        left, corner = (out[i - n], up[i - n]) if i >= n else (0, 0)
        guess = (left + up[i]) // 2 if kind == 3 else _paeth(left, up[i], corner)
        out[i] = (out[i] + guess) % 256
    return np.array(out)


def _paeth(left: int, up: int, corner: int) -> int:
    near = [abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)]
    return (left, up, corner)[near.index(min(near))]
