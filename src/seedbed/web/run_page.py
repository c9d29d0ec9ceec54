"""The page of one run: settings, curves, cost, checkpoints, and the samples it generated during training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import isfinite, log
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from seedbed.charts.axis_labels import setting_label, value_label
from seedbed.data.suffix_array import MIN_COPIED_CHARACTERS, CopiedSpan
from seedbed.errors import MissingData, UsageError
from seedbed.format import format_config, format_value
from seedbed.records import StoredPack, StoredRun, StoredSample
from seedbed.report.figures import RenderedFigure, default_figures, render_figure
from seedbed.report.memorization_curves import copying_curves
from seedbed.report.overview import run_tables
from seedbed.report.study_runs import planned_steps, run_configs
from seedbed.report.tables import to_json
from seedbed.sampling.copy_detection import find_training_copies
from seedbed.stats.summary import RunCurves
from seedbed.store import Store
from seedbed.web.responses import StoreCacheDep, figure_as_json, json_response, render_page
from seedbed.web.store_cache import StoreCache

LN2: Final = log(2)
MAX_SAMPLES: Final = 400  # per run; the page notes when there are more
MAX_SAMPLE_CHARACTERS: Final = 20_000

router = APIRouter()


@router.get("/run/{run}")
def show_run(request: Request, cache: StoreCacheDep, run: str) -> Response:
    """The page of a run; 404 if there is none."""
    stored, place = cache.get_or_compute(("run", run), lambda store: (store.run(run), _find_place(store, run)))
    is_text = stored.settings.task.generates_text
    return render_page(request, "run.html", run=stored.id, name=place.config, seed=stored.seed, is_text=is_text)


@dataclass(frozen=True)
class RunPlace:
    """The studies of a run, its config in the first of them, and the seeds of that config with their runs."""

    studies: tuple[str, ...]
    config: str
    seeds: tuple[tuple[int, str], ...]


def _find_place(store: Store, run: str) -> RunPlace:
    stored = store.run(run)
    studies = tuple(name for name, runs in store.progress().items() if any(one.run == stored.id for one in runs))
    kind = format_value(stored.settings.model.kind)
    if not studies:
        return RunPlace((), kind, ((stored.seed, stored.id),))
    runs = store.runs(studies[0], skip_unreadable=True)
    configs = {one.id: config for one, config in zip(runs, run_configs(store, studies[0], runs), strict=True)}
    config = configs.get(stored.id, {})
    same = sorted((one.seed, one.id) for one in runs if configs[one.id] == config and one.settings == stored.settings)
    return RunPlace(studies, format_config(config) or kind, tuple(same))


@router.get("/api/run/{run}")
def send_run(cache: StoreCacheDep, run: str) -> Response:
    """Everything stored about a run except its curves and samples."""
    return json_response(cache.get_or_compute(("run as JSON", run), lambda store: _run_as_json(store, run)))


def _run_as_json(store: Store, run: str) -> dict[str, Any]:
    stored, place = store.run(run), _find_place(store, run)
    packs = [pack for name in place.studies[:1] for pack in store.study_packs(name) if stored.id in pack.runs]
    non_default = stored.settings.non_default()
    return {
        "id": stored.id, "seed": stored.seed, "status": stored.status, "step": stored.step,
        "total_steps": planned_steps(stored), "cause": stored.cause, "best": stored.best_step, "studies": place.studies,
        "seeds": place.seeds,
        "parameters": {"total": stored.parameters.total, "non_embedding": stored.parameters.non_embedding},
        "settings": [
            {"name": name, "label": setting_label(name), "value": value_label(value), "differs": name in non_default}
            for name, value in stored.settings.flat().items()
        ],
        "pack": _pack_as_json(packs[0]) if packs else None,
        "metrics": to_json(run_tables(store, stored)[0]),
        "checkpoints": [{"step": one.step, "bytes": one.bytes} for one in store.checkpoints(stored.id)],
    }  # fmt: skip


def _pack_as_json(pack: StoredPack) -> dict[str, Any]:
    return {
        "id": pack.id, "runs": len(pack.runs), "device": pack.placement.device, "threads": pack.placement.threads,
        "mode": pack.placement.mode, "seconds": dict(pack.cost.seconds), "peak": pack.cost.peak_bytes,
        "environment": [dict(one) for one in pack.environment],
    }  # fmt: skip


@router.get("/api/run/{run}/figure")
def send_run_figure(cache: StoreCacheDep, run: str) -> Response:
    """The curves of a run's metrics, and of how much its samples copy, as a figure."""
    return json_response(figure_as_json(run_figure(cache, run), 1))


