"""The dataset of a stored run: what it is called, and whether its text is still what the run was trained on; no torch.

A model needs only its vocabulary, which is stored with it. Its text is needed to train it further, to find copied text,
and to evaluate it on held-out inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
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
    stay, remove = ("stays, and is shown as a config of its own", "it") if len(earlier) == 1 else (
        "stay, and are shown as configs of their own", "them"
    )  # fmt: skip
    return (
        f"{corpus} has changed {since}: {n_new} will be trained on it as it is now (dataset {', '.join(now)}); "
        f"{n_old} on dataset {', '.join(before)} {stay}; to remove {remove}: "
        f"seedbed rm {study} --only dataset={','.join(before)}"
    )


def _digest(run: Run | StoredRun) -> str | None:
    return None if run.dataset_info is None else run.dataset_info.digest


def match_moved_corpora(plan: Plan, stored: Sequence[StoredRun]) -> tuple[Plan, list[str]]:
    """The plan with runs on a moved text recognised as the stored ones that they are, and a sentence for each text.

    The id of a run depends on the path of its corpus as it was written. A planned run that is not stored, but would be
    a stored one if its corpus had the path of that one, takes over its id.
    """
    stored_ids, planned_ids = {run.id for run in stored}, {run.id for run in plan.runs}
    candidates = {
        _identity_without_path(run): run for run in stored if _has_own_corpus(run) and run.id not in planned_ids
    }
    runs: list[Run] = []
    moved: Counter[tuple[str, str]] = Counter()
    for run in plan.runs:
        is_new = _has_own_corpus(run) and run.id not in stored_ids
        same = candidates.get(_identity_without_path(run)) if is_new else None
        if same is not None and _is_same_run(run, same):
            del candidates[_identity_without_path(run)]
            moved[run.settings.task.corpus, same.settings.task.corpus] += 1
            run = replace(run, id=same.id)
        runs.append(run)
    sentences = [
        f"{path} is the text that was at {earlier}, so {n:,} stored run{'s' * (n != 1)} will be used"
        for (path, earlier), n in moved.items()
    ]
    return replace(plan, runs=tuple(runs)), sentences


def _is_same_run(run: Run, stored: StoredRun) -> bool:
    """Whether a run is a stored one, whose settings and data it has except for the path of its corpus."""
    settings = _with_corpus(run, stored)
    if compute_run_id(settings, run.seed, _digest(run)) == stored.id:
        return True
    # An archive keeps only the last part of an absolute path, so the id of an imported run cannot be made again from
    # its settings. Where no plugin is involved, whose version is in the id too, equal settings and data are enough.
    return Path(settings.task.corpus).name == settings.task.corpus and not settings.origins()


def at_planned_paths(members: Sequence[StoredRun], planned: Mapping[str, Run]) -> list[StoredRun]:
    """The runs of a stored pack, with the path at which the plan has their corpus, which all of them share."""
    moved = (
        one for run in members if (one := planned.get(run.id)) and one.settings.task.has_corpus
        and one.settings.task.corpus != run.settings.task.corpus
    )  # fmt: skip
    source = next(moved, None)
    return [run if source is None else replace(run, settings=_with_corpus(run, source)) for run in members]


def _with_corpus(run: Run | StoredRun, other: Run | StoredRun) -> Settings:
    """The settings of a run with the corpus of another one."""
    return Settings.from_flat(run.settings.flat() | {"task.corpus": other.settings.task.corpus})


def _has_own_corpus(run: Run | StoredRun) -> bool:
    """Whether the corpus of a run is a file or folder of the user's, of which the digest is known."""
    task = run.settings.task
    return task.has_corpus and task.corpus not in CATALOGUE and run.dataset_info is not None


def _identity_without_path(run: Run | StoredRun) -> Hashable:
    settings = {name: value for name, value in run.settings.flat().items() if name != "task.corpus"}
    return run.seed, _digest(run), tuple(sorted(settings.items()))
