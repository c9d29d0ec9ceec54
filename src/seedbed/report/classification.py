"""Classifiers in a report: the confusion matrix of each config over seeds, and the errors that are made confidently.

    classification_tables(load_run_curves(store, "speeches/classifier"))

The predictions are part of a run's stored analysis; `predict_held_out` makes them from its weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from seedbed.charts.panel_layout import config_label
from seedbed.data.catalogue import describe_class
from seedbed.data.datasets import LabelledDataset
from seedbed.format import pluralise, shorten
from seedbed.interp.analysis import N_ERRORS, PredictionError, SplitPredictions
from seedbed.report.tables import Table
from seedbed.stats.summary import RunCurves, group_by_config
from seedbed.tasks.base import HELD_OUT_SPLITS

if TYPE_CHECKING:
    from seedbed.sampling.loaded_run import LoadedRun

SPLIT_NAMES = {"val": "validation", "test": "test"}
MAX_CONFIGS = 4  # with tables of their own, those with the highest accuracy
MAX_SHOWN_ERRORS = 8
MAX_TEXT_CHARACTERS = 120


def predict_held_out(loaded: LoadedRun) -> tuple[SplitPredictions, ...]:
    """The predictions of a classifier on its validation and test texts."""
    from seedbed.sampling.classifier import row_probabilities

    dataset: LabelledDataset = loaded.run.settings.task.labelled_dataset()
    held_out = [(name, dataset.splits[name]) for name in HELD_OUT_SPLITS if name in dataset.splits]
    return tuple(
        SplitPredictions.from_probabilities(
            name, dataset.label_names, split.labels, row_probabilities(loaded, split.rows), split.texts
        )
        for name, split in held_out
    )


def classification_tables(runs: Sequence[RunCurves]) -> list[Table]:
    """A confusion matrix and the most confident errors, for each config and each held-out split; [] without them."""
    configs = [_runs_with_predictions(seed_runs) for seed_runs in group_by_config(runs)]
    configs = [seed_runs for seed_runs in configs if seed_runs]
    ranked = sorted(configs, key=_mean_accuracy, reverse=True)[:MAX_CONFIGS]
    left_out = f"Of {len(configs)} configs, the {MAX_CONFIGS} with the highest accuracy are shown."
    notes = (left_out,) if len(configs) > MAX_CONFIGS else ()
    return [
        table
        for seed_runs in configs
        if seed_runs in ranked
        for table in _config_tables(seed_runs, f": {config_label(seed_runs[0])}" if len(configs) > 1 else "", notes)
    ]


def _runs_with_predictions(seed_runs: Sequence[RunCurves]) -> list[RunCurves]:
    """The complete runs of a config whose last analysis has predictions; without complete ones, the others."""
    analysed = [run for run in seed_runs if run.analyses and run.analyses[-1].predictions]
    return [run for run in analysed if run.is_complete] or analysed


def _mean_accuracy(seed_runs: Sequence[RunCurves]) -> float:
    """The mean accuracy over seeds on the last split: test, or else validation."""
    counts = [np.array(run.analyses[-1].predictions[-1].confusion) for run in seed_runs]
    return float(np.mean([one.trace() / max(1, one.sum()) for one in counts]))


def _config_tables(seed_runs: Sequence[RunCurves], suffix: str, notes: tuple[str, ...]) -> Iterator[Table]:
    by_split: dict[str, list[SplitPredictions]] = {}
    for run in seed_runs:
        for one in run.analyses[-1].predictions:
            by_split.setdefault(one.split, []).append(one)
    for split, predictions in by_split.items():
        corpus = seed_runs[0].run.settings.get("task.corpus")
        predictions = [_with_class_names(one, corpus) for one in predictions]
        yield _confusion_table(predictions, f"{SPLIT_NAMES.get(split, split)}{suffix}", notes)
        yield from _error_tables(predictions, f"{SPLIT_NAMES.get(split, split)}{suffix}")


def _with_class_names(predictions: SplitPredictions, corpus: object) -> SplitPredictions:
    """With the classes of a named corpus as people read them."""
    errors = tuple(
        replace(one, label=describe_class(corpus, one.label), predicted=describe_class(corpus, one.predicted))
        for one in predictions.errors
    )
    return replace(predictions, names=tuple(describe_class(corpus, one) for one in predictions.names), errors=errors)


def _confusion_table(predictions: Sequence[SplitPredictions], where: str, notes: tuple[str, ...]) -> Table:
    """Counts by true and predicted class, with recall and precision; means over seeds."""
    names, n_seeds = predictions[0].names, len(predictions)
    counts = np.array([one.confusion for one in predictions], dtype=np.float64)
    mean = counts.mean(0)
    number = "{:,.0f}" if n_seeds == 1 else "{:,.1f}"
    rows = [
        (name, *(number.format(value) for value in mean[i]), _format_share(mean[i, i], mean[i].sum()))
        for i, name in enumerate(names)
    ]
    precision = [_format_share(mean[i, i], mean[:, i].sum()) for i in range(len(names))]
    rows.append(("precision", *precision, _format_share(mean.trace(), mean.sum())))
    over_seeds = "counts" if n_seeds == 1 else f"mean counts over {n_seeds} seeds"
    n_texts = pluralise(int(counts[0].sum()), "text")
    legend = f"Rows: true class; columns: predicted class; {over_seeds} of {n_texts}. The last cell is the accuracy."
    diagonal = frozenset((i, i + 1) for i in range(len(names)))
    return Table(f"Confusion matrix, {where}", ("class", *names, "recall"), tuple(rows), (legend, *notes), diagonal)


def _format_share(part: float, whole: float) -> str:
    return f"{part / whole:.3f}" if whole else "–"


def _error_tables(predictions: Sequence[SplitPredictions], where: str) -> list[Table]:
    """The errors that most seeds make, the most confident first."""
    by_sample: dict[int, list[PredictionError]] = {}
    for one in predictions:
        for error in one.errors:
            by_sample.setdefault(error.index, []).append(error)
    n_wrong = Counter(index for one in predictions for index in one.wrong)
    ranked = sorted(by_sample, key=lambda index: (-n_wrong[index], -_mean_probability(by_sample[index])))
    rows = []
    for index in ranked[:MAX_SHOWN_ERRORS]:
        errors = by_sample[index]
        predicted, _ = Counter(error.predicted for error in errors).most_common(1)[0]
        shown = shorten(errors[0].text, MAX_TEXT_CHARACTERS)
        seeds = () if len(predictions) == 1 else (f"{n_wrong[index]} of {len(predictions)}",)
        rows.append((shown, errors[0].label, predicted, f"{_mean_probability(errors):.3f}", *seeds))
    if not rows:
        return []
    columns = ("text", "class", "predicted", "probability", *(() if len(predictions) == 1 else ("seeds that err",)))
    seeds_note = f", mean over the seeds that have it among their {N_ERRORS} most confident errors"
    note = f"Probability: of the predicted class{seeds_note if len(predictions) > 1 else ''}."
    return [Table(f"Most confident errors, {where}", columns, tuple(rows), (note,), n_labels=3)]


def _mean_probability(errors: Sequence[PredictionError]) -> float:
    return float(np.mean([error.probability for error in errors]))
