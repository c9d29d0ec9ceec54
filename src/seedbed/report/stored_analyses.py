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
from seedbed.interp.analysis import (
    ATTENTION_METRIC_PREFIX,
    CIRCLE_METRIC_PREFIX,
    Analysis,
    AnalysisValue,
    is_analysis_metric,
)
from seedbed.interp.text_attention import TextAttention
from seedbed.records import Arrays, Checkpoint, StoredRun
from seedbed.report.analysis_curves import declared_analysis_metrics
from seedbed.report.fourier_analysis import FourierProgress, analyze_fourier, find_key_frequencies, fourier_metrics
from seedbed.report.run_analysis import (
    Floats,
    RunAnalysis,
    analyze_model,
    load_checkpoint,
    mean_over_inputs,
    std_over_inputs,
)
from seedbed.report.study_runs import matching_runs
from seedbed.settings import ArithmeticSettings
from seedbed.specs import FigureSpec
from seedbed.store.analyses import load_analyses, save_analysis
from seedbed.store.checkpoints import digest_json
from seedbed.store.store import Store
from seedbed.study.declarations import Declarations, parse_declarations

if TYPE_CHECKING:
    from seedbed.sampling.loaded_run import LoadedRun

N_INPUTS = 64
FORMAT_VERSION = 1  # raised when a look holds something else, so that older ones are made again


@dataclass(frozen=True)
class AnalysisRequest:
    """What a study asks about the inside of its runs."""

    map_figures: tuple[FigureSpec, ...]
    heads: bool  # numbers of attention
    fourier: bool
    over_training: bool

    @property
    def is_needed(self) -> bool:
        return self.heads or self.fourier

    def digest(self, checkpoint: Checkpoint, last: Checkpoint) -> str:
        """What a look at these weights is of; the circles of a step are told by the frequencies of the last one."""
        maps = [[one.text, list(one.layers), list(one.heads), one.by] for one in self.map_figures if checkpoint == last]
        return digest_json([FORMAT_VERSION, N_INPUTS, self.heads, self.fourier, checkpoint.digest, last.digest, maps])


def analysis_request(declared: Declarations) -> AnalysisRequest:
    """What these figures and questions ask."""
    named, followed = (
        declared_analysis_metrics(declared),
        [name for figure in declared.figures for name in figure.metrics],
    )
    maps = tuple(figure for figure in declared.figures if figure.kind == "attention")
    planes = any(figure.kind == "fourier" for figure in declared.figures)
    return AnalysisRequest(
        map_figures=maps,
        heads=bool(maps) or any(name.startswith(ATTENTION_METRIC_PREFIX) for name in named),
        fourier=planes or any(name.startswith(CIRCLE_METRIC_PREFIX) for name in named),
        over_training=planes or any(map(is_analysis_metric, followed)),
    )


def update_analyses(home: Path, study: str, overrides: Sequence[str] = ()) -> int:
    """Look into the study's runs where it asks for it and it was not done; how many looks were made."""
    with Store.open_read_only(home) as store:
        asked = analysis_request(parse_declarations(store.study(study).text))
        if not asked.is_needed:
            return 0
        missing = list(_missing_analyses(store, asked, matching_runs(store, study, overrides)))
        for run, kept in missing:
            look = _analyze_checkpoint(store, run, kept, asked)
            save_analysis(store, run.id, kept.step, look.as_json())
        return len(missing)


# ---- making one ----


def _missing_analyses(
    store: Store, request: AnalysisRequest, runs: Sequence[StoredRun]
) -> Iterator[tuple[StoredRun, Checkpoint]]:
    for run in runs:
        every = store.checkpoints(run.id)
        known = {document["step"]: document["fingerprint"] for document in load_analyses(store, run.id)}
        for kept in every if request.over_training else every[-1:]:
            if known.get(kept.step) != request.digest(kept, every[-1]):
                yield run, kept


