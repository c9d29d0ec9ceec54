"""The analyses that a study's figures and questions need, computed once from checkpoints and stored.

    update_analyses(home, "speeches/classifier")   # how many were computed; if none are needed, 0 without torch
    describe_missing_analyses(store, "speeches/classifier")   # for those who only read

If a figure follows an analysis metric over training, every checkpoint is analysed, else only the last. An analysis
stores a fingerprint of its weights and its request, and is computed again when that changes. `study_runs` reads
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seedbed.charts.chart_kinds import CHART_KINDS
from seedbed.errors import DamagedCheckpoint, MissingData, UsageError
from seedbed.interp.analysis import (
    ATTENTION_METRIC_PREFIX,
    CIRCLE_METRIC_PREFIX,
    Analysis,
    AnalysisValue,
    is_analysis_metric,
)
from seedbed.interp.text_attention import TextAttention
from seedbed.records import Arrays, Checkpoint, StoredRun
from seedbed.report.classification import predict_held_out
from seedbed.report.fourier_analysis import FourierProgress, analyze_fourier, find_key_frequencies, fourier_metrics
from seedbed.report.run_analysis import (
    Floats,
    RunAnalysis,
    analyze_model,
    mean_over_inputs,
    std_over_inputs,
)
from seedbed.report.study_runs import (
    declared_analysis_metrics,
    describe_missing_inputs,
    load_analyses,
    load_run_curves,
    matching_runs,
)
from seedbed.report.trained_models import load_checkpoint
from seedbed.specs import FigureSpec
from seedbed.stats.summary import describe_missing_weights
from seedbed.store import Store, open_store
from seedbed.store.checkpoints import digest_json
from seedbed.study.declarations import Declarations, parse_declarations
from seedbed.study.run_data import require_training_data

if TYPE_CHECKING:
    from seedbed.sampling.loaded_run import LoadedRun

N_INPUTS = 64
MAX_THREADS = 8  # each holds a model and the attention maps of a chunk of inputs
FORMAT_VERSION = 1  # raised when the contents change, so that older analyses are computed again


@dataclass(frozen=True)
class AnalysisRequest:
    """The analyses that a study needs."""

    map_figures: tuple[FigureSpec, ...]
    heads: bool  # statistics of attention heads
    fourier: bool
    over_training: bool
    predictions: bool = False  # of a classifier on its held-out texts, at the last checkpoint
    inputs_error: str = ""  # why a run has no held-out inputs; analyses that need them are then left out

    @property
    def is_needed(self) -> bool:
        return self.heads or self.fourier or self.predictions

    def digest(self, run: StoredRun, checkpoint: Checkpoint, last: Checkpoint) -> str:
        """The fingerprint of an analysis. It includes the last checkpoint, whose key frequencies every step uses.

        The cyclic order is part of it if it is not 0 … p − 1, as it was for all tasks at first.
        """
        order = run.settings.task.cyclic_order() if self.fourier else None
        is_reordered = order != (None if order is None else tuple(range(len(order))))
        maps = [
            [figure.text, list(figure.layers), list(figure.heads), figure.by]
            for figure in self.map_figures
            if checkpoint == last
        ]
        parts = [FORMAT_VERSION, N_INPUTS, self.heads, self.fourier, checkpoint.digest, last.digest, maps]
        parts += ["predictions"] if self.predictions and checkpoint == last else []
        return digest_json([*parts, *([order] if is_reordered else [])])


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
        missing = [
            (run, checkpoint, available)
            for run, checkpoints, available in _missing_by_run(store, study, only)
            for checkpoint in checkpoints
        ]
        n_analyzed = 0
        for (run, checkpoint, _), analysis in zip(missing, _analyze_in_threads(store, missing), strict=True):
            if isinstance(analysis, DamagedCheckpoint):
                _record_weights_error(store, run, checkpoint, str(analysis))
            else:
                store.save_analysis(run.id, checkpoint.step, analysis.as_json())
                n_analyzed += 1
        return n_analyzed


def _analyze_in_threads(
    store: Store, missing: Sequence[tuple[StoredRun, Checkpoint, AnalysisRequest]]
) -> Iterator[Analysis | DamagedCheckpoint]:
    """The analyses in this order; what is wrong with a checkpoint that cannot be read stands in its place."""
    if not missing:
        return
    from seedbed.interp.threads import map_in_threads  # imports torch

    def analyze(one: tuple[StoredRun, Checkpoint, AnalysisRequest]) -> Analysis | DamagedCheckpoint:
        try:
            return _analyze_checkpoint(store, *one)
        except DamagedCheckpoint as error:
            return error

    yield from map_in_threads(analyze, missing, MAX_THREADS)


def count_missing_analyses(store: Store, study: str, only: Sequence[str] = ()) -> int:
    """How many analyses of checkpoints that are in this home, with weights that can be read, are missing."""
    with_weights = store.runs_with_weights()
    n_missing = 0
    for run, missing, _ in _missing_by_run(store, study, only):
        if run.id in with_weights:
            damaged = {analysis.step for analysis in load_analyses(store, run) if analysis.weights_error}
            n_missing += sum(checkpoint.step not in damaged for checkpoint in missing)
    return n_missing


def describe_missing_analyses(store: Store, study: str, command: str, only: Sequence[str] = ()) -> list[str]:
    """What those who read the analyses of a study cannot show, and the command that mends it where one does."""
    n_missing = count_missing_analyses(store, study, only)
    plural = "is" if n_missing == 1 else "es"
    computed = [f"{n_missing} analys{plural} of {study} {'is' if n_missing == 1 else 'are'} missing; run: {command}"]
    inputs = describe_missing_inputs(load_analyses(store, run) for run in matching_runs(store, study, only))
    return [*computed[: n_missing > 0], *inputs]


def describe_failed_analyses(store: Store, study: str, only: Sequence[str] = ()) -> list[str]:
    """Why analyses that a study needs cannot be computed: its text or its weights are gone, or damaged."""
    if not _needs_analyses(store, study):
        return []
    runs = load_run_curves(store, study, only)
    return [*describe_missing_inputs(run.analyses for run in runs), *describe_missing_weights(runs)]


def _needs_analyses(store: Store, study: str) -> bool:
    declared = analysis_request(parse_declarations(store.study(study).text))
    return declared.is_needed or any(map(_is_classifier, store.runs(study, skip_unreadable=True)))


def _missing_by_run(
    store: Store, study: str, only: Sequence[str] = ()
) -> Iterator[tuple[StoredRun, list[Checkpoint], AnalysisRequest]]:
    """The runs that lack analyses, with their checkpoints and what can be computed of them."""
    if not _needs_analyses(store, study):
        return
    declared = analysis_request(parse_declarations(store.study(study).text))
    for run in matching_runs(store, study, only):
        request = replace(declared, predictions=_is_classifier(run))
        missing = _missing_analyses(store, request, run)
        available = _available_request(request, run) if missing else request
        if available != request:  # those with inputs cannot be repeated now, and are kept
            with_inputs = {document["step"] for document in store.load_analyses(run.id) if document["n_inputs"]}
            missing = [one for one in _missing_analyses(store, available, run) if one.step not in with_inputs]
        if missing:
            yield run, missing, available


def _record_weights_error(store: Store, run: StoredRun, checkpoint: Checkpoint, error: str) -> None:
    """Says in the stored analysis why it could not be computed, and keeps what it had; the next call tries again."""
    stored = [Analysis.from_json(document) for document in store.load_analyses(run.id)]
    blank = Analysis(run.id, checkpoint.step, "", "", 0, {})
    kept = next((analysis for analysis in stored if analysis.step == checkpoint.step), blank)
    if kept.weights_error != error:
        store.save_analysis(run.id, checkpoint.step, replace(kept, fingerprint="", weights_error=error).as_json())


def _is_classifier(run: StoredRun) -> bool:
    predicts: str = run.settings.task.predicts
    return predicts == "label"


def _available_request(request: AnalysisRequest, run: StoredRun) -> AnalysisRequest:
    """The request without what needs held-out inputs, if the text of the run is gone or has changed."""
    try:
        require_training_data(run)
    except MissingData as error:
        needs_inputs = request.heads or request.predictions
        return replace(request, heads=False, predictions=False, inputs_error=str(error)) if needs_inputs else request
    return request


def _missing_analyses(store: Store, request: AnalysisRequest, run: StoredRun) -> list[Checkpoint]:
    """The checkpoints of a run whose stored analysis is not the requested one."""
    checkpoints = store.checkpoints(run.id)
    stored = {document["step"]: document["fingerprint"] for document in store.load_analyses(run.id)}
    return [
        checkpoint
        for checkpoint in (checkpoints if request.over_training else checkpoints[-1:])
        if stored.get(checkpoint.step) != request.digest(run, checkpoint, checkpoints[-1])
    ]


# ---- one checkpoint ----


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
        fingerprint=request.digest(run, checkpoint, last),
        split=head_analysis.split if head_analysis else "",
        n_inputs=head_analysis.n_inputs if head_analysis else 0,
        metrics={name: value for name, value in metrics.items() if np.isfinite(value.mean)},
        attention=tuple(maps),
        planes=fourier.planes if fourier else (),
        attention_errors=errors,
        predictions=predict_held_out(loaded) if request.predictions and checkpoint == last else (),
        inputs_error=request.inputs_error,
    )


def _analyze_fourier(store: Store, loaded: LoadedRun, weights: Arrays) -> FourierProgress | None:
    order: tuple[int, ...] | None = loaded.run.settings.task.cyclic_order()
    if order is None:
        return None
    return analyze_fourier(loaded, weights, order, find_key_frequencies(store.load_weights(loaded.run.id), order))


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
