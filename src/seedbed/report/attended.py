"""Attention of texts by a stored run, at one kept step or over training: gathered, shown in a terminal or written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from seedbed.charts.attention import draw_attention, gather_attention, preview_attention
from seedbed.charts.theme import LOOKS
from seedbed.errors import UsageError
from seedbed.inside.maps import Maps
from seedbed.store.store import Store

FORMS = (".svg", ".png", ".pdf", ".json")


def attended(
    home: Path, run: str, texts: Sequence[str], step: str = "last", layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None, by: str = "token",
) -> list[Maps]:  # fmt: skip
    """The maps of every text at every step asked for; layers and heads are counted from 0."""
    from seedbed.generate.load import Loaded
    from seedbed.inside.attention import attention_of

    if by not in ("token", "word"):
        raise UsageError(f"--by {by}: expected token or word")
    with Store.read(home) as store:
        found = store.run(run)
        steps = _steps(store, found.id, step)
        models = [Loaded(found, one, store.load_weights(found.id, one)) for one in steps]
    maps = [attention_of(model, text).only(layers, heads) for text in texts for model in models]
    return [one.by_word() for one in maps] if by == "word" else maps


def _steps(store: Store, run: str, wanted: str) -> list[int]:
    """The kept steps that `last`, `best`, `all` or numbers with commas name."""
    if wanted == "all":
        return [kept.step for kept in store.checkpoints(run)]
    return [store.kept(run, step_named(word)).step for word in wanted.split(",")]


def step_named(word: str) -> int | Literal["last", "best"]:
    """A step as the store knows it."""
    if word in ("last", "best"):
        return word  # type: ignore[return-value]
    if not word.strip().isdecimal():
        raise UsageError(f"--step {word}: expected last, best, all, or kept steps with commas between them")
    return int(word)


def preview_maps(maps: Sequence[Maps]) -> str:
    """The maps as text."""
    return preview_attention(gather_attention(maps))


def write_maps(maps: Sequence[Maps], path: Path, look: str = "light") -> None:
    """The maps as a picture, or as numbers where the file ends in .json."""
    if path.suffix not in FORMS:
        raise UsageError(f"--out {path}: expected a file that ends in {', '.join(FORMS)}")
    if look not in LOOKS:
        raise UsageError(f"--look {look}: expected {' or '.join(LOOKS)}")
    data = _numbers(maps) if path.suffix == ".json" else _picture(maps, path.suffix, look)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}); name another place") from None


def _numbers(maps: Sequence[Maps]) -> bytes:
    return json.dumps([one.as_json() for one in maps], ensure_ascii=False).encode()


def _picture(maps: Sequence[Maps], form: str, look: str) -> bytes:
    from seedbed.charts.render import picture
    from seedbed.charts.specs import spec_of

    return picture(spec_of(draw_attention(gather_attention(maps)), LOOKS[look]), form.removeprefix("."))