def _analyze_checkpoint(store: Store, run: StoredRun, checkpoint: Checkpoint, request: AnalysisRequest) -> Analysis:
    last = store.find_checkpoint(run.id)
    loaded, weights = load_checkpoint(store, run, checkpoint.step)
    inside = analyze_model(loaded, N_INPUTS)[0] if request.heads else None
    circles = _analyze_fourier(store, loaded, weights) if request.fourier else None
    maps, refused = _compute_maps(loaded, request.map_figures) if checkpoint == last else ([], {})
    readings = dict(_head_metrics(inside)) if inside else {}
    readings |= fourier_metrics(circles) if circles else {}
    readings |= dict(_received_metrics(maps))
    return Analysis(
        run=run.id,
        step=checkpoint.step,
        fingerprint=request.digest(checkpoint, last),
        split=inside.split if inside else "",
        n_inputs=inside.n_inputs if inside else 0,
        metrics={name: seen for name, seen in readings.items() if np.isfinite(seen.mean)},
        attention=tuple(maps),
        planes=circles.planes if circles else (),
        attention_errors=refused,
    )


def _analyze_fourier(store: Store, loaded: LoadedRun, weights: Arrays) -> FourierProgress | None:
    task = loaded.run.settings.task
    if not isinstance(task, ArithmeticSettings):
        return None
    return analyze_fourier(loaded, weights, task.p, find_key_frequencies(store.load_weights(loaded.run.id), task.p))


def _head_metrics(analysis: RunAnalysis) -> Iterator[tuple[str, AnalysisValue]]:
    """Every number by layer, by head, and as it would be if all were looked at alike."""
    for name, values in analysis.numbers.items():
        yield from _metrics_by_layer(f"attention_{name}", "", values, analysis.uniform_numbers[name])
    for (source, query), values in analysis.shares.items():
        asked = "" if query == "all" else f"from={query}, "
        even = analysis.uniform_shares[source, query]
        yield from _metrics_by_layer(f"attention_on_{source.replace(' ', '_')}", asked, values, even)


def _metrics_by_layer(
    name: str, group_prefix: str, values: Floats, uniform: Floats
) -> Iterator[tuple[str, AnalysisValue]]:
    """Of (B, L, H): a reading a head, one a layer over its heads, and one of the (B, 1, 1) that look evenly."""
    yield f"{name}[{group_prefix}even]", _summarize_inputs(uniform[:, 0, 0])
    for layer in range(values.shape[1]):
        yield f"{name}[{group_prefix}layer={layer + 1}]", _summarize_inputs(mean_over_inputs(values[:, layer].T))
        for head in range(values.shape[2]):
            yield f"{name}[{group_prefix}head={head + 1}, layer={layer + 1}]", _summarize_inputs(values[:, layer, head])


def _summarize_inputs(values: Floats) -> AnalysisValue:
    std = std_over_inputs(values)
    return AnalysisValue(float(mean_over_inputs(values)), std if np.isfinite(std) else None)


# ---- maps ----


def _compute_maps(loaded: LoadedRun, figures: Sequence[FigureSpec]) -> tuple[list[TextAttention], Mapping[str, str]]:
    """The maps that figures ask for, each text once with all layers and heads asked for; and why some have none."""
    from seedbed.interp.attention_extraction import compute_attention

    found, refused = [], {}
    for text, by in dict.fromkeys((figure.text, figure.by) for figure in figures):
        asking = [figure for figure in figures if (figure.text, figure.by) == (text, by)]
        try:
            maps = compute_attention(loaded, text)
        except UsageError as error:
            refused[text] = str(error)
            continue
        maps = maps.select_available(
            _union_or_all([one.layers for one in asking]), _union_or_all([one.heads for one in asking])
        )
        found.append(maps.group_by_word() if by == "word" else maps)
    return found, refused


def _union_or_all(selections: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Everything asked for; nothing, which stands for all, where one asks for all."""
    return tuple(sorted({place for one in selections for place in one})) if all(selections) else ()


def _received_metrics(maps: Sequence[TextAttention]) -> Iterator[tuple[str, AnalysisValue]]:
    """What each piece of a text gets in each layer, the mean over heads, and a piece on average; texts from 1."""
    texts = list(dict.fromkeys(one.text for one in maps))
    for one in maps:
        number = texts.index(one.text) + 1
        asked = f"text={number}, " if number > 1 else ""
        own = [place for place, pad in enumerate(one.padding) if not pad]
        for layer, got in zip(one.layers, one.mean_received.mean(1)[:, own], strict=True):
            for name, value in zip(one.unique_labels, got, strict=True):
                yield (
                    f"attention_received[{asked}{one.granularity}={name}, layer={layer + 1}]",
                    AnalysisValue(float(value)),
                )
            yield f"attention_received[{asked}{one.granularity}s, layer={layer + 1}]", AnalysisValue(float(got.mean()))
