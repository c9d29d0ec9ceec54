"""Looks: what a study's figures and questions ask about the inside of its runs, made once from kept weights and kept.

    keep_looks(home, "speeches/classifier")        # runs that were looked into; 0 and no torch where nothing is asked

Where a figure follows such a number over training, every kept step is looked at, else the last one. A look names the
weights and the questions it is of, so one that no longer fits is made again. Reading them is left to `seen`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seedbed.errors import UsageError
from seedbed.inside.looks import ATTENTION, CIRCLE, Look, Seen, is_inside
from seedbed.inside.maps import Maps
from seedbed.records import Arrays, Checkpoint, StoredRun
from seedbed.report.circles import Circles, circle_readings, circles_of, key_of
from seedbed.report.gather import covered_runs
from seedbed.report.inside import Floats, Inside, load_kept_run, look_at, mean_over_inputs, std_over_inputs
from seedbed.report.seen import metrics_inside
from seedbed.settings import Arithmetic
from seedbed.shown import Figure
from seedbed.store.checkpoints import digest_of_value
from seedbed.store.looks import keep_look, kept_looks
from seedbed.store.store import Store
from seedbed.study.shows import Declared, shown_in

if TYPE_CHECKING:
    from seedbed.generate.load import Loaded

N_INPUTS = 64
FORM = 1  # raised when a look holds something else, so that older ones are made again


@dataclass(frozen=True)
class Asked:
    """What a study asks about the inside of its runs."""

    maps: tuple[Figure, ...]
    heads: bool  # numbers of attention
    circles: bool
    over_training: bool

    @property
    def anything(self) -> bool:
        return self.heads or self.circles

    def of(self, kept: Checkpoint, last: Checkpoint) -> str:
        """What a look at these weights is of; the circles of a step are told by the frequencies of the last one."""
        maps = [[one.text, list(one.layers), list(one.heads), one.by] for one in self.maps if kept == last]
        return digest_of_value([FORM, N_INPUTS, self.heads, self.circles, kept.digest, last.digest, maps])


def asked_in(declared: Declared) -> Asked:
    """What these figures and questions ask."""
    named, followed = metrics_inside(declared), [name for figure in declared.figures for name in figure.metrics]
    maps = tuple(figure for figure in declared.figures if figure.kind == "attention")
    planes = any(figure.kind == "circle" for figure in declared.figures)
    return Asked(
        maps=maps,
        heads=bool(maps) or any(name.startswith(ATTENTION) for name in named),
        circles=planes or any(name.startswith(CIRCLE) for name in named),
        over_training=planes or any(map(is_inside, followed)),
    )


def keep_looks(home: Path, study: str, words: Sequence[str] = ()) -> int:
    """Look into the study's runs where it asks for it and it was not done; how many looks were made."""
    with Store.read(home) as store:
        asked = asked_in(shown_in(store.study(study).text))
        if not asked.anything:
            return 0
        missing = list(_missing(store, asked, covered_runs(store, study, words)))
        for run, kept in missing:
            look = _look(store, run, kept, asked)
            keep_look(store, run.id, kept.step, look.as_json())
        return len(missing)


# ---- making one ----


def _missing(store: Store, asked: Asked, runs: Sequence[StoredRun]) -> Iterator[tuple[StoredRun, Checkpoint]]:
    for run in runs:
        every = store.checkpoints(run.id)
        known = {document["step"]: document["of"] for document in kept_looks(store, run.id)}
        for kept in every if asked.over_training else every[-1:]:
            if known.get(kept.step) != asked.of(kept, every[-1]):
                yield run, kept


