"""Classes of texts: the probabilities that a classifier, or the mean of several, gives to each label.

    class_probabilities(seedbed.load("3f2a"), ["Some sentence"])               # (1, C)
    mean_class_probabilities(seedbed.load_all("speeches/classifier"), texts)   # (N, C)

Texts are cut or padded to the context, as in training.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from seedbed.data.windows import pad_sequences
from seedbed.errors import UsageError
from seedbed.models.sequence_model import eval_mode
from seedbed.sampling.results import ClassProbabilities, ClassProbability

if TYPE_CHECKING:
    from seedbed.sampling.loaded_run import LoadedRun, TextOrIds

Floats = NDArray[np.float64]
MAX_CHUNK_TOKENS = 1 << 15  # of one forward pass


def rank_classes(names: Sequence[str], probabilities: Floats) -> ClassProbabilities:
    """Classes with their probabilities, most likely first."""
    pairs = sorted(zip(names, probabilities.tolist(), strict=True), key=lambda pair: -pair[1])
    return ClassProbabilities(ClassProbability(name, probability) for name, probability in pairs)


def class_probabilities(loaded: LoadedRun, texts: Iterable[TextOrIds]) -> Floats:
    """The probabilities of the classes, (N, C), in the order of `loaded.label_names`."""
    require_classifier(loaded)
    sequences = [loaded.encode(text) for text in texts]
    for number, ids in enumerate(sequences, start=1):
        if not len(ids):
            which = f"text {number} of {len(sequences)}" if len(sequences) > 1 else "the text"
            raise UsageError(f"{which} is empty; a class needs at least one token")
    return row_probabilities(loaded, pad_sequences(sequences, loaded.context)[0])


def row_probabilities(loaded: LoadedRun, rows: NDArray[np.int64]) -> Floats:
    """The probabilities of the classes, (N, C), for token ids that are padded to the context, (N, T)."""
    chunk = max(1, MAX_CHUNK_TOKENS // loaded.context)
    with eval_mode(loaded.model):
        logits = [
            loaded.model(torch.from_numpy(rows[start : start + chunk])[None])[0, :, 0]
            for start in range(0, len(rows), chunk)
        ]
    if not logits:
        return np.zeros((0, len(loaded.label_names)))
    return torch.cat(logits).double().softmax(-1).numpy()


def mean_class_probabilities(runs: Sequence[LoadedRun], texts: Sequence[TextOrIds]) -> tuple[Floats, Floats]:
    """The mean over runs of the probabilities, (N, C), and their population std; runs must have the same classes."""
    names = {run.label_names: run.run.id for run in runs}
    if len(names) > 1:
        (one, first), (other, second) = list(names.items())[:2]
        raise UsageError(
            f"runs {first} and {second} have different classes ({', '.join(one)}; {', '.join(other)}); name runs with "
            "the same classes"
        )
    stacked = np.stack([class_probabilities(run, texts) for run in runs])
    return stacked.mean(0), stacked.std(0)


def require_classifier(loaded: LoadedRun) -> None:
    """UsageError for a run that predicts the next token."""
    if loaded.run.settings.task.predicts != "label":
        raise UsageError(
            f"run {loaded.run.id} predicts the next token and has no classes; "
            f"`seedbed sample {loaded.run.id}` generates text"
        )
