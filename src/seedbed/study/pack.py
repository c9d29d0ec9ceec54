"""Runs → packs: which runs can train together as one program, and how many fit; no torch.

    packs = pack_runs(plan.runs, Room(max_bytes=2 * 10**9, max_runs=64, min_packs=2))

Runs share a pack when their shapes and their program are equal; dials that are numbers per run may differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import ceil
from typing import Final, TypeAlias

from seedbed.models.model_size import effective_batch_size, estimate_training_bytes
from seedbed.records import Pack, Run
from seedbed.settings import ArithmeticSettings, Settings, Value

RunGroup: TypeAlias = tuple[Run, ...]
ShapeKey: TypeAlias = tuple[Value, ...]

# Dials that become tensors over runs, or only decide what a run starts from. The batch size and the training fraction
# are here too: the smaller batch is padded with samples of weight 0, as far as MIN_USE allows.
# fmt: off
PER_RUN_SETTINGS: Final = frozenset({
    "task.train_fraction", "task.operator",
    "model.dropout", "model.embedding_dropout", "model.attention_dropout", "model.mlp_dropout",
    "model.residual_dropout", "model.classifier_dropout", "model.init", "model.init_scale", "model.gate_init",
    "train.batch_size", "train.lr", "train.weight_decay", "train.momentum", "train.betas", "train.eps", "train.clip",
    "train.schedule", "train.warmup", "train.lr_floor", "train.lr_every", "train.lr_factor",
    "train.patience", "train.threshold", "train.plateau_metric",
})
# fmt: on
MIN_BATCH_USE: Final = 0.7  # the least share of a pack's padded batches that must be real samples


@dataclass(frozen=True)
class Capacity:
    """What a machine offers: memory and slots of one pack, and how many packs keep it busy."""

    max_bytes: int
    max_runs: int
    min_packs: int
    measured_max_runs: Mapping[ShapeKey, int] = field(
        default_factory=dict
    )  # slots that pay, of shapes where that was measured


def pack_runs(runs: Sequence[Run], capacity: Capacity) -> list[Pack]:
    """Packs that fit the room, in the order of their first runs' shapes; a run too large for it is a pack alone."""
    groups = [group for alike in _group_by_shape(runs) for group in _split_to_fit(alike, capacity)]
    counts = _count_parts(groups, capacity.min_packs)
    parts = [part for group, n in zip(groups, counts, strict=True) for part in _split_evenly(group, n)]
    return [_make_pack(useful) for part in parts for useful in _split_by_batch_use(part)]


def shape_key(settings: Settings) -> ShapeKey:
    """What runs of one pack have in common: every dial that is not per run, and the number of equations.

    The operator is per run, but `/` has fewer equations than the others, so it keeps to itself. A text follows from its
    dials.
    """
    dials = tuple((name, value) for name, value in settings.flat().items() if name not in PER_RUN_SETTINGS)
    if not isinstance(settings.task, ArithmeticSettings):
        return dials
    return (*dials, *(settings.task.n_equations(order) for order in settings.task.orders))


def _group_by_shape(runs: Sequence[Run]) -> list[RunGroup]:
    groups: dict[ShapeKey, list[Run]] = {}
    for run in runs:
        groups.setdefault(shape_key(run.settings), []).append(run)
    return [tuple(group) for group in groups.values()]


def _split_to_fit(runs: RunGroup, capacity: Capacity) -> Iterator[RunGroup]:
    """Groups that are small enough and waste little; a part of a group may waste what the whole did not."""
    for group in _split_by_batch_use(runs):
        n_fit = _max_runs_per_pack(group, capacity)
        if len(group) <= n_fit:
            yield group
        else:
            for part in _split_evenly(group, ceil(len(group) / n_fit)):
                yield from _split_to_fit(part, capacity)


def _split_by_batch_use(runs: RunGroup) -> list[RunGroup]:
    """Groups whose batches, padded to their largest, are real samples to at least MIN_USE; the order is kept.

    Taking sizes from the largest down, the share of real samples only falls, so each group can be closed greedily.
    """
    sizes = [effective_batch_size(run.settings, run.dataset_info) for run in runs]
    groups: list[list[int]] = []
    total = 0
    for place in sorted(range(len(runs)), key=lambda place: -sizes[place]):
        total += sizes[place]
        if not groups or total < MIN_BATCH_USE * (len(groups[-1]) + 1) * sizes[groups[-1][0]]:
            groups.append([])
            total = sizes[place]
        groups[-1].append(place)
    return [tuple(runs[place] for place in sorted(group)) for group in groups]


def _max_runs_per_pack(group: RunGroup, capacity: Capacity) -> int:
    """Runs of such a group that may share a pack: one where it must be alone, those that pay, or those that fit."""
    settings = group[0].settings
    if settings.train.exclusive:
        return 1
    n_fit = max(1, min(capacity.max_runs, capacity.max_bytes // _bytes_per_run(group)))
    return capacity.measured_max_runs.get(shape_key(settings), n_fit)


def _count_parts(groups: Sequence[RunGroup], min_packs: int) -> list[int]:
    """Into how many parts each group goes, so that there are enough packs: always the heaviest part is halved."""
    counts = [1] * len(groups)
    weights = [len(group) * _bytes_per_run(group) for group in groups]
    while sum(counts) < min_packs:
        splittable = [place for place, group in enumerate(groups) if counts[place] < len(group)]
        if not splittable:
            break
        counts[max(splittable, key=lambda place: weights[place] / counts[place])] += 1
    return counts


def _split_evenly(runs: RunGroup, n_parts: int) -> list[RunGroup]:
    """Consecutive parts whose sizes differ by one at most, the larger first."""
    size, n_larger = divmod(len(runs), n_parts)
    ends = [(part + 1) * size + min(part + 1, n_larger) for part in range(n_parts)]
    return [runs[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _bytes_per_run(runs: RunGroup) -> int:
    """Memory of each run of a group, all padded to the largest batch."""
    return max(estimate_training_bytes(run.settings, run.dataset_info) for run in runs)


def _make_pack(runs: RunGroup) -> Pack:
    members = "\n".join(run.id for run in runs)
    return Pack(blake2b(members.encode(), digest_size=8).hexdigest(), runs, len(runs) * _bytes_per_run(runs))
