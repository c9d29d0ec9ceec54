"""The analyses that a study's figures and questions need, computed once from checkpoints and stored.

    update_analyses(home, "speeches/classifier")   # how many were computed; if none are needed, 0 without torch

If a figure follows an analysis metric over training, every checkpoint is analysed, else only the last. An analysis
stores a fingerprint of its weights and its request, and is computed again when that changes. `analysis_curves` reads
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seedbed.charts.chart_kinds import CHART_KINDS
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
from seedbed.specs import FigureSpec
from seedbed.store import Store, open_store
from seedbed.store.checkpoints import digest_json
from seedbed.study.declarations import Declarations, parse_declarations

if TYPE_CHECKING:
    from seedbed.sampling.loaded_run import LoadedRun

N_INPUTS = 64
FORMAT_VERSION = 1  # raised when the contents change, so that older analyses are computed again


@dataclass(frozen=True)
class AnalysisRequest:
    """The analyses that a study needs."""

    map_figures: tuple[FigureSpec, ...]
    heads: bool  # statistics of attention heads
    fourier: bool
    over_training: bool

    @property
    def is_needed(self) -> bool:
        return self.heads or self.fourier

    def digest(self, checkpoint: Checkpoint, last: Checkpoint) -> str:
        """The fingerprint of an analysis. It includes the last checkpoint, whose key frequencies every step uses."""
        maps = [
            [figure.text, list(figure.layers), list(figure.heads), figure.by]
            for figure in self.map_figures
            if checkpoint == last
        ]
        return digest_json([FORMAT_VERSION, N_INPUTS, self.heads, self.fourier, checkpoint.digest, last.digest, maps])


def analysis_request(declared: Declarations) -> AnalysisRequest:
    """The analyses that these figures and questions need."""
    analysis_metrics = declared_analysis_metrics(declared)
    plotted = [name for figure in declared.figures for name in figure.metrics]
    maps = tuple(figure for figure in declared.figures if CHART_KINDS[figure.kind].needs_analysis == "attention")
    has_planes = any(CHART_KINDS[figure.kind].needs_analysis == "fourier" for figure in declared.figures)
    return AnalysisRequest(
        map_figures=maps,
        heads=bool(maps) or any(name.startswith(ATTENTION_METRIC_PREFIX) for name in analysis_metrics),
        fourier=has_planes or any(name.startswith(CIRCLE_METRIC_PREFIX) for name in analysis_metrics),
        over_training=has_planes or any(map(is_analysis_metric, plotted)),
    )


def update_analyses(home: Path, study: str, only: Sequence[str] = ()) -> int:
    """Computes and stores the missing analyses of a study; returns how many there were."""
    with open_store(home, read_only=True) as store:
        request = analysis_request(parse_declarations(store.study(study).text))
        if not request.is_needed:
            return 0
        missing = list(_missing_analyses(store, request, matching_runs(store, study, only)))
        for run, checkpoint in missing:
            analysis = _analyze_checkpoint(store, run, checkpoint, request)
            store.save_analysis(run.id, checkpoint.step, analysis.as_json())
        return len(missing)


# ---- one checkpoint ----


def _missing_analyses(
    store: Store, request: AnalysisRequest, runs: Sequence[StoredRun]
) -> Iterator[tuple[StoredRun, Checkpoint]]:
    for run in runs:
        checkpoints = store.checkpoints(run.id)
        stored = {document["step"]: document["fingerprint"] for document in store.load_analyses(run.id)}
        for checkpoint in checkpoints if request.over_training else checkpoints[-1:]:
            if stored.get(checkpoint.step) != request.digest(checkpoint, checkpoints[-1]):
                yield run, checkpoint


def _analyze_checkpoint(store: Store, run: StoredRun, checkpoint: Checkpoint, request: AnalysisRequest) -> Analysis:
    last = store.find_checkpoint(run.id)
    loaded, weights = load_checkpoint(store, run, checkpoint.step)
    head_analysis = analyze_model(loaded, N_INPUTS)[0] if request.heads else None
    fourier = _analyze_fourier(store, loaded, weights) if request.fourier else None
    maps, errors = _compute_maps(loaded, request.map_figures) if checkpoint == last else ([], {})
    metrics = dict(_head_metrics(head_analysis)) if head_analysis else {}
    metrics |= fourier_metrics(fourier) if fourier else {}
    metrics |= dict(_received_metrics(maps))
    return Analysis(
        run=run.id,
        step=checkpoint.step,
        fingerprint=request.digest(checkpoint, last),
        split=head_analysis.split if head_analysis else "",
        n_inputs=head_analysis.n_inputs if head_analysis else 0,
        metrics={name: value for name, value in metrics.items() if np.isfinite(value.mean)},
        attention=tuple(maps),
        planes=fourier.planes if fourier else (),
        attention_errors=errors,
    )


def _analyze_fourier(store: Store, loaded: LoadedRun, weights: Arrays) -> FourierProgress | None:
    p: int | None = loaded.run.settings.task.residue_count()
    if p is None:
        return None
    return analyze_fourier(loaded, weights, p, find_key_frequencies(store.load_weights(loaded.run.id), p))


def _head_metrics(analysis: RunAnalysis) -> Iterator[tuple[str, AnalysisValue]]:
    """Every head statistic by layer and by head, and its value under uniform attention."""
    for name, values in analysis.numbers.items():
        yield from _metrics_by_layer(f"attention_{name}", "", values, analysis.uniform_numbers[name])
    for (source, query), values in analysis.shares.items():
        group_prefix = "" if query == "all" else f"from={query}, "
        uniform = analysis.uniform_shares[source, query]
        yield from _metrics_by_layer(f"attention_on_{source.replace(' ', '_')}", group_prefix, values, uniform)


def _metrics_by_layer(
    name: str, group_prefix: str, values: Floats, uniform: Floats
) -> Iterator[tuple[str, AnalysisValue]]:
    """Metrics from (B, L, H) values: one per head, one per layer over its heads, and one of the (B, 1, 1) uniform."""
    yield f"{name}[{group_prefix}even]", _summarize_inputs(uniform[:, 0, 0])
    for layer in range(values.shape[1]):
        yield f"{name}[{group_prefix}layer={layer + 1}]", _summarize_inputs(mean_over_inputs(values[:, layer].T))
        for head in range(values.shape[2]):
            yield f"{name}[{group_prefix}head={head + 1}, layer={layer + 1}]", _summarize_inputs(values[:, layer, head])


def _summarize_inputs(values: Floats) -> AnalysisValue:
    std = std_over_inputs(values)
    return AnalysisValue(float(mean_over_inputs(values)), std if np.isfinite(std) else None)


# ---- attention maps ----


def _compute_maps(loaded: LoadedRun, figures: Sequence[FigureSpec]) -> tuple[list[TextAttention], Mapping[str, str]]:
    """The attention maps that figures show, each text once with all requested layers and heads; and errors by text."""
    from seedbed.interp.attention_extraction import compute_attention

    all_maps, errors = [], {}
    for text, by in dict.fromkeys((figure.text, figure.by) for figure in figures):
        same_text = [figure for figure in figures if (figure.text, figure.by) == (text, by)]
        try:
            maps = compute_attention(loaded, text)
        except UsageError as error:
            errors[text] = str(error)
            continue
        maps = maps.select_available(
            _union_or_all([figure.layers for figure in same_text]),
            _union_or_all([figure.heads for figure in same_text]),
        )
        all_maps.append(maps.group_by_word() if by == "word" else maps)
    return all_maps, errors


def _union_or_all(selections: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The union of the selections; empty, which means all, if one of them is empty."""
    return tuple(sorted({index for selection in selections for index in selection})) if all(selections) else ()


def _received_metrics(maps: Sequence[TextAttention]) -> Iterator[tuple[str, AnalysisValue]]:
    """The attention that each token or word receives per layer, mean over heads, and their mean; texts count from 1."""
    texts = list(dict.fromkeys(one.text for one in maps))
    for one in maps:
        number = texts.index(one.text) + 1
        text_prefix = f"text={number}, " if number > 1 else ""
        positions = [position for position, is_padding in enumerate(one.padding) if not is_padding]
        for layer, received in zip(one.layers, one.mean_received.mean(1)[:, positions], strict=True):
            for name, value in zip(one.unique_labels, received, strict=True):
                yield (
                    f"attention_received[{text_prefix}{one.granularity}={name}, layer={layer + 1}]",
                    AnalysisValue(float(value)),
                )
            yield (
                f"attention_received[{text_prefix}{one.granularity}s, layer={layer + 1}]",
                AnalysisValue(float(received.mean())),
            )
