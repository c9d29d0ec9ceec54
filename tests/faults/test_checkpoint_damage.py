"""Every bit that flips in a checkpoint or an analysis is detected, whichever file it is in."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from seedbed.errors import DamagedCheckpoint
from seedbed.store import checkpoints, open_store
from seedbed.store.checkpoints import (
    CheckpointIdentity,
    digest_bytes,
    read_checkpoint,
    state_identity,
    weights_identity,
)
from seedbed.store.sql_store import SQLStore
from tests.store.test_archive import analysis
from tests.store.toy import make_plan, make_run

KEPT = Path(__file__).parent.parent / "store" / "kept" / "schema5"
N_LONG = 10_000


def stored_files(home: Path) -> list[tuple[Path, CheckpointIdentity, str]]:
    """All checkpoints of a home with what they should hold, and their digests."""
    folder = home / "checkpoints"
    with open_store(home, read_only=True) as store:
        assert isinstance(store, SQLStore)
        found = []
        for run in store.runs():
            fingerprint = store._run_row(run.id).fingerprint
            for one in store.checkpoints(run.id):
                path = checkpoints.weights_path(folder, run.id, one.step)
                found.append((path, weights_identity(run.id, fingerprint, one.step), one.digest))
        for pack in store.study_packs("unfinished"):
            row = store._pack_row(pack.id)
            for step, digest in ((row.step, row.digest), tuple(row.previous)):
                path = checkpoints.state_path(folder, pack.id, step)
                found.append((path, state_identity(pack.id, row.members, step), digest))
    return found


def n_undetected(home: Path, n_flips: int, compare_digests: bool = True) -> int:
    files, generator = stored_files(home), random.Random(3)
    assert len(files) == 11
    undetected = 0
    for _ in range(n_flips):
        path, identity, digest = generator.choice(files)
        whole = path.read_bytes()
        bit = generator.randrange(8 * len(whole))
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            read_checkpoint(path, identity, digest if compare_digests else digest_bytes(bytes(flipped)))
        except DamagedCheckpoint:
            pass
        else:
            undetected += 1
        path.write_bytes(whole)
    return undetected


@pytest.mark.slow
def test_ten_thousand_flipped_bits_of_checkpoints_are_detected(tmp_path: Path) -> None:
    shutil.copytree(KEPT, tmp_path / "home")
    assert n_undetected(tmp_path / "home", N_LONG) == 0


def test_control_without_its_digest_a_damaged_checkpoint_is_read(tmp_path: Path) -> None:
    shutil.copytree(KEPT, tmp_path / "home")
    assert n_undetected(tmp_path / "home", 50) == 0
    assert n_undetected(tmp_path / "home", 50, compare_digests=False) > 25


def n_served(home: Path, has_digest: bool) -> int:
    """Of all single flips in the file of an analysis, how many give other numbers or texts."""
    run, n = make_run(0).id, 0
    with open_store(home) as store:
        store.register(make_plan(1))
        store.save_analysis(run, 4, analysis(run))
        [path] = (home / "checkpoints" / run).iterdir()
        if not has_digest:
            path.write_text(json.dumps(analysis(run)))
        assert store.load_analyses(run) == [analysis(run)]
        whole = path.read_bytes()
        for bit in range(8 * len(whole)):
            flipped = bytearray(whole)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            n += store.load_analyses(run) not in ([], [analysis(run)])
    return n


def test_no_flipped_bit_of_an_analysis_is_served(tmp_path: Path) -> None:
    assert n_served(tmp_path, has_digest=True) == 0


def test_control_without_its_digest_a_damaged_analysis_is_served(tmp_path: Path) -> None:
    assert n_served(tmp_path, has_digest=False) > 100
