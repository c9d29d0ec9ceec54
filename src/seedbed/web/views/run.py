"""One run: settings, curves, what it cost, its checkpoints, and what it wrote while it was trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite, log
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from seedbed.charts.labels import dial_in_words, spelled
from seedbed.data.verbatim import COPIED, Span
from seedbed.errors import MissingData, UsageError
from seedbed.generate.copied import copied_spans
from seedbed.measures.summary import RunCurves
from seedbed.records import StoredPack, StoredRun, StoredSample
from seedbed.report.copied import copying_curves
from seedbed.report.figures import default_figures, show_figure
from seedbed.report.overview import run_tables, steps_asked
from seedbed.settings import Settings, Text
from seedbed.store.store import Store
from seedbed.web.lab import TheLab
from seedbed.web.pages import page, sent
from seedbed.web.views.study import figure_as_json, table_as_json

LN2: Final = log(2)
MOST_SAMPLES: Final = 400  # texts of a run that are sent; the page says when there are more
LONGEST_TEXT: Final = 20_000  # signs of one text

router = APIRouter()


@router.get("/run/{run}")
def show_run(request: Request, lab: TheLab, run: str) -> Response:
    """The page of a run; 404 when there is none."""
    found = lab.kept(("run", run), lambda store: store.run(run))
    return page(request, "run.html", run=found.id, seed=found.seed, is_text=isinstance(found.settings.task, Text))


@router.get("/api/run/{run}")
def tell_run(lab: TheLab, run: str) -> Response:
    """Everything the store knows of a run but its curves and texts."""
    return sent(lab.kept(("told run", run), lambda store: _told(store, run)))


def _told(store: Store, run: str) -> dict[str, Any]:
    found = store.run(run)
    studies = [name for name, runs in store.standings().items() if any(one.run == found.id for one in runs)]
    packs = [pack for name in studies[:1] for pack in store.packs_of(name) if found.id in pack.runs]
    return {
        "id": found.id, "seed": found.seed, "status": found.status, "step": found.step, "asked": steps_asked(found),
        "cause": found.cause, "best": found.best, "studies": studies,
        "parameters": {"total": found.parameters.total, "non_embedding": found.parameters.non_embedding},
        "settings": _settings(found.settings), "pack": _pack(packs[0]) if packs else None,
        "readings": table_as_json(run_tables(store, found)[0]),
        "checkpoints": [{"step": one.step, "bytes": one.bytes} for one in store.checkpoints(found.id)],
    }  # fmt: skip


def _settings(settings: Settings) -> list[dict[str, Any]]:
    """Every dial; those that are not as usual are marked."""
    differ = settings.differences()
    return [
        {"name": name, "label": dial_in_words(name), "value": spelled(value), "differs": name in differ}
        for name, value in settings.dials().items()
    ]


def _pack(pack: StoredPack) -> dict[str, Any]:
    return {
        "id": pack.id, "runs": len(pack.runs), "device": pack.placement.device, "threads": pack.placement.threads,
        "engine": pack.placement.engine, "seconds": dict(pack.cost.seconds), "peak": pack.cost.peak,
        "environment": [dict(one) for one in pack.environment],
    }  # fmt: skip


@router.get("/api/run/{run}/figure")
def tell_curves(lab: TheLab, run: str) -> Response:
    """The curves of a run as a figure."""
    runs = lab.kept(("run curves", run), lambda store: [_curves(store, run)])
    figure = default_figures(runs)[0].model_copy(
        update={"title": f"Run {runs[0].run.id[:12]}, seed {runs[0].run.seed}"}
    )
    shown = lab.derived(("run figure", run), runs, lambda: show_figure(figure, runs, runs[0].run.id))
    return sent(figure_as_json(shown, 1) | {"command": f"seedbed show {runs[0].run.id}"})


def _curves(store: Store, run: str) -> RunCurves:
    """The run with everything that was read of it, and of what it wrote."""
    found = store.run(run)
    return RunCurves(found, {}, store.curves([found.id]).get(found.id, {}) | copying_curves(store, found))


# ---- what it wrote ----


@router.get("/api/run/{run}/samples")
def tell_samples(lab: TheLab, run: str) -> Response:
    """The texts of a run by step, in pieces that are copied from its training text or not."""
    return sent(lab.kept(("samples", run), lambda store: _samples(store, run)))


def _samples(store: Store, run: str) -> dict[str, Any]:
    found = store.run(run)
    every = store.samples(found.id)
    kept = every[-MOST_SAMPLES:]
    texts = [sample.text[:LONGEST_TEXT] for sample in kept]
    spans, note = _spans(found, texts)
    left_out = f"the last {MOST_SAMPLES} of {len(every)} texts are shown" if len(every) > len(kept) else ""
    told = [_sample(*one) for one in zip(kept, texts, spans, strict=True)]
    return {"samples": told, "notes": [said for said in (note, left_out) if said]}


def _spans(run: StoredRun, texts: Sequence[str]) -> tuple[Sequence[Sequence[Span]], str]:
    """The copied spans of each text, or why they cannot be told."""
    task = run.settings.task
    if not texts or not isinstance(task, Text):
        return [()] * len(texts), ""
    try:
        return copied_spans(
            task, texts
        ), f"Marked: {COPIED} characters or more that stand verbatim in the training text."
    except (MissingData, UsageError) as error:
        return [()] * len(texts), f"What is copied cannot be marked: {error}"


def _sample(sample: StoredSample, text: str, spans: Sequence[Span]) -> dict[str, Any]:
    bits = [-log_p / LN2 for log_p in sample.log_probabilities if isfinite(log_p)]
    return {
        "step": sample.step, "number": sample.number, "prompt": sample.prompt, "pieces": list(_pieces(text, spans)),
        "bits": sum(bits) / len(bits) if bits else None,
    }  # fmt: skip


def _pieces(text: str, spans: Sequence[Span]) -> Iterator[tuple[str, bool]]:
    """The text cut where copying begins and ends; spans that overlap are one.

    >>> list(_pieces("abcdef", [Span(1, 3), Span(2, 5)]))
    [('a', False), ('bcde', True), ('f', False)]
    """
    at = 0
    for span in _joined(spans):
        yield from [(text[at : span.start], False)] * (span.start > at)
        yield text[span.start : span.end], True
        at = span.end
    yield from [(text[at:], False)] * (at < len(text))


def _joined(spans: Sequence[Span]) -> list[Span]:
    joined: list[Span] = []
    for span in sorted(spans, key=lambda one: one.start):
        if joined and span.start <= joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined
