"""The dataset of a stored run: what it is called, and whether its text is still what the run was trained on; no torch.

A model needs only its vocabulary, which is stored with it. Its text is needed to train it further, to find copied text,
and to evaluate it on held-out inputs.
"""

from __future__ import annotations

from pathlib import Path

from seedbed.data.catalogue import CATALOGUE
from seedbed.errors import MissingData, UsageError
from seedbed.records import Run, StoredRun
from seedbed.study.plan import compute_run_id

SHORT_DIGEST_LENGTH = 6


def short_digest(digest: str) -> str:
    """The first digits of a dataset's digest, without the version of its generator.

    >>> short_digest("text/1/a1b2c3d4e5f6")
    'a1b2c3'
    """
    return digest.rpartition("/")[2][:SHORT_DIGEST_LENGTH]


def dataset_name(run: Run | StoredRun) -> str | None:
    """The corpus of a run with the digest of its dataset: `greek.txt (a1b2c3)`; None if settings make its data."""
    task, info = run.settings.task, run.dataset_info
    if not task.has_corpus or info is None:
        return None
    return f"{Path(task.corpus).name} ({short_digest(info.digest)})"


def require_training_data(run: StoredRun) -> None:
    """MissingData unless the corpus of a run is there and is what the run was trained on."""
    task = run.settings.task
    if not task.has_corpus:
        return
    if task.corpus not in CATALOGUE and not Path(task.corpus).exists():
        where = "there" if Path(task.corpus).is_absolute() else f"in {Path.cwd()}"
        raise MissingData(f"{task.corpus}, which run {run.id} was trained on, is not {where}")
    try:
        found = task.dataset_info().digest
    except (MissingData, UsageError) as error:
        raise MissingData(f"the text that run {run.id} was trained on is not available: {error}") from None
    if run.dataset_info is None:  # stored before schema 4
        is_same, digests = compute_run_id(run.settings, run.seed) == run.id, f"now {short_digest(found)}"
    else:
        is_same = run.dataset_info.digest == found
        digests = f"{short_digest(run.dataset_info.digest)}, now {short_digest(found)}"
    if not is_same:
        raise MissingData(f"{task.corpus} has changed since run {run.id} was trained on it (dataset {digests})")
