"""Groups runs into packs: which runs can train together as one program, and how many fit; no torch.

    packs = pack_runs(plan.runs, Capacity(max_bytes=2 * 10**9, max_runs=64, min_packs=2))

Runs share a pack if their tensor shapes and their program are equal; per-run settings (lr, dropout, ...) may differ.
On a CPU, and everywhere with `train.reproducible`, that includes the rows of a batch and whether there is dropout at
all: a pack then computes for each run what it would compute for that run alone (decision 11).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import ceil
from typing import Final, TypeAlias

from seedbed.models.model_size import effective_batch_size, estimate_peak_bytes
from seedbed.records import Pack, Run
from seedbed.settings import Settings, Value, setting_traits

RunGroup: TypeAlias = tuple[Run, ...]
ShapeKey: TypeAlias = tuple[Value, ...]

MIN_BATCH_USE: Final = 0.7  # minimum fraction of real samples in a pack's padded batches


@dataclass(frozen=True)
class Capacity:
    """Limits of a machine: memory and runs of one pack, and the number of packs that keep it busy."""

    max_bytes: int
    max_runs: int
    min_packs: int
    # Largest pack worth its memory, for shapes whose throughput was measured
    measured_max_runs: Mapping[ShapeKey, int] = field(default_factory=dict)
    device: str = "cpu"  # or cuda, where a run takes less memory


def pack_runs(runs: Sequence[Run], capacity: Capacity) -> list[Pack]:
    """Packs that fit the capacity, in order of first appearance of their shape; an oversized run gets its own pack."""
    by_program = _group_by_program(runs, capacity.device)
    groups = [group for equal in by_program for group in _split_to_fit(equal, capacity)]
    counts = _count_parts(groups, capacity)
    parts = [part for group, n in zip(groups, counts, strict=True) for part in _split_evenly(group, n)]
    return [_make_pack(group, capacity.device) for part in parts for group in _split_by_batch_use(part)]


def shape_key(settings: Settings) -> ShapeKey:
    """Key that runs must share to be packed: every setting that is not per run, and the shapes of the task's data."""
    shared = tuple((name, value) for name, value in settings.flat().items() if not setting_traits(name).per_run)
    return (*shared, *settings.task.shape_key())


def _group_by_program(runs: Sequence[Run], device: str) -> list[RunGroup]:
    groups: dict[ShapeKey, list[Run]] = {}
    for run in runs:
        groups.setdefault(_program_key(run, device), []).append(run)
    return [tuple(group) for group in groups.values()]


def _program_key(run: Run, device: str) -> ShapeKey:
    """The shape key, and what else a run's neighbours must share so that they do not change what is computed for it."""
    settings, key = run.settings, shape_key(run.settings)
    if device != "cpu" and not settings.train.reproducible:
        return key
    n_evaluated = settings.train.batch_size if settings.train.eval_batches else 0
    return (*key, extra_work(settings), effective_batch_size(settings, run.dataset_info), n_evaluated)


def extra_work(settings: Settings) -> tuple[bool, ...]:
    """For each setting that adds work unless it is 0, such as a rate of dropout, whether it does."""
    return tuple(bool(value) for name, value in settings.flat().items() if setting_traits(name).nonzero_adds_work)


def _split_to_fit(runs: RunGroup, capacity: Capacity) -> Iterator[RunGroup]:
    """Groups that fit and waste little; checked recursively, since a part can waste more than the whole."""
    for group in _split_by_batch_use(runs):
        n_fit = _max_runs_per_pack(group, capacity)
        if len(group) <= n_fit:
            yield group
        else:
            for part in _split_evenly(group, ceil(len(group) / n_fit)):
                yield from _split_to_fit(part, capacity)


def _split_by_batch_use(runs: RunGroup) -> list[RunGroup]:
    """Groups whose batches, padded to their largest, hold at least MIN_BATCH_USE real samples; keeps the order.

    With sizes in descending order the fraction of real samples only falls, so each group can be closed greedily.
    """
    sizes = [effective_batch_size(run.settings, run.dataset_info) for run in runs]
    groups: list[list[int]] = []
    total = 0
    for index in sorted(range(len(runs)), key=lambda index: -sizes[index]):
        total += sizes[index]
        if not groups or total < MIN_BATCH_USE * (len(groups[-1]) + 1) * sizes[groups[-1][0]]:
            groups.append([])
            total = sizes[index]
        groups[-1].append(index)
    return [tuple(runs[index] for index in sorted(group)) for group in groups]


def _max_runs_per_pack(group: RunGroup, capacity: Capacity) -> int:
    """Limit for this group: 1 if exclusive, else the measured best size of its shape, else what fits in memory."""
    settings = group[0].settings
    if settings.train.exclusive or not settings.model.stackable:
        return 1
    n_fit = max(1, min(capacity.max_runs, capacity.max_bytes // _bytes_per_run(group, capacity.device)))
    return capacity.measured_max_runs.get(shape_key(settings), n_fit)


def _count_parts(groups: Sequence[RunGroup], capacity: Capacity) -> list[int]:
    """Number of parts for each group, so that there are at least min_packs: always splits the heaviest part."""
    counts = [1] * len(groups)
    weights = [len(group) * _bytes_per_run(group, capacity.device) for group in groups]
    while sum(counts) < capacity.min_packs:
        splittable = [index for index, group in enumerate(groups) if counts[index] < len(group)]
        if not splittable:
            break
        counts[max(splittable, key=lambda index: weights[index] / counts[index])] += 1
    return counts


def _split_evenly(runs: RunGroup, n_parts: int) -> list[RunGroup]:
    """Consecutive parts whose sizes differ by at most one, larger ones first."""
    size, n_larger = divmod(len(runs), n_parts)
    ends = [(part + 1) * size + min(part + 1, n_larger) for part in range(n_parts)]
    return [runs[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _bytes_per_run(runs: RunGroup, device: str) -> int:
    """Peak memory per run of a group: that of its largest run, since all are padded to the largest batch."""
    return max(estimate_peak_bytes(run.settings, run.dataset_info, device) for run in runs)


def _make_pack(runs: RunGroup, device: str) -> Pack:
    members = "\n".join(run.id for run in runs)
    n_bytes = (len(runs) + has_twin(runs[0].settings, len(runs), device)) * _bytes_per_run(runs, device)
    return Pack(blake2b(members.encode(), digest_size=8).hexdigest(), runs, n_bytes)


def has_twin(settings: Settings, n_runs: int, device: str) -> bool:
    """Whether a lone run is trained beside a copy of itself: a GPU multiplies a single matrix by another algorithm.

    Not where every run of the kind is alone in any case.
    """
    may_be_packed = settings.model.stackable and not settings.train.exclusive
    return n_runs == 1 and device != "cpu" and settings.train.reproducible and may_be_packed
