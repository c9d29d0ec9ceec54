"""What was seen inside a study's runs as tables of its report: the numbers beside its attention maps, over seeds.

Cells read `mean ± std over seeds (std over inputs)`; the last row is what a head would have that looks at all alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from seedbed.charts.axes import by_point, chosen
from seedbed.charts.panels import point_in_words
from seedbed.inside.looks import ATTENTION, Look
from seedbed.inside.maps import Maps
from seedbed.measures.attention import NUMBERS
from seedbed.measures.summary import RunCurves
from seedbed.report.seen import metrics_inside
from seedbed.report.tables import Table
from seedbed.shown import Figure
from seedbed.study.shows import Declared

ON = "attention_on_"


def look_tables(declared: Declared, runs: Sequence[RunCurves]) -> list[Table]:
    """Head numbers and shares of each point, and what each token of a figure's text gets; none where none is asked."""
    figures = [figure for figure in declared.figures if figure.kind == "attention"]
    if not figures and not any(name.startswith(ATTENTION) for name in metrics_inside(declared)):
        return []
    points = [[run for run in members if run.looks] for members in by_point(runs)]
    found = [table for members in points if members for table in _of_point(members, len(points) > 1)]
    return [*found, *(table for figure in figures for table in _received_tables(figure, runs))]


def _of_point(members: Sequence[RunCurves], several: bool) -> Iterator[Table]:
    looks = [run.looks[-1] for run in members]
    layers = _layers(looks)
    if not layers:
        return
    named = f": {point_in_words(members[0])}" if several else ""
    names = [name for name in NUMBERS if f"attention_{name}[layer=1]" in looks[0].readings]
    said = "; ".join(f"{name}: {NUMBERS[name].words} ({NUMBERS[name].unit})" for name in names)
    rows = _rows([f"attention_{name}" for name in names], "", layers, looks)
    yield Table(f"Heads by layer{named}", ("layer", *names), rows, (f"{said}.", _note(looks)))
    for query in ("", "from==, "):
        sources = _sources(looks[0], query)
        if sources:
            who = "=" if query else "all tokens"
            rows = _rows([f"{ON}{name}" for name in sources], query, layers, looks)
            words = tuple(name.replace("_", " ") for name in sources)
            yield Table(f"Share of attention from {who}, by what is looked at{named}", ("layer", *words), rows)


def _layers(looks: Sequence[Look]) -> list[int]:
    n_layers = 0
    while f"attention_entropy[layer={n_layers + 1}]" in looks[0].readings:
        n_layers += 1
    return list(range(1, n_layers + 1))


def _sources(look: Look, query: str) -> list[str]:
    """The kinds of tokens that queries of one kind look at."""
    ending = f"[{query}layer=1]"
    names = (name for name in look.readings if name.startswith(ON) and name.endswith(ending))
    return [name.removeprefix(ON).removesuffix(ending) for name in names]


def _rows(
    names: Sequence[str], query: str, layers: Sequence[int], looks: Sequence[Look]
) -> tuple[tuple[str, ...], ...]:
    groups = {str(layer): f"[{query}layer={layer}]" for layer in layers} | {"all alike": f"[{query}even]"}
    return tuple((head, *(_cell(f"{name}{group}", looks) for name in names)) for head, group in groups.items())


def _cell(name: str, looks: Sequence[Look]) -> str:
    seen = [look.readings[name] for look in looks if name in look.readings]
    if not seen:
        return "–"
    means, within = [one.mean for one in seen], [one.std for one in seen if one.std is not None]
    return _told(means) + (f" ({np.mean(within):.2f})" if within else "")


def _note(looks: Sequence[Look]) -> str:
    n, one = len(looks), looks[0]
    seeds = f"Mean ± population std over {n} seeds" if n > 1 else "One seed"
    return f"{seeds}, in brackets the std over {one.n_inputs} inputs of {one.part}; step {one.step:,}."


def _received_tables(figure: Figure, runs: Sequence[RunCurves]) -> Iterator[Table]:
    """A row a piece of the figure's text, a column a layer and point."""
    points = [(members[0], maps) for members in by_point(chosen(runs, figure)) if (maps := _maps(figure, members))]
    if not points:
        return
    columns = [(run, maps, layer) for run, maps in points for layer in range(len(maps[0].layers))]
    heads = [f"{point_in_words(run)} layer {maps[0].layers[layer] + 1}".strip() for run, maps, layer in columns]
    rows = []
    for place, name in enumerate(points[0][1][0].names):
        cells = [_told([float(one.received[layer, :, place].mean()) for one in maps]) for _, maps, layer in columns]
        rows.append((name, *cells))
    note = f"What a {figure.by} gets on average from each other that may look at it: mean over heads, ± std over seeds."
    yield Table(f"Attention received in “{figure.text}”", (figure.by, *heads), tuple(rows), (note,))


def _maps(figure: Figure, members: Sequence[RunCurves]) -> list[Maps]:
    """The maps of each seed that has some; padding comes after all that has a name."""
    found = [run.looks[-1].maps_of(figure.text, figure.by) for run in members if run.looks]
    return [maps.as_far(figure.layers, figure.heads) for maps in found if maps]


def _told(means: Sequence[float]) -> str:
    return f"{np.mean(means):.2f}" + (f" ± {np.std(means):.2f}" if len(means) > 1 else "")
