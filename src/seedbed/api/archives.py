"""Stored runs as one file, carried from the machine that trained them to another one; see docs/export.md.

print(export_archive(["quickstart"], "lab.zip", home="lab"))
print(import_archive("lab.zip", home="laptop"))
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from seedbed.api.homes import find_home
from seedbed.errors import MissingData, UsageError
from seedbed.format import join_words, pluralise

if TYPE_CHECKING:
    from seedbed.store import Store
    from seedbed.store.dump import FileRow, MergeOutcome, StoreDump, WeightsChoice


@dataclass(frozen=True)
class ArchiveReport:
    """What was written or read, in sentences; `print` shows them."""

    path: Path
    n_bytes: int
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    __repr__ = __str__


def export_archive(
    studies: Sequence[str],
    path: str | os.PathLike[str],
    *,
    home: str | os.PathLike[str] | None = None,
    only: Sequence[str] = (),
    weights: WeightsChoice = "none",
    unfinished: bool = False,
) -> ArchiveReport:
    """Writes the runs of studies that match the filters to an archive.

    It holds evaluations, samples, costs, analyses, vocabularies, notes and tags; `weights` adds the "last" weights of
    each run or "all", `unfinished` what it takes to go on with unfinished runs. A path in `.xz` is compressed.
    """
    from seedbed.store import open_store
    from seedbed.store.archive import compress_archive, write_archive
    from seedbed.store.dump import WeightsChoice

    if weights not in (accepted := get_args(WeightsChoice)):
        raise UsageError(f"--weights {weights}: expected {join_words(list(accepted), 'or')}")
    target, left_out = Path(path), list[str]()
    with ExitStack() as stack:
        store = stack.enter_context(open_store(find_home(home), read_only=True))
        dump = store.dump(_select_runs(store, studies, only), weights, unfinished)
        if target.suffix == ".xz":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="seedbed-"))
            dump = write_archive(store, dump, Path(folder, target.stem), left_out.append)
            compress_archive(Path(folder, target.stem), target)
        else:
            dump = write_archive(store, dump, target, left_out.append)
    n_bytes = target.stat().st_size
    lines = [f"wrote {target}: {describe_dump(dump, n_bytes)}", *(f"left out: {reason}" for reason in left_out)]
    return ArchiveReport(target, n_bytes, tuple(lines))


def _select_runs(store: Store, studies: Sequence[str], only: Sequence[str]) -> dict[str, list[str]]:
    """The ids of the matching runs of each study; of several studies, those without a match are left out."""
    from seedbed.report.study_runs import matching_runs

    stored, selection = store.progress(), {}
    for name in dict.fromkeys(studies):
        store.study(name)
        try:
            runs = matching_runs(store, name, only, skip_unreadable=True) if only else []
        except MissingData:
            if len(studies) == 1:
                raise
        else:
            selection[name] = [run.id for run in runs] if only else [run.run for run in stored[name]]
    if not selection:
        raise MissingData(f"no run of {join_words(list(studies), 'or')} has {' '.join(only)}")
    return selection


def import_archive(
    path: str | os.PathLike[str],
    home: str | os.PathLike[str] | None = None,
    announce: Callable[[str], None] = lambda _: None,
    store: str | None = None,
) -> ArchiveReport:
    """Merges an archive into a home; the archive is checked to its last byte before anything is written.

    Of a run that both have, the one that was trained further is kept. `announce` is told the size before unpacking.
    """
    from seedbed.store import open_store
    from seedbed.store.archive import decompressed_archive, open_archive

    source = Path(path)
    with decompressed_archive(source) as plain, open_archive(plain) as archive:
        announce(f"{source}: {describe_dump(archive.dump, archive.n_bytes)}")
        with open_store(find_home(home, store)) as opened:
            outcome = opened.merge(archive.dump, archive.read)
            address = opened.address
        return ArchiveReport(source, archive.n_bytes, (f"{address}: {describe_outcome(outcome)}",))


def copy_runs(
    studies: Sequence[str],
    to: str,
    *,
    home: str | os.PathLike[str] | None = None,
    only: Sequence[str] = (),
    weights: WeightsChoice = "all",
) -> str:
    """Merges the runs of studies that match the filters into another store; returns a sentence that says what it did.

    They come with all that `export_archive` writes, and with what it takes to go on with unfinished ones. `to` is the
    folder of a home, or an address.
    """
    from seedbed.store import add_home, check_address, open_store
    from seedbed.store.dump import WeightsChoice

    if weights not in (accepted := get_args(WeightsChoice)):
        raise UsageError(f"--weights {weights}: expected {join_words(list(accepted), 'or')}")
    target = add_home(to, find_home(home)) if ":" in to and not Path(to).exists() else f"sqlite:{to}"
    check_address(target)
    with open_store(find_home(home), read_only=True) as source:
        dump = source.dump(_select_runs(source, studies, only), weights, unfinished=True)
        with open_store(target) as store:
            return f"{store.address}: {describe_outcome(store.merge(dump, source.read_file))}"


def describe_dump(dump: StoreDump, n_bytes: int) -> str:
    """`8 runs of quickstart, with the weights of 8 checkpoints (0.3 MB); 0.5 MB`."""
    from seedbed.store.durable_files import format_bytes

    studies = [study.name for study in dump.studies]
    owner = studies[0] if len(studies) == 1 else f"{len(studies)} studies"
    n_runs = len({run for study in dump.studies for run in study.runs})
    parts = [f"{pluralise(n_runs, 'run')} of {owner}", *_describe_files(dump.files)]
    if n_neighbours := len(dump.runs) - n_runs:
        parts.append(f"{pluralise(n_neighbours, 'run')} that train with them")
    return f"{', '.join(parts)}; {format_bytes(n_bytes)}"


def _describe_files(files: Sequence[FileRow]) -> list[str]:
    from seedbed.store.durable_files import format_bytes

    names = {"analysis": "analysis of a run", "weights": "checkpoint with weights", "state": "pack to go on with"}
    plural = {"analysis": "analyses of runs", "weights": "checkpoints with weights", "state": "packs to go on with"}
    parts = []
    for kind in names:
        if found := [file for file in files if file.kind == kind]:
            text = f"{len(found)} {names[kind] if len(found) == 1 else plural[kind]}"
            parts.append(f"{text} ({format_bytes(sum(file.bytes for file in found))})")
    return parts


def describe_outcome(outcome: MergeOutcome) -> str:
    """`8 runs added, 2 kept as they are here, which were trained further here`."""
    counted = {
        "added": outcome.new, "taken over, which were trained further there": outcome.updated,
        "as they are already": outcome.same, "kept, which were trained further here": outcome.behind,
        "kept, which have other numbers here": outcome.different,
    }  # fmt: skip
    parts = [f"{pluralise(len(runs), 'run')} {what}" for what, runs in counted.items() if runs]
    added = [file for file in outcome.files if file.owner in outcome.same]
    parts += [f"{text} added" for text in _describe_files(added)]
    if outcome.other_texts:
        parts.append(f"the text of {join_words(list(outcome.other_texts))} is kept, which is another one here")
    return "; ".join(parts)
