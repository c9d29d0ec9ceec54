"""Every bit that flips in a checkpoint of a trained home is detected, whichever file it is in."""

from __future__ import annotations

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
