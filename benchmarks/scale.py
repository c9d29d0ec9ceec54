"""How far one PostgreSQL server and one coordinator reach: measured costs, and a simulation that is fed with them.

    python benchmarks/scale.py measure --out costs.json
    python benchmarks/scale.py saturate
    python benchmarks/scale.py simulate --costs costs.json
    python benchmarks/scale.py check --costs costs.json --runs 10000

The server is started by this program, flushes its commits to the disk, and is gone afterwards. What was found stands in
docs/scale.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

from cluster_simulation import Cost, Costs, Result, Scenario, capacities, demand, saturates_first, simulate

GPUS = (1, 10, 100, 1000)
RUNS = (100_000, 1_000_000)
# report D's model in packs of 128: 45 µs per run and step on one H200, 15,000 steps, an evaluation every 100
STUDY = Scenario(
    n_runs=RUNS[0], n_gpus=1, runs_per_pack=128, pack_seconds=86.4, n_evaluations=150, n_saves=3, start_seconds=5.0,
    database_cores=8, round_trip_seconds=0.0002, gpu_failure_seconds=5 * 86_400.0,
)  # fmt: skip


def read_costs(path: Path) -> Costs:
    stored = json.loads(path.read_text())["costs"]["postgresql"]
    return Costs(**{name: Cost(**cost) for name, cost in stored.items()})


def print_table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Prints a table as Markdown."""
    names = list(header)
    for row in (names, ["---"] * len(names), *rows):
        print("| " + " | ".join(row) + " |", flush=True)


def measure(arguments: argparse.Namespace) -> None:
    from store_costs import Meter, fit_costs, measure_store, start_server

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "sqlite"
        found["sqlite"] = measure_store(Meter(), f"sqlite:{home}", home, arguments.stored)
    with start_server() as (server, pid), tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "lab"
        found["postgresql"] = measure_store(Meter(pid), server.new_store(home), home, arguments.stored)
    for store, measured in found.items():
        print(f"\n{store}, ms of processor time:\n")
        rows = (
            [name, f"{1e3 * client:.3f}", f"{1e3 * server:.3f}", f"{trips:.1f}", f"{1e3 * wall:.3f}"]
            for name, (wall, client, server, trips) in measured.items()
        )
        print_table(["", "client", "server", "statements", "on the clock"], rows)
    costs = {
        store: {name: asdict(cost) for name, cost in vars(fit_costs(each)).items()} for store, each in found.items()
    }
    machine = {"system": platform.platform(), "cores": os.cpu_count(), "load": os.getloadavg()}
    if arguments.out:
        arguments.out.write_text(json.dumps({"machine": machine, "measured": found, "costs": costs}, indent=1))
    print(f"\n{machine}")


def saturate(arguments: argparse.Namespace) -> None:
    from store_costs import measure_saturation, start_server

    rows = []
    with start_server() as (server, pid), tempfile.TemporaryDirectory() as folder:
        for n_writers in (1, 2, 4, 8, 16):
            address = server.new_store(Path(folder) / f"lab-{n_writers}")
            found = measure_saturation(address, pid, n_writers, arguments.size, arguments.seconds)
            rows.append([
                str(n_writers), f"{found.commits_per_second:.0f}", f"{1e3 * found.client:.2f}",
                f"{1e3 * found.server:.2f}", f"{found.server_share:.2f}",
            ])  # fmt: skip
            print(found, flush=True)
    print_table(["writers", "commits a second", "client, ms each", "server, ms each", "processors of the server"], rows)


def make_variants(costs: Costs) -> dict[str, tuple[Scenario, Costs]]:
    """What is simulated: who writes, whether the end of a pack depends on what else is stored, and what goes wrong."""
    cheap = replace(costs, finish_stored_run=Cost(), finish_open_pack=Cost())
    workers = replace(STUDY, workers_write=True)
    return {
        "one coordinator writes": (STUDY, costs),
        "workers write": (workers, costs),
        "workers write, the end of a pack costs the same whatever else is stored": (workers, cheap),
        "the same, each GPU lost every four hours": (replace(workers, gpu_failure_seconds=4 * 3600.0), cheap),
        "the same as the third, packs of a tenth of the time": (replace(workers, pack_seconds=8.64), cheap),
    }


def simulate_all(arguments: argparse.Namespace) -> None:
    names = ["runs", "GPUs", "hours", "work / GPUs", "start, s", "GPUs busy", "coordinator", "database", "store lock",
             "GPU hours lost", "failures", "longest commit, s", "longest renewal, s", "saturates first"]  # fmt: skip
    with ProcessPoolExecutor() as pool:
        for name, (scenario, costs) in make_variants(read_costs(arguments.costs)).items():
            scenarios = [replace(scenario, n_runs=n_runs, n_gpus=n_gpus) for n_runs in RUNS for n_gpus in GPUS]
            found = pool.map(simulate, scenarios, [costs] * len(scenarios))
            print(f"\n{name}\n", flush=True)
            print_table(names, map(describe_result, scenarios, found, [costs] * len(scenarios)))
            for n_runs in RUNS:
                one = replace(scenario, n_runs=n_runs, n_gpus=1000)
                shares = ", ".join(f"{key} {share:.3g}" for key, share in demand(one, costs).items())
                print(f"\n{n_runs:,} runs: most GPUs {capacities(one, costs)}; demand of 1,000: {shares}", flush=True)


def describe_result(scenario: Scenario, found: Result, costs: Costs) -> list[str]:
    return [
        f"{scenario.n_runs:,}", f"{scenario.n_gpus:,}", f"{found.makespan / 3600:.2f}",
        f"{found.ideal_makespan / 3600:.2f}", f"{found.startup:.0f}", f"{found.gpus:.0%}", f"{found.coordinator:.0%}",
        f"{found.database:.1%}", f"{found.store_lock:.0%}", f"{found.lost_work / 3600:.2f}", f"{found.n_failures}",
        f"{found.longest_commit:.1f}", f"{found.renewal:.1f}", saturates_first(scenario, costs),
    ]  # fmt: skip


def check(arguments: argparse.Namespace) -> None:
    """Trains tiny runs into a PostgreSQL store, and compares with what the simulation says of the same study."""
    from store_costs import start_server
    from whole_studies import N_WORKERS, calibrate, train

    costs = read_costs(arguments.costs)
    with start_server() as (server, pid), tempfile.TemporaryDirectory() as folder:
        os.environ["SEEDBED_RATES"] = str(Path(folder) / "rates.json")
        found = calibrate(Path(folder))
        print(found, flush=True)
        measured = train(arguments.runs, Path(folder) / "lab", server.new_store(Path(folder) / "lab"), pid)
    costs = replace(costs, read_run=costs.read_run + Cost(found.plan_run))
    scenario = Scenario(
        n_runs=arguments.runs, n_gpus=N_WORKERS, runs_per_pack=found.runs_per_pack, pack_seconds=found.pack_seconds,
        n_evaluations=found.n_evaluations, n_saves=found.n_saves, database_cores=1,
    )  # fmt: skip
    predicted = simulate(scenario, costs)
    print(predicted)
    workers = N_WORKERS * found.start_seconds + scenario.n_packs * found.pack_seconds
    rows = [
        ["workers", workers, measured.workers],
        ["coordinator", predicted.client_seconds, measured.coordinator],
        ["database server", predicted.server_seconds, measured.server],
    ]
    totals = [sum(row[i] for row in rows) for i in (1, 2)]
    rows.append(["all", *totals])
    print_table(
        ["processor seconds", "predicted", "measured", "predicted / measured"],
        ([name, f"{one:.1f}", f"{two:.1f}", f"{one / two:.2f}"] for name, one, two in rows),
    )
    rates = [arguments.runs / total for total in totals]
    print(f"{arguments.runs:,} runs, {measured.n_finished:,} finished: {rates[1]:.1f} runs a processor second, "
          f"predicted {rates[0]:.1f} ({rates[0] / rates[1] - 1:+.0%}); {measured.wall:.0f} s on the clock at a load of "
          f"{os.getloadavg()[0]:.0f}, predicted on processors of their own "
          f"{predicted.makespan + found.start_seconds:.0f}")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    one = verbs.add_parser("measure", help="what each kind of transaction costs")
    one.add_argument("--out", type=Path, help="where the costs are written as JSON")
    one.add_argument("--stored", type=int, default=100_000, help="runs that the store grows to")
    one.set_defaults(call=measure)
    one = verbs.add_parser("saturate", help="1 to 16 writers at once")
    one.add_argument("--size", type=int, default=100, help="runs of a pack")
    one.add_argument("--seconds", type=float, default=5.0)
    one.set_defaults(call=saturate)
    one = verbs.add_parser("simulate", help="10⁵ and 10⁶ runs on 1 to 1,000 GPUs")
    one.add_argument("--costs", type=Path, required=True)
    one.set_defaults(call=simulate_all)
    one = verbs.add_parser("check", help="tiny runs into a PostgreSQL store, beside what the simulation says of them")
    one.add_argument("--costs", type=Path, required=True)
    one.add_argument("--runs", type=int, default=10_000)
    one.set_defaults(call=check)
    arguments = parser.parse_args()
    arguments.call(arguments)
