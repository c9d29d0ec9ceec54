"""Predictions of classifiers for given texts, as tables and JSON: what `seedbed classify` prints.

    predictions = predict(load_classifiers(home, "speeches/classifier"), ["We choose to go to the moon."])
    predictions.classes[0], predictions.means[0].max()

Several runs give the mean of their probabilities, with its spread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seedbed.data.catalogue import describe_class
from seedbed.format import capitalise, pluralise, shorten
from seedbed.records import StoredRun
from seedbed.report.tables import Table
from seedbed.report.trained_models import Step, load_checkpoint, runs_with_weights
from seedbed.store import open_store

if TYPE_CHECKING:
    from seedbed.sampling.loaded_run import LoadedRun

Floats = NDArray[np.float64]
MAX_SHOWN_CHARACTERS = 70  # of a text in a table


@dataclass(frozen=True)
class Classifiers:
    """Loaded runs whose probabilities are averaged, and which runs they are, in words."""

    runs: tuple[LoadedRun, ...]
    description: str


@dataclass(frozen=True)
class Predictions:
    """The probabilities of N texts over C classes; std is over runs."""

    classifiers: Classifiers
    texts: tuple[str, ...]
    names: tuple[str, ...]  # of the classes
    means: Floats  # (N, C)
    stds: Floats  # (N, C)
    labels: tuple[str, ...] | None = None  # the true classes, where they are known
    n_cut: int = 0  # texts that are longer than the context

    @property
    def classes(self) -> list[str]:
        """The most likely class of each text."""
        return [self.names[i] for i in self.means.argmax(1)]

    @property
    def accuracy(self) -> float | None:
        """The share of texts with the right class; None where it is not known."""
        if self.labels is None:
            return None
        return float(np.mean([own == true for own, true in zip(self.classes, self.labels, strict=True)]))


def load_classifiers(home: Path, names: Sequence[str], only: Sequence[str] = (), step: Step = "last") -> Classifiers:
    """The models of these runs, or of the finished runs of a study; of unfinished ones where none has finished."""
    with open_store(home, read_only=True) as store:
        studies = {study.name for study in store.studies()}
        runs: dict[str, StoredRun] = {}
        notes = []
        for name in names:
            saved = runs_with_weights(store, name, only)
            finished = [run for run in saved if run.status == "finished"]
            chosen = finished or saved
            runs |= {run.id: run for run in chosen}
            if len(chosen) < len(saved):
                notes.append(f"{len(saved) - len(chosen)} of {len(saved)} runs are unfinished and left out")
            elif name in studies and not finished:
                notes.append("none of them has finished")
        loaded = tuple(load_checkpoint(store, run, step)[0] for run in runs.values())
    return Classifiers(loaded, "; ".join([_describe_runs(list(runs.values())), *notes]))


def _describe_runs(runs: Sequence[StoredRun]) -> str:
    if len(runs) == 1:
        return f"run {runs[0].id}"
    n_configs = len(Counter(run.settings for run in runs))
    configs = f" of {n_configs} configs" if n_configs > 1 else ""
    return f"mean ± std of the probabilities of {pluralise(len(runs), 'run')}{configs}"


def predict(classifiers: Classifiers, texts: Sequence[str], labels: Sequence[str] | None = None) -> Predictions:
    """The probabilities of the classes of these texts."""
    from seedbed.sampling.classifier import mean_class_probabilities

    means, stds = mean_class_probabilities(classifiers.runs, texts)
    first = classifiers.runs[0]
    n_cut = sum(len(first.encode(text)) > first.context for text in texts)
    true = None if labels is None else tuple(labels)
    return Predictions(classifiers, tuple(texts), first.label_names, means, stds, true, n_cut)


def prediction_notes(predictions: Predictions) -> list[str]:
    """What a reader has to know: which runs, texts that were cut, labels that are no class, the accuracy."""
    notes = [predictions.classifiers.description]
    context = predictions.classifiers.runs[0].context
    if predictions.n_cut:
        n = len(predictions.texts)
        which = "the text is" if n == 1 else f"{predictions.n_cut:,} of {n:,} texts are"
        notes.append(f"{which} longer than the context; the model reads the first {context:,} tokens")
    if predictions.labels is not None and predictions.accuracy is not None:
        n_right = round(predictions.accuracy * len(predictions.texts))
        notes.append(f"accuracy {predictions.accuracy:.3f} ({n_right:,} of {len(predictions.texts):,})")
        unknown = sorted(set(predictions.labels) - set(predictions.names))
        if unknown:
            notes.append(f"labels that are no class of the model: {', '.join(map(repr, unknown[:5]))}")
    return notes


def _sentences(notes: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{capitalise(note)}." for note in notes)


def class_table(predictions: Predictions) -> Table:
    """The classes of the only text, most likely first."""
    [text], [means], [stds] = predictions.texts, predictions.means, predictions.stds
    several = len(predictions.classifiers.runs) > 1
    corpus = predictions.classifiers.runs[0].run.settings.get("task.corpus")
    rows = tuple(
        (describe_class(corpus, predictions.names[i]), f"{means[i]:.3f}" + (f" ± {stds[i]:.3f}" if several else ""))
        for i in np.argsort(-means, kind="stable")
    )
    text = shorten(text, MAX_SHOWN_CHARACTERS)
    return Table(text, ("class", "probability"), rows, _sentences(prediction_notes(predictions)))


def prediction_table(predictions: Predictions, whole: bool = False) -> Table:
    """One row per text: its class and probability; with `whole`, full texts and the probabilities of all classes."""
    rows = []
    for index, (text, name) in enumerate(zip(predictions.texts, predictions.classes, strict=True)):
        shown = text if whole else shorten(text, MAX_SHOWN_CHARACTERS)
        true = () if predictions.labels is None else (predictions.labels[index],)
        best = float(predictions.means[index].max())
        every = [f"{p:.6f}" for p in predictions.means[index]] if whole else []
        rows.append((shown, *true, name, f"{best:.6f}" if whole else f"{best:.3f}", *every))
    label = () if predictions.labels is None else ("label",)
    names = tuple(f"p({name})" for name in predictions.names) if whole else ()
    notes = () if whole else _sentences(prediction_notes(predictions))
    columns = ("text", *label, "class", "probability", *names)
    return Table("", columns, tuple(rows), notes, n_labels=2 + len(label))


def predictions_as_json(predictions: Predictions) -> dict[str, Any]:
    """`classify --json`."""
    return {
        "runs": [{"id": one.run.id, "step": one.step} for one in predictions.classifiers.runs],
        "accuracy": predictions.accuracy,
        "texts": [
            {"text": text, "class": name, "label": None if predictions.labels is None else predictions.labels[index]}
            | {"probabilities": dict(zip(predictions.names, predictions.means[index].tolist(), strict=True))}
            | {"std_over_runs": dict(zip(predictions.names, predictions.stds[index].tolist(), strict=True))}
            for index, (text, name) in enumerate(zip(predictions.texts, predictions.classes, strict=True))
        ],
    }
