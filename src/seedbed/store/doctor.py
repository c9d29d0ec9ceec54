"""What is wrong with a home and what to type about it, found by reading alone: `seedbed doctor`.

    for finding in examine(Path("lab")).findings:
        print(finding)          # error: the evaluations of run 3f2a differ from their digest; type: seedbed repair …

An error is something stored that is damaged or missing; a warning, something that may lead to that, or is left over.
Rows are verified in intact_rows.py; here are the files, the schema, SQLite, the file system, the clock and the space.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection

from seedbed.errors import DamagedCheckpoint, MissingData, StoreError
from seedbed.format import pluralise
from seedbed.store.checkpoints import (
    ANALYSIS_SUFFIX,
    STATES,
    CheckpointIdentity,
    checkpoint_path,
    read_analysis,
    read_checkpoint,
    state_identity,
    state_path,
    weights_identity,
    weights_path,
)
from seedbed.store.database import Database, database_path
from seedbed.store.digests import RunRows
from seedbed.store.dump import check_analysis
from seedbed.store.durable_files import format_bytes, is_locked
from seedbed.store.intact_rows import IntactRows, sqlite_faults
from seedbed.store.schema import AnyRow, checkpoints

Severity: TypeAlias = Literal["error", "warning"]
NETWORK_FILE_SYSTEMS = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "9p", "afs", "ceph", "beegfs", "gpfs", "ncpfs", "pvfs2",
    "fuse.sshfs", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.gcsfuse",
}  # fmt: skip
MIN_FREE_BYTES = 256_000_000  # besides two states of every unfinished pack
MAX_CLOCK_ERROR = timedelta(minutes=5)
_NOUNS = {
    "studies": ("study", "studies"), "runs": ("run",), "packs": ("pack",), "states": ("state",),
    "weights": ("file of weights", "files of weights"), "analyses": ("analysis", "analyses"),
}  # fmt: skip
# SQLite's WAL-reset bug: two connections that write and checkpoint at the same instant may damage the database.
WAL_RESET_BUG = ((3, 7, 0), (3, 51, 3))  # from the first up to but not including the second version
WAL_RESET_FIXES = ((3, 44, 6), (3, 50, 7))  # releases of earlier lines that have the fix


@dataclass(frozen=True)
class Finding:
    """One thing that was found."""

    severity: Severity
    what: str
    command: str = ""  # to type about it

    def __str__(self) -> str:
        return f"{self.severity}: {self.what}" + (f"; type: {self.command}" if self.command else "")


@dataclass
class Diagnosis:
    """What `examine` found in a home."""

    home: Path
    counts: dict[str, int] = field(default_factory=dict)  # of what was examined
    findings: list[Finding] = field(default_factory=list)

    @property
    def examined(self) -> str:
        """What was examined, in words.

        >>> Diagnosis(Path("lab"), {"studies": 1, "runs": 8, "weights": 1}).examined
        '1 study, 8 runs, 1 file of weights'
        """
        return ", ".join(pluralise(n, *_NOUNS[what]) for what, n in self.counts.items())

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "error"]

    def as_json(self) -> dict[str, Any]:
        findings = [asdict(finding) for finding in self.findings]
        return {
            "home": str(self.home), "healthy": not self.errors, "examined": self.counts, "findings": findings,
        }  # fmt: skip

    def command(self, verb: str, *words: str) -> str:
        return shlex.join(["seedbed", verb, *words, "--home", str(self.home)])

    @property
    def repair_command(self) -> str:
        return shlex.join(["seedbed", "repair", str(self.home), "--out", f"{self.home}-repaired"])

    def error(self, what: str, command: str | None = None) -> None:
        self.findings.append(Finding("error", what, self.repair_command if command is None else command))

    def warn(self, what: str, command: str = "") -> None:
        self.findings.append(Finding("warning", what, command))


def examine(home: Path) -> Diagnosis:
    """Examine a home; nothing in it is changed, and MissingData if there is none."""
    path, found = database_path(home), Diagnosis(home)
    if not path.exists():
        if not (home / "checkpoints").is_dir():
            raise MissingData(f"there is no store in {home}; name another home, or run a study first")
        found.error(f"{path} is missing, and the checkpoints beside it cannot be used without it; put it back", "")
        return found
    _examine_machine(found)
    try:
        with closing(Database.open_read_only(home)) as database:
            return database.read(lambda connection: _examine_database(connection, found))
    except StoreError as error:
        _explain_refusal(found, str(error))
        return found


def _explain_refusal(found: Diagnosis, reason: str) -> None:
    """A database that this version cannot open, or that SQLite cannot read."""
    if "written by an earlier seedbed" in reason:
        found.warn(reason.partition(";")[0] + ", which had no digests", found.command("upgrade"))
    elif "written by a newer seedbed" in reason:
        found.warn(reason.partition("; nothing")[0], "pip install --upgrade seedbed")
    else:
        found.error(f"{reason.partition(';')[0]}; nothing of it can be verified; put back a copy", "")


def _examine_database(connection: Connection, before: Diagnosis) -> Diagnosis:
    """The findings so far with those in the database and the files; it may be called again."""
    found = Diagnosis(before.home, dict(before.counts), list(before.findings))
    rows = IntactRows.read(connection)
    found.counts |= {"studies": len(rows.studies), "runs": len(rows.runs), "packs": len(rows.packs)}
    for fault in (*rows.faults, *sqlite_faults(connection)):
        found.error(fault)
    for orphan in rows.orphans:
        found.warn(orphan, found.repair_command)
    files = _Files(found, rows)
    for run in rows.runs.values():
        contents, faults = rows.contents(connection, run)
        for fault in faults:
            found.error(fault)
        if (saved := contents[checkpoints]) is not None:
            files.examine_run(run, saved)
    for pack, _ in rows.packs.values():
        files.examine_state(pack)
    files.examine_leftovers()
    _examine_clock(found, rows)
    _examine_space(found, files.state_bytes)
    return found


# ---- files ----


def checkpoint_fault(folder: Path, identity: CheckpointIdentity, digest: str) -> str:
    """What is wrong with a checkpoint, or nothing."""
    try:
        read_checkpoint(checkpoint_path(folder, identity), identity, digest)
    except DamagedCheckpoint as error:
        return str(error)
    return ""


def analysis_fault(path: Path, run_id: str) -> str:
    """What is wrong with an analysis of a run, or nothing."""
    try:
        step = int(path.name.removesuffix(ANALYSIS_SUFFIX))
        check_analysis(read_analysis(path), run_id, step)
    except (OSError, ValueError) as error:
        return f"the analysis of run {run_id} in {path} is damaged: {error}"
    return ""


class _Files:
    """Compares the files of a home with its rows; those of packs that are being trained are left alone."""

    def __init__(self, found: Diagnosis, rows: IntactRows) -> None:
        self._found, self._rows = found, rows
        self._folder = found.home / "checkpoints"
        self._busy = {pack for pack in rows.packs if is_locked(found.home / "locks" / f"{pack}.lock")}
        self.state_bytes = 0
        found.counts |= {"weights": 0, "analyses": 0, "states": 0}

    def examine_run(self, run: AnyRow, saved: RunRows) -> None:
        if run.pack in self._busy:
            return
        for step, digest in zip(saved.steps, saved.blobs[0] if saved.steps else (), strict=True):
            self._found.counts["weights"] += 1
            if fault := checkpoint_fault(self._folder, weights_identity(run.id, run.fingerprint, step), digest):
                self._found.error(fault)
        known = {weights_path(self._folder, run.id, step) for step in saved.steps}
        self._report_unknown(_files_in(self._folder / run.id, ".safetensors"), known, f"no row of run {run.id}")
        self._examine_analyses(run.id)

    def _examine_analyses(self, run_id: str) -> None:
        """A damaged analysis is made again from the weights, by `analyze`."""
        studies = [name for name, runs in self._rows.members.items() if run_id in runs]
        for path in _files_in(self._folder / run_id, ANALYSIS_SUFFIX):
            self._found.counts["analyses"] += 1
            if fault := analysis_fault(path, run_id):
                self._found.error(fault, self._found.command("analyze", *studies[:1]))

    def examine_state(self, pack: AnyRow) -> None:
        if pack.id in self._busy or not pack.open or pack.step is None:
            return
        self._found.counts["states"] += 1
        saved = [(pack.step, pack.digest), *([tuple(pack.previous)] if pack.previous else [])]
        identities = [state_identity(pack.id, pack.members, step) for step, _ in saved]
        faults = [
            checkpoint_fault(self._folder, one, digest) for one, (_, digest) in zip(identities, saved, strict=True)
        ]
        study = next((name for name, runs in self._rows.members.items() if {*runs} & {*pack.members}), None)
        words = () if study is None else (study,)
        if all(faults):
            advice = self._found.command("run", *words, "--restart") if words else ""
            self._found.error("; ".join(faults) + "; its runs have to be trained again", advice)
        for (step, _), fault in zip(saved, faults, strict=True):
            if fault and not all(faults):
                what = "the work since the state before it is repeated" if step == pack.step else "it is not needed"
                self._found.warn(f"{fault}; {what}", self._found.command("run", *words) if words else "")
        known = {state_path(self._folder, pack.id, step) for step, _ in saved}
        self.state_bytes += sum(path.stat().st_size for path in known if path.exists())
        self._report_unknown(_files_in(self._folder / STATES / pack.id, ".safetensors"), known, "no state of its pack")

    def examine_leftovers(self) -> None:
        """Folders of runs and packs that are not in the database, and what processes that were killed have left."""
        started = {pack for pack, (row, _) in self._rows.packs.items() if row.open and row.step is not None}
        for folder in _folders_in(self._folder / STATES):
            if folder.name not in started | self._busy:
                self._warn_of_rest(folder, "is a state of no unfinished pack")
        for folder in _folders_in(self._folder):
            if folder.name not in self._rows.runs and folder.name != STATES:
                self._warn_of_rest(folder, "has files of a run that is not in the database")
        for folder in _folders_in(self._found.home / "imports"):
            self._warn_of_rest(folder, "is left of an import that was interrupted; the next command completes it", "")
        if not self._busy:
            for path in (*self._found.home.glob("store.db.*.part"), *self._folder.rglob("*.part")):
                self._warn_of_rest(path, "is left of a write that was interrupted")

    def _report_unknown(self, paths: Iterable[Path], known: set[Path], what: str) -> None:
        for path in paths:
            if path not in known:
                self._warn_of_rest(path, f"belongs to {what}")

    def _warn_of_rest(self, path: Path, what: str, command: str | None = None) -> None:
        """Advise to delete it, unless rows are damaged: it may be all that is left of them."""
        delete = self._found.repair_command if self._found.errors else shlex.join(["rm", "-r", str(path)])
        self._found.warn(f"{path} {what}", delete if command is None else command)


def _files_in(folder: Path, suffix: str) -> list[Path]:
    return sorted(path for path in folder.glob(f"*{suffix}")) if folder.is_dir() else []


def _folders_in(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.iterdir()) if path.is_dir()) if folder.is_dir() else iter(())


# ---- the machine ----


def _examine_machine(found: Diagnosis) -> None:
    if has_wal_reset_bug(sqlite3.sqlite_version_info):
        found.warn(
            f"SQLite {sqlite3.sqlite_version} has the WAL-reset bug (fixed in 3.51.3): train from one process at a time"
        )
    with suppress(OSError):
        kind = file_system_of(found.home.resolve(), Path("/proc/self/mounts").read_text(encoding="utf-8"))
        if kind in NETWORK_FILE_SYSTEMS:
            found.warn(
                f"{found.home} is on a network file system ({kind}), whose locks SQLite cannot rely on; move it to a "
                "local disk", f"cp -a {shlex.quote(str(found.home))} /tmp/",
            )  # fmt: skip
    if not os.access(found.home, os.W_OK):
        found.warn(f"{found.home} cannot be written: what is stored can be read, but nothing can be trained", "")


def has_wal_reset_bug(version: tuple[int, ...]) -> bool:
    """Whether a version of SQLite has the WAL-reset bug.

    >>> [has_wal_reset_bug(version) for version in ((3, 40, 1), (3, 44, 6), (3, 50, 6), (3, 51, 2), (3, 51, 3))]
    [True, False, True, True, False]
    """
    has_fix = any(version[:2] == fix[:2] and version >= fix for fix in WAL_RESET_FIXES)
    return WAL_RESET_BUG[0] <= version < WAL_RESET_BUG[1] and not has_fix


def file_system_of(path: Path, mounts: str) -> str:
    """The kind of file system that holds a path, from the text of /proc/self/mounts.

    >>> file_system_of(Path("/home/ada/lab"), "/dev/sda1 / ext4 rw 0 0\\nserver:/home /home nfs4 rw 0 0")
    'nfs4'
    """
    kinds = {}
    for line in mounts.splitlines():
        _, folder, kind, *_ = line.split(" ")
        kinds[Path(folder.replace("\\040", " "))] = kind
    return next((kinds[folder] for folder in (path, *path.parents) if folder in kinds), "")


def _examine_clock(found: Diagnosis, rows: IntactRows) -> None:
    now = datetime.now(UTC)
    created = {f"study {name}": row.created for name, row in rows.studies.items()}
    created |= {f"the vocabulary of {dataset}": row.created for dataset, row in rows.vocabularies.items()}
    for what, text in created.items():
        with suppress(ValueError, TypeError):
            if datetime.fromisoformat(text) > now + MAX_CLOCK_ERROR:
                found.warn(f"{what} was stored at {text}, in the future: this clock or that one is wrong", "date")


def _examine_space(found: Diagnosis, state_bytes: int) -> None:
    free = shutil.disk_usage(found.home).free
    needed = MIN_FREE_BYTES + 2 * state_bytes
    if free < needed:
        found.warn(
            f"{format_bytes(free)} are free where {found.home} is; training takes up to {format_bytes(needed)}",
            f"df -h {shlex.quote(str(found.home))}",
        )
