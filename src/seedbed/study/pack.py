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

from seedbed.models.count import effective_batch, predict_bytes
from seedbed.records import Pack, Run
from seedbed.settings import Arithmetic, Settings, Value

Runs: TypeAlias = tuple[Run, ...]
ShapeKey: TypeAlias = tuple[Value, ...]

# Dials that become tensors over runs, or only decide what a run starts from. The batch size and the training fraction
# are here too: the smaller batch is padded with samples of weight 0, as far as MIN_USE allows.
# fmt: off
PER_RUN: Final = frozenset({
    "task.train_fraction", "task.operator",
    "model.dropout", "model.embedding_dropout", "model.attention_dropout", "model.mlp_dropout",
    "model.residual_dropout", "model.classifier_dropout", "model.init", "model.init_scale", "model.gate_init",
    "train.batch_size", "train.lr", "train.weight_decay", "train.momentum", "train.betas", "train.eps", "train.clip",
    "train.schedule", "train.warmup", "train.lr_floor", "train.lr_every", "train.lr_factor",
    "train.patience", "train.threshold", "train.watch",
})
# fmt: on
MIN_USE: Final = 0.7  # the least share of a pack's padded batches that must be real samples


@dataclass(frozen=True)
class Room:
    """What a machine offers: memory and slots of one pack, and how many packs keep it busy."""

    max_bytes: int
    max_runs: int
    min_packs: int
    stacked: Mapping[ShapeKey, int] = field(default_factory=dict)  # slots that pay, of shapes where that was measured


def pack_runs(runs: Sequence[Run], room: Room) -> list[Pack]:
    """Packs that fit the room, in the order of their first runs' shapes; a run too large for it is a pack alone."""
    groups = [group for alike in _alike(runs) for group in _fitting(alike, room)]
    counts = _share_out(groups, room.min_packs)
    parts = [part for group, n in zip(groups, counts, strict=True) for part in _split_evenly(group, n)]
    return [_pack(useful) for part in parts for useful in _useful(part)]


def shape_key(settings: Settings) -> ShapeKey:
    """What runs of one pack have in common: every dial that is not per run, and the number of equations.

    The operator is per run, but `/` has fewer equations than the others, so it keeps to itself. A text follows from its
    dials.
    """
    dials = tuple((name, value) for name, value in settings.dials().items() if name not in PER_RUN)
    if not isinstance(settings.task, Arithmetic):
        return dials
    return (*dials, *(settings.task.n_equations(order) for order in settings.task.orders))


def _alike(runs: Sequence[Run]) -> list[Runs]:
    groups: dict[ShapeKey, list[Run]] = {}
    for run in runs:
        groups.setdefault(shape_key(run.settings), []).append(run)
    return [tuple(group) for group in groups.values()]


def _fitting(runs: Runs, room: Room) -> Iterator[Runs]:
    """Groups that are small enough and waste little; a part of a group may waste what the whole did not."""
    for group in _useful(runs):
        n_fit = _most(group, room)
        if len(group) <= n_fit:
            yield group
        else:
            for part in _split_evenly(group, ceil(len(group) / n_fit)):
                yield from _fitting(part, room)


def _useful(runs: Runs) -> list[Runs]:
    """Groups whose batches, padded to their largest, are real samples to at least MIN_USE; the order is kept.

    Taking sizes from the largest down, the share of real samples only falls, so each group can be closed greedily.
    """
    sizes = [effective_batch(run.settings, run.facts) for run in runs]
    groups: list[list[int]] = []
    total = 0
    for place in sorted(range(len(runs)), key=lambda place: -sizes[place]):
        total += sizes[place]
        if not groups or total < MIN_USE * (len(groups[-1]) + 1) * sizes[groups[-1][0]]:
            groups.append([])
            total = sizes[place]
        groups[-1].append(place)
    return [tuple(runs[place] for place in sorted(group)) for group in groups]


def _most(group: Runs, room: Room) -> int:
    """Runs of such a group that may share a pack: one where it must be alone, those that pay, or those that fit."""
    settings = group[0].settings
    if settings.train.alone:
        return 1
    n_fit = max(1, min(room.max_runs, room.max_bytes // _bytes_each(group)))
    return room.stacked.get(shape_key(settings), n_fit)


def _share_out(groups: Sequence[Runs], min_packs: int) -> list[int]:
    """Into how many parts each group goes, so that there are enough packs: always the heaviest part is halved."""
    counts = [1] * len(groups)
    weights = [len(group) * _bytes_each(group) for group in groups]
    while sum(counts) < min_packs:
        splittable = [place for place, group in enumerate(groups) if counts[place] < len(group)]
        if not splittable:
            break
        counts[max(splittable, key=lambda place: weights[place] / counts[place])] += 1
    return counts


def _split_evenly(runs: Runs, n_parts: int) -> list[Runs]:
    """Consecutive parts whose sizes differ by one at most, the larger first."""
    size, n_larger = divmod(len(runs), n_parts)
    ends = [(part + 1) * size + min(part + 1, n_larger) for part in range(n_parts)]
    return [runs[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _bytes_each(runs: Runs) -> int:
    """Memory of each run of a group, all padded to the largest batch."""
    return max(predict_bytes(run.settings, run.facts) for run in runs)


def _pack(runs: Runs) -> Pack:
    members = "\n".join(run.id for run in runs)
    return Pack(blake2b(members.encode(), digest_size=8).hexdigest(), runs, len(runs) * _bytes_each(runs))
