"""The dataset of a stored run: what it is called, and whether its text is still what the run was trained on; no torch.

A model needs only its vocabulary, which is stored with it. Its text is needed to train it further, to find copied text,
and to evaluate it on held-out inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from seedbed.data.catalogue import CATALOGUE
from seedbed.errors import MissingData, UsageError
from seedbed.records import Plan, Run, StoredRun
from seedbed.settings import Settings
from seedbed.study.plan import compute_run_id

SHORT_DIGEST_LENGTH = 6
NO_DIGEST = "not recorded"  # the dataset of a run that was stored before schema 4


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


def distinguish_datasets(runs: Sequence[Run | StoredRun]) -> list[str | None]:
    """The dataset's name of each run that shares its settings with a run on another dataset; None for all others.

    A corpus that was edited between two runs of a study leaves such runs: they are different configs.
    """
    by_settings: dict[Settings, list[Run | StoredRun]] = {}
    for run in runs:
        if run.settings.task.has_corpus:
            by_settings.setdefault(run.settings, []).append(run)
    shared = {settings for settings, members in by_settings.items() if _have_several_datasets(members)}
    return [(dataset_name(run) or NO_DIGEST) if run.settings in shared else None for run in runs]


def _have_several_datasets(runs: Sequence[Run | StoredRun]) -> bool:
    digests = {run.dataset_info.digest for run in runs if run.dataset_info is not None}
    if len(digests) > 1:
        return True
    # Seeds of a run that was stored before schema 4 belong to the same dataset, unless one of them was run again.
    lacks_digest = any(run.dataset_info is None for run in runs)
    return bool(digests) and lacks_digest and len({run.seed for run in runs}) < len(runs)


def describe_changed_datasets(plan: Plan, stored: Sequence[StoredRun], dates: Mapping[str, str]) -> list[str]:
    """A sentence for each corpus that has changed since runs of a study were stored, if the plan adds new runs for it.

    `dates` tells when each dataset was first stored.
    """
    stored_ids = {run.id for run in stored}
    new_runs: dict[str, list[Run]] = {}
    for run in plan.runs:
        if run.settings.task.has_corpus and run.id not in stored_ids:
            new_runs.setdefault(run.settings.task.corpus, []).append(run)
    sentences = []
    for corpus, added in new_runs.items():
        configs, digests = {run.settings for run in added}, {_digest(run) for run in added}
        earlier = [run for run in stored if run.settings in configs and _digest(run) not in {*digests, None}]
        if earlier:
            sentences.append(_describe_changed_corpus(plan.study, corpus, added, earlier, dates))
    return sentences


def _describe_changed_corpus(
    study: str, corpus: str, added: Sequence[Run], earlier: Sequence[StoredRun], dates: Mapping[str, str]
) -> str:
    before, now = (sorted({short_digest(_digest(run) or "") for run in runs}) for runs in (earlier, added))
    days = sorted({dates.get(_digest(run) or "", "")[:10] for run in earlier} - {""})
    since = f"since the runs of {days[-1]}" if days else "since earlier runs of this study"
    n_new, n_old = (f"{len(runs):,} run{'s' * (len(runs) != 1)}" for runs in (added, earlier))
    return (
        f"{corpus} has changed {since}: {n_new} will be trained on it as it is now (dataset {', '.join(now)}); "
        f"{n_old} on dataset {', '.join(before)} stay, and are shown as configs of their own; to remove them: "
        f"seedbed rm {study} --only dataset={','.join(before)}"
    )


def _digest(run: Run | StoredRun) -> str | None:
    return None if run.dataset_info is None else run.dataset_info.digest
