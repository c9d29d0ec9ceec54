"""The attention of a stored run to given texts, at one or more checkpoints: computed, previewed or written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from seedbed.charts.attention_maps import draw_attention, gather_attention, preview_attention
from seedbed.charts.theme import THEMES
from seedbed.errors import UsageError
from seedbed.interp.text_attention import TextAttention
from seedbed.store import Store, open_store, stored_vocabulary

FILE_SUFFIXES = (".svg", ".png", ".pdf", ".json")


def load_attention_maps(
    home: Path, run: str, texts: Sequence[str], step: str = "last", layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None, by: str = "token",
) -> list[TextAttention]:  # fmt: skip
    """The attention maps of every text at every requested step; layers and heads count from 0."""
    from seedbed.interp.attention_extraction import compute_attention
    from seedbed.sampling.loaded_run import LoadedRun

    if by not in ("token", "word"):
        raise UsageError(f"--by {by}: expected token or word")
    with open_store(home, read_only=True) as store:
        found = store.run(run)
        steps = _checkpoint_steps(store, found.id, step)
        vocabulary = stored_vocabulary(store, found)
        models = [LoadedRun(found, one, store.load_weights(found.id, one), vocabulary=vocabulary) for one in steps]
    maps = [compute_attention(model, text).select(layers, heads) for text in texts for model in models]
    return [one.group_by_word() for one in maps] if by == "word" else maps


def _checkpoint_steps(store: Store, run: str, steps: str) -> list[int]:
    """The checkpoint steps that `last`, `best`, `all` or a comma-separated list of steps name."""
    if steps == "all":
        return [checkpoint.step for checkpoint in store.checkpoints(run)]
    return [store.find_checkpoint(run, parse_step(step)).step for step in steps.split(",")]


def parse_step(text: str) -> int | Literal["last", "best"]:
    """`last`, `best` or a step number, as the store takes it."""
    if text in ("last", "best"):
        return text  # type: ignore[return-value]
    if not text.strip().isdecimal():
        raise UsageError(f"--step {text}: expected last, best, all, or checkpoint steps separated by commas")
    return int(text)


def preview_attention_maps(maps: Sequence[TextAttention]) -> str:
    """The maps as text for a terminal."""
    return preview_attention(gather_attention(maps))


def write_attention_maps(maps: Sequence[TextAttention], path: Path, theme: str = "light") -> None:
    """Writes the maps as a picture, or as numbers if the file ends in .json."""
    if path.suffix not in FILE_SUFFIXES:
        raise UsageError(f"--out {path}: expected a file that ends in {', '.join(FILE_SUFFIXES)}")
    if theme not in THEMES:
        raise UsageError(f"--theme {theme}: expected {' or '.join(THEMES)}")
    data = _maps_as_json(maps) if path.suffix == ".json" else _render_maps(maps, path.suffix, theme)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}); name another file") from None


def _maps_as_json(maps: Sequence[TextAttention]) -> bytes:
    return json.dumps([text_maps.as_json() for text_maps in maps], ensure_ascii=False).encode()


def _render_maps(maps: Sequence[TextAttention], suffix: str, theme: str) -> bytes:
    from seedbed.charts.render import render
    from seedbed.charts.vega_lite import to_vega_lite

    return render(to_vega_lite(draw_attention(gather_attention(maps)), THEMES[theme]), suffix.removeprefix("."))
