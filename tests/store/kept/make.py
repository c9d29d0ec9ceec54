"""Writes the store of this version that later versions must be able to read: `python tests/store/kept/make.py FOLDER`.

It holds a finished study, an unfinished pack that was interrupted after a checkpoint, and a text study that names many
settings. Run it once when the schema changes, and keep the folder as `tests/store/kept/schema<N>`.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from seedbed.store.sqlite import SQLiteStore
from seedbed.store.upgrade import write_digests

TINY = ("task.p=5", "model.dim=8", "model.heads=2", "model.layers=1", "train.batch_size=8", "train.eval_first=2")
STUDIES = {
    "finished": ("[grid]\ntrain.lr = [1e-3, 1e-2]\n", (*TINY, "seeds=2", "train.steps=20", "train.eval_every=10")),
    "unfinished": ("", (*TINY, "seeds=2", "train.steps=3001", "train.eval_every=500", "train.save_every=500")),
    "text": (
        '[base]\ntask = {{ kind = "text", {tokenizer} = "bytes", length = 16 }}\n'
        "train = {{ steps = 4, {final} = false, {exclusive} = true }}\n"
        '[[figures]]\nkind = "{sweep}"\nx = "task.{tokenizer}"\n',
        ("model.dim=8", "model.heads=2", "model.layers=1", "train.batch_size=4", "train.eval_batches=1", "seeds=1"),
    ),
}
WORDS = {"tokenizer": "tokenizer", "final": "final_evaluation", "exclusive": "exclusive", "sweep": "sweep"}
WORDS_OF_SCHEMA_3 = {"tokenizer": "tokens", "final": "closing_record", "exclusive": "alone", "sweep": "against"}


def make_store(home: Path, words: dict[str, str]) -> None:
    home.mkdir(parents=True)
    for name, (text, overrides) in STUDIES.items():
        study = home / f"{name}.toml"
        study.write_text(text.format(**words) if name == "text" else text, encoding="utf-8")
        command = [sys.executable, "-m", "seedbed", "run", str(study), *overrides, "--home", str(home)]
        process = subprocess.Popen([*command, "--device", "cpu", "--quiet"], env=os.environ | {"OMP_NUM_THREADS": "1"})
        if name == "unfinished":
            while not _has_checkpoint(home):
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
        process.wait()
        study.unlink()
    with SQLiteStore.open(home) as store, store._database.transaction() as transaction:
        transaction.exec_driver_sql("UPDATE packs SET environment = '[]'")  # says which machine wrote it
        write_digests(transaction)
    with closing(sqlite3.connect(home / "store.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # everything into the one file that is kept


def _has_checkpoint(home: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"file:{home / 'store.db'}?mode=ro", uri=True)) as connection:
            return bool(connection.execute("SELECT 1 FROM packs WHERE open AND step >= 500").fetchall())
    except sqlite3.OperationalError:
        return False


if __name__ == "__main__":
    make_store(Path(sys.argv[1]), WORDS_OF_SCHEMA_3 if "--schema-3" in sys.argv else WORDS)
