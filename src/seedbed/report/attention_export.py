"""The attention of a stored run to given texts: computed, previewed, written, or as HTML in a notebook."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seedbed.charts.attention_maps import draw_attention, gather_attention, preview_attention
from seedbed.charts.theme import LIGHT_THEME, THEMES
from seedbed.charts.vega_lite import to_vega_lite
from seedbed.errors import UsageError
from seedbed.interp.text_attention import TextAttention
from seedbed.report.figures import check_theme, picture_format, write_picture
from seedbed.report.trained_models import Step, load_checkpoint, parse_step
from seedbed.store import Store, open_store

if TYPE_CHECKING:
    from seedbed.sampling.loaded_run import LoadedRun, TextOrIds


def load_attention_maps(
    home: Path, run: str, texts: Sequence[str], step: str = "last", layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None, by: str = "token",
) -> list[TextAttention]:  # fmt: skip
    """The attention maps of every text at every requested step; layers and heads count from 0."""
    from seedbed.interp.attention_extraction import compute_attention

    if by not in ("token", "word"):
        raise UsageError(f"--by {by}: expected token or word")
    with open_store(home, read_only=True) as store:
        found = store.run(run)
        models = [load_checkpoint(store, found, one)[0] for one in _parse_steps(store, found.id, step)]
    maps = [compute_attention(model, text).select(layers, heads) for text in texts for model in models]
    return [one.group_by_word() for one in maps] if by == "word" else maps


def _parse_steps(store: Store, run: str, steps: str) -> list[Step]:
    """The checkpoints that `last`, `best`, `all` or a comma-separated list of steps name."""
    if steps == "all":
        return [checkpoint.step for checkpoint in store.checkpoints(run)]
    return [parse_step(step, "last, best, all, or checkpoint steps separated by commas") for step in steps.split(",")]


def preview_attention_maps(maps: Sequence[TextAttention]) -> str:
    """The maps as text for a terminal."""
    chart = gather_attention(maps)
    return f"{chart.title}\n\n{preview_attention(chart)}"


def write_attention_maps(maps: Sequence[TextAttention], out: Path, theme: str = "light") -> None:
    """Writes the maps as a picture, or as numbers if the file ends in .json."""
    from seedbed.charts.render import render

    check_theme(theme)
    if (file_format := picture_format(out)) == "json":
        content = json.dumps([text_maps.as_json() for text_maps in maps], ensure_ascii=False).encode()
    else:
        content = render(to_vega_lite(draw_attention(gather_attention(maps)), THEMES[theme]), file_format)
    write_picture(out, content)


def attention_html(loaded: LoadedRun, given: TextOrIds) -> str:
    """The attention maps of all layers and heads, on a white background that suits light and dark notebooks."""
    from seedbed.charts.render import to_svg
    from seedbed.interp.attention_extraction import compute_attention

    svg = to_svg(to_vega_lite(draw_attention(gather_attention([compute_attention(loaded, given)])), LIGHT_THEME))
    return f'<div style="background: #fff; display: inline-block; padding: 8px; overflow-x: auto">{svg}</div>'