def run_figure(cache: StoreCache, run: str) -> RenderedFigure:
    """The figure of a run's curves."""

    def load(store: Store) -> list[RunCurves]:
        stored = store.run(run)
        return [RunCurves(stored, {}, store.curves([stored.id]).get(stored.id, {}) | copying_curves(store, stored))]

    runs = cache.get_or_compute(("run curves", run), load)
    stored = runs[0].run
    place = cache.get_or_compute(("place", run), lambda store: _find_place(store, run))
    spec = default_figures(runs)[0].model_copy(update={"title": f"{place.config}, seed {stored.seed}"})
    figure = cache.get_or_derive(("run figure", run), runs, lambda: render_figure(spec, runs, stored.id))
    return replace(figure, command=f"seedbed show {stored.id}")


# ---- samples ----


@router.get("/api/run/{run}/samples")
def send_samples(cache: StoreCacheDep, run: str) -> Response:
    """The samples of a run by step, split into copied and new spans."""
    return json_response(cache.get_or_compute(("samples", run), lambda store: _load_samples(store, run)))


def _load_samples(store: Store, run: str) -> dict[str, Any]:
    stored = store.run(run)
    all_samples = store.samples(stored.id)
    samples = all_samples[-MAX_SAMPLES:]
    texts = [sample.text[:MAX_SAMPLE_CHARACTERS] for sample in samples]
    spans, note = _find_copied_spans(stored, texts)
    omitted = f"the last {MAX_SAMPLES} of {len(all_samples)} texts are shown" if len(all_samples) > len(samples) else ""
    rows = [_sample_as_json(*row) for row in zip(samples, texts, spans, strict=True)]
    return {"samples": rows, "notes": [text for text in (note, omitted) if text]}


def _find_copied_spans(run: StoredRun, texts: Sequence[str]) -> tuple[Sequence[Sequence[CopiedSpan]], str]:
    """The copied spans of each text and a note about them, or why they are unknown."""
    task = run.settings.task
    if not texts or not task.generates_text:
        return [()] * len(texts), ""
    try:
        note = f"Marked: {MIN_COPIED_CHARACTERS} or more characters copied verbatim from the training text."
        return find_training_copies(run, texts), note
    except (MissingData, UsageError) as error:
        return [()] * len(texts), f"Copied text cannot be marked: {error}"


def _sample_as_json(sample: StoredSample, text: str, spans: Sequence[CopiedSpan]) -> dict[str, Any]:
    bits = [-log_p / LN2 for log_p in sample.log_probabilities if isfinite(log_p)]
    return {
        "step": sample.step, "number": sample.number, "prompt": sample.prompt,
        "pieces": list(_split_at_spans(text, spans)), "bits": sum(bits) / len(bits) if bits else None,
    }  # fmt: skip


def _split_at_spans(text: str, spans: Sequence[CopiedSpan]) -> Iterator[tuple[str, bool]]:
    """The text in pieces, each with whether it is copied; overlapping spans are merged.

    >>> list(_split_at_spans("abcdef", [CopiedSpan(1, 3), CopiedSpan(2, 5)]))
    [('a', False), ('bcde', True), ('f', False)]
    """
    is_copied = [False] * len(text)
    for span in spans:
        is_copied[span.start : span.end] = [True] * (span.end - span.start)
    end = 0
    for copied, characters in groupby(is_copied):
        start, end = end, end + len(list(characters))
        yield text[start:end], copied
