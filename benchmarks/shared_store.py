"""A store on PostgreSQL under several writers and commands at once.

    python benchmarks/shared_store.py --writers 16 --transactions 1000 --trials 20

Each writer is a process with a study and a pack of its own; of its transactions 19 in 20 record evaluations, and one
changes a note, which concerns the whole store. Then two commands train one study at once, in each trial in another
database. A server is started for both, with every commit flushed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from sqlalchemy.exc import DBAPIError
from tests.postgres_server import PostgresServer, start_postgres
from tests.store.test_postgres import check_coordinators
from tests.store.toy import claim, make_evaluation, make_plan, make_run

from seedbed.errors import SeedbedError
from seedbed.store import open_store, postgres_database


def write(address: str, number: int, n_transactions: int) -> tuple[list[float], Counter[str], list[str]]:
    """The seconds of each transaction, what was repeated by its code, and what a user would have seen."""
    repeated, errors, seconds = Counter[str](), list[str](), list[float]()
    is_passing = postgres_database.is_passing

    def count(error: DBAPIError) -> bool:
        repeated[str(getattr(error.orig, "sqlstate", None))] += 1
        return is_passing(error)

    postgres_database.is_passing = count
    run = replace(make_run(0), id=f"{number:04x}")
    with open_store(address) as store:
        store.register(replace(make_plan(0, f"study {number}"), runs=(run,)))
        [pack] = claim(store, [run])
        with store.lock(pack):
            for step in range(n_transactions):
                start = time.perf_counter()
                try:
                    if step % 20 == 19:
                        store.set_note(run.id, f"at step {step}")
                    else:
                        store.record(pack, [make_evaluation(step, [0], [step + number / 100])])
                except SeedbedError as error:
                    errors.append(str(error))
                seconds.append(time.perf_counter() - start)
    return seconds, repeated, errors


def check_writers(server: PostgresServer, folder: Path, n_writers: int, n_transactions: int) -> None:
    server.execute("CREATE DATABASE writers")
    address = f"{server.address('writers')}#{folder}"
    start = time.perf_counter()
    with ProcessPoolExecutor(n_writers, get_context("spawn")) as pool:
        done = list(pool.map(write, [address] * n_writers, range(n_writers), [n_transactions] * n_writers))
    wall = time.perf_counter() - start
    expected, lost = [step for step in range(n_transactions) if step % 20 != 19], 0
    with open_store(address, read_only=True) as store:
        for number in range(n_writers):
            curve = store.curves([f"{number:04x}"])[f"{number:04x}"]["val/loss"]
            wanted = {step: step + number / 100 for step in expected}
            lost += len(wanted.items() - dict(zip(curve.steps.tolist(), curve.values.tolist(), strict=True)).items())
    seconds = np.concatenate([each for each, _, _ in done])
    repeated = sum((each for _, each, _ in done), Counter[str]())
    errors = [error for _, _, each in done for error in each]
    print(
        f"{n_writers} writers x {n_transactions} transactions in {wall:.0f} s ({len(seconds) / wall:.0f} a second): "
        f"{lost} lost, {len(errors)} errors {errors[:1]}, repeated by code: {dict(repeated)}; a transaction took "
        f"{np.median(seconds) * 1e3:.1f} ms (median), {np.quantile(seconds, 0.99) * 1e3:.0f} ms (99 %)",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--transactions", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=20, help="of two commands on one study")
    arguments = parser.parse_args()
    with start_postgres("max_connections=100") as server, tempfile.TemporaryDirectory() as name:
        if arguments.writers:
            check_writers(server, Path(name), arguments.writers, arguments.transactions)
        if arguments.trials:
            shares = check_coordinators(server, Path(name), arguments.trials)
            print(f"{len(shares)} trials of two commands on one study: each run recorded once; packs of each: {shares}")