def _look(store: Store, run: StoredRun, kept: Checkpoint, asked: Asked) -> Look:
    last = store.kept(run.id)
    loaded, weights = load_kept_run(store, run, kept.step)
    inside = look_at(loaded, N_INPUTS)[0] if asked.heads else None
    circles = _circles(store, loaded, weights) if asked.circles else None
    maps, refused = _maps(loaded, asked.maps) if kept == last else ([], {})
    readings = dict(_readings(inside)) if inside else {}
    readings |= circle_readings(circles) if circles else {}
    readings |= dict(_received(maps))
    return Look(
        run=run.id,
        step=kept.step,
        of=asked.of(kept, last),
        part=inside.part if inside else "",
        n_inputs=inside.n_inputs if inside else 0,
        readings={name: seen for name, seen in readings.items() if np.isfinite(seen.mean)},
        maps=tuple(maps),
        planes=circles.planes if circles else (),
        refused=refused,
    )


def _circles(store: Store, loaded: Loaded, weights: Arrays) -> Circles | None:
    task = loaded.run.settings.task
    if not isinstance(task, Arithmetic):
        return None
    return circles_of(loaded, weights, task.p, key_of(store.load_weights(loaded.run.id), task.p))


def _readings(inside: Inside) -> Iterator[tuple[str, Seen]]:
    """Every number by layer, by head, and as it would be if all were looked at alike."""
    for name, values in inside.numbers.items():
        yield from _by_layer(f"attention_{name}", "", values, inside.even[name])
    for (source, query), values in inside.shares.items():
        asked = "" if query == "all" else f"from={query}, "
        even = inside.even_shares[source, query]
        yield from _by_layer(f"attention_on_{source.replace(' ', '_')}", asked, values, even)


def _by_layer(name: str, asked: str, values: Floats, even: Floats) -> Iterator[tuple[str, Seen]]:
    """Of (B, L, H): a reading a head, one a layer over its heads, and one of the (B, 1, 1) that look evenly."""
    yield f"{name}[{asked}even]", _seen(even[:, 0, 0])
    for layer in range(values.shape[1]):
        yield f"{name}[{asked}layer={layer + 1}]", _seen(mean_over_inputs(values[:, layer].T))
        for head in range(values.shape[2]):
            yield f"{name}[{asked}head={head + 1}, layer={layer + 1}]", _seen(values[:, layer, head])


def _seen(values: Floats) -> Seen:
    std = std_over_inputs(values)
    return Seen(float(mean_over_inputs(values)), std if np.isfinite(std) else None)


# ---- maps ----


def _maps(loaded: Loaded, figures: Sequence[Figure]) -> tuple[list[Maps], Mapping[str, str]]:
    """The maps that figures ask for, each text once with all layers and heads asked for; and why some have none."""
    from seedbed.inside.attention import attention_of

    found, refused = [], {}
    for text, by in dict.fromkeys((figure.text, figure.by) for figure in figures):
        asking = [figure for figure in figures if (figure.text, figure.by) == (text, by)]
        try:
            maps = attention_of(loaded, text)
        except UsageError as error:
            refused[text] = str(error)
            continue
        maps = maps.as_far(_union([one.layers for one in asking]), _union([one.heads for one in asking]))
        found.append(maps.by_word() if by == "word" else maps)
    return found, refused


def _union(asked: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Everything asked for; nothing, which stands for all, where one asks for all."""
    return tuple(sorted({place for one in asked for place in one})) if all(asked) else ()


def _received(maps: Sequence[Maps]) -> Iterator[tuple[str, Seen]]:
    """What each piece of a text gets in each layer, the mean over heads, and a piece on average; texts from 1."""
    texts = list(dict.fromkeys(one.text for one in maps))
    for one in maps:
        number = texts.index(one.text) + 1
        asked = f"text={number}, " if number > 1 else ""
        own = [place for place, pad in enumerate(one.padding) if not pad]
        for layer, got in zip(one.layers, one.received.mean(1)[:, own], strict=True):
            for name, value in zip(one.names, got, strict=True):
                yield f"attention_received[{asked}{one.by}={name}, layer={layer + 1}]", Seen(float(value))
            yield f"attention_received[{asked}{one.by}s, layer={layer + 1}]", Seen(float(got.mean()))
