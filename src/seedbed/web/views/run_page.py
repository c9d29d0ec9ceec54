"""One run: settings, curves, what it cost, its checkpoints, and what it wrote while it was trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite, log
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from seedbed.charts.labels import setting_label, value_label
from seedbed.data.suffix_array import MIN_COPIED_CHARACTERS, CopiedSpan
from seedbed.errors import MissingData, UsageError
from seedbed.records import StoredPack, StoredRun, StoredSample
from seedbed.report.figures import default_figures, render_figure
from seedbed.report.memorization_curves import copying_curves
from seedbed.report.overview import planned_steps, run_tables
from seedbed.sampling.copy_detection import find_training_copies
from seedbed.settings import Settings, TextSettings
from seedbed.stats.summary import RunCurves
from seedbed.store.store import Store
from seedbed.web.responses import json_response, render_page
from seedbed.web.store_cache import StoreCacheDep
from seedbed.web.views.study_page import figure_as_json, table_as_json

LN2: Final = log(2)
MAX_SAMPLES: Final = 400  # texts of a run that are sent; the page says when there are more
MAX_SAMPLE_CHARACTERS: Final = 20_000  # signs of one text

router = APIRouter()


@router.get("/run/{run}")
def show_run(request: Request, lab: StoreCacheDep, run: str) -> Response:
    """The page of a run; 404 when there is none."""
    found = lab.get_or_compute(("run", run), lambda store: store.run(run))
    return render_page(
        request, "run.html", run=found.id, seed=found.seed, is_text=isinstance(found.settings.task, TextSettings)
    )


@router.get("/api/run/{run}")
def send_run(lab: StoreCacheDep, run: str) -> Response:
    """Everything the store knows of a run but its curves and texts."""
    return json_response(lab.get_or_compute(("told run", run), lambda store: _run_as_json(store, run)))


def _run_as_json(store: Store, run: str) -> dict[str, Any]:
    found = store.run(run)
    studies = [name for name, runs in store.progress().items() if any(one.run == found.id for one in runs)]
    packs = [pack for name in studies[:1] for pack in store.study_packs(name) if found.id in pack.runs]
    return {
        "id": found.id, "seed": found.seed, "status": found.status, "step": found.step, "asked": planned_steps(found),
        "cause": found.cause, "best": found.best_step, "studies": studies,
        "parameters": {"total": found.parameters.total, "non_embedding": found.parameters.non_embedding},
        "settings": _settings_as_json(found.settings), "pack": _pack_as_json(packs[0]) if packs else None,
        "readings": table_as_json(run_tables(store, found)[0]),
        "checkpoints": [{"step": one.step, "bytes": one.bytes} for one in store.checkpoints(found.id)],
    }  # fmt: skip


def _settings_as_json(settings: Settings) -> list[dict[str, Any]]:
    """Every dial; those that are not as usual are marked."""
    differ = settings.non_default()
    return [
        {"name": name, "label": setting_label(name), "value": value_label(value), "differs": name in differ}
        for name, value in settings.flat().items()
    ]


def _pack_as_json(pack: StoredPack) -> dict[str, Any]:
    return {
        "id": pack.id, "runs": len(pack.runs), "device": pack.placement.device, "threads": pack.placement.threads,
        "engine": pack.placement.mode, "seconds": dict(pack.cost.seconds), "peak": pack.cost.peak_bytes,
        "environment": [dict(one) for one in pack.environment],
    }  # fmt: skip


@router.get("/api/run/{run}/figure")
def send_run_figure(lab: StoreCacheDep, run: str) -> Response:
    """The curves of a run as a figure."""
    runs = lab.get_or_compute(("run curves", run), lambda store: [_load_run_curves(store, run)])
    figure = default_figures(runs)[0].model_copy(
        update={"title": f"Run {runs[0].run.id[:12]}, seed {runs[0].run.seed}"}
    )
    shown = lab.get_or_derive(("run figure", run), runs, lambda: render_figure(figure, runs, runs[0].run.id))
    return json_response(figure_as_json(shown, 1) | {"command": f"seedbed show {runs[0].run.id}"})


def _load_run_curves(store: Store, run: str) -> RunCurves:
    """The run with everything that was read of it, and of what it wrote."""
    found = store.run(run)
    return RunCurves(found, {}, store.curves([found.id]).get(found.id, {}) | copying_curves(store, found))


# ---- what it wrote ----


@router.get("/api/run/{run}/samples")
def send_samples(lab: StoreCacheDep, run: str) -> Response:
    """The texts of a run by step, in pieces that are copied from its training text or not."""
    return json_response(lab.get_or_compute(("samples", run), lambda store: _load_samples(store, run)))


def _load_samples(store: Store, run: str) -> dict[str, Any]:
    found = store.run(run)
    every = store.samples(found.id)
    kept = every[-MAX_SAMPLES:]
    texts = [sample.text[:MAX_SAMPLE_CHARACTERS] for sample in kept]
    spans, note = _find_copied_spans(found, texts)
    left_out = f"the last {MAX_SAMPLES} of {len(every)} texts are shown" if len(every) > len(kept) else ""
    told = [_sample_as_json(*one) for one in zip(kept, texts, spans, strict=True)]
    return {"samples": told, "notes": [said for said in (note, left_out) if said]}


def _find_copied_spans(run: StoredRun, texts: Sequence[str]) -> tuple[Sequence[Sequence[CopiedSpan]], str]:
    """The copied spans of each text, or why they cannot be told."""
    task = run.settings.task
    if not texts or not isinstance(task, TextSettings):
        return [()] * len(texts), ""
    try:
        return find_training_copies(
            task, texts
        ), f"Marked: {MIN_COPIED_CHARACTERS} characters or more that stand verbatim in the training text."
    except (MissingData, UsageError) as error:
        return [()] * len(texts), f"What is copied cannot be marked: {error}"


def _sample_as_json(sample: StoredSample, text: str, spans: Sequence[CopiedSpan]) -> dict[str, Any]:
    bits = [-log_p / LN2 for log_p in sample.log_probabilities if isfinite(log_p)]
    return {
        "step": sample.step, "number": sample.number, "prompt": sample.prompt, "pieces": list(_split_at_spans(text, spans)),
        "bits": sum(bits) / len(bits) if bits else None,
    }  # fmt: skip


def _split_at_spans(text: str, spans: Sequence[CopiedSpan]) -> Iterator[tuple[str, bool]]:
    """The text cut where copying begins and ends; spans that overlap are one.

    >>> list(_pieces("abcdef", [Span(1, 3), Span(2, 5)]))
    [('a', False), ('bcde', True), ('f', False)]
    """
    at = 0
    for span in _merge_spans(spans):
        yield from [(text[at : span.start], False)] * (span.start > at)
        yield text[span.start : span.end], True
        at = span.end
    yield from [(text[at:], False)] * (at < len(text))


def _merge_spans(spans: Sequence[CopiedSpan]) -> list[CopiedSpan]:
    joined: list[CopiedSpan] = []
    for span in sorted(spans, key=lambda one: one.start):
        if joined and span.start <= joined[-1].end:
            joined[-1] = CopiedSpan(joined[-1].start, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined
