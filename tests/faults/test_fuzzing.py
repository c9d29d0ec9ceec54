"""Fuzzing: mutated study files, tables and corpora are used or refused in a sentence, in bounded time and memory.

A quick share runs always; `make faults` runs 100,000 study files and 10,000 tables and corpora. A failure names the
number of its case: `fuzz_study(number, folder)` repeats it.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest

from seedbed.errors import SeedbedError
from seedbed.settings import InvalidSettings, Settings
from seedbed.study.plan import plan_named
from tests.study.test_fuzz import FRAGMENTS, STUDY_TEXTS

MAX_SECONDS = 2.0  # of processor time
MAX_BYTES = 500 * 2**20  # beyond what the process had before
CASES_PER_PROCESS = 500  # each starts without the caches of the one before
Case: TypeAlias = Callable[[int, Path], None]  # raises SeedbedError if it refuses the file of this number

TABLES = {
    ".csv": 'text,label\n"a good, long day",good\nbad news,bad\n"she said ""no""",bad\nfine weather,good\n' * 2,
    ".tsv": "good\ta good long day\nbad\tbad news today\nbad\tthe rain came\ngood\tfine weather\n" * 2,
    ".jsonl": '{"text": "a good day", "label": "good"}\n{"text": "bad n\\u00e9ws", "label": 1, "x": [null]}\n' * 3,
}  # fmt: skip
CORPUS = (
    "The cat sat on the mat. \u05d4\u05d7\u05ea\u05d5\u05dc \U0001f408: “no”!\n\nA second\tparagraph, 12.5 %.\r\n" * 4
)
BYTES = [
    b"", b"\x00", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"\r", b"\n", b"\n\n", b"\t", b",",
    b'"', b"'", b"\\", b"\\ud800", b"\\u0000", b"{", b"[" * 3000, b"]", b"}", b":", b"null", b"NaN", b"1e999", b" ",
    b"9" * 5000, b"-", b"label", b"text", b"\xe2\x80\xae", b"\xe2\x80\xa8", b"\x1b[2J", b"=1+1", b"a" * 20_000, b"1.0",
]  # fmt: skip


@dataclass
class Report:
    """What became of some cases."""

    n_used: int = 0
    n_refused: int = 0
    slowest: float = 0.0
    grown: int = 0  # bytes
    problems: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        self.n_used, self.n_refused = self.n_used + other.n_used, self.n_refused + other.n_refused
        self.slowest, self.grown = max(self.slowest, other.slowest), max(self.grown, other.grown)
        self.problems += other.problems


def fuzz_study(number: int, folder: Path) -> None:
    rng = random.Random(number)
    text = rng.choice(STUDY_TEXTS)
    for _ in range(rng.randint(1, 6)):
        start = rng.randint(0, len(text))
        end = min(len(text), start + rng.randint(0, 12))
        noise = "".join(
            chr(rng.choice((rng.randint(0, 127), rng.randint(0, 0x2FFFF)))) for _ in range(rng.randint(0, 4))
        )
        text = text[:start] + rng.choice([*FRAGMENTS, noise]) + text[end:]
    path = folder / f"{number}.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    plan_named(str(path))


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    for _ in range(rng.randint(0, 6)):
        start = rng.randint(0, len(data))
        end = min(len(data), start + rng.choice((0, 1, 3, 20, 10_000)))
        data = data[:start] + rng.choice([*BYTES, rng.randbytes(3)]) + data[end:]
    return data


def fuzz_table(number: int, folder: Path) -> None:
    rng = random.Random(number)
    suffix = rng.choice(list(TABLES))
    path = folder / f"{number}{suffix}"
    path.write_bytes(mutate_bytes(rng, TABLES[suffix].encode()))
    flat = {"task.kind": "labels", "model.kind": "encoder", "task.corpus": str(path), "train.batch_size": 2}
    flat |= rng.choice([{}, {"task.text_column": "text"}, {"task.text_column": 2, "task.label_column": 1}])
    use_corpus(flat | {"task.val_fraction": rng.choice((0.0, 0.1, 0.5, 0.99)), "task.length": rng.choice((1, 8, 32))})


def fuzz_corpus(number: int, folder: Path) -> None:
    rng = random.Random(number)
    path = folder / f"{number}.txt"
    path.write_bytes(mutate_bytes(rng, CORPUS.encode()))
    flat = {"task.kind": "text", "task.corpus": str(path), "task.length": rng.choice((1, 8, 128, 1_000_000))}
    flat |= {"task.tokenizer": rng.choice(("characters", "words", "bytes")), "train.batch_size": 2}
    flat |= {"task.split": rng.choice(("contiguous", "documents")), "task.val_fraction": rng.choice((0.0, 0.1, 0.999))}
    flat |= {"task.sampler": rng.choice(("documents", "length", "windows", "epochs"))}
    use_corpus(flat | {"task.data_fraction": rng.choice((1.0, 1e-4))})


def use_corpus(flat: dict[str, object]) -> None:
    settings = Settings.from_flat(flat)  # type: ignore[arg-type]
    settings.task.dataset_info()
    settings.task.check_data(settings)


def run_cases(case: Case, numbers: Sequence[int], folder: Path) -> Report:
    report, before = Report(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in numbers:
        start = time.process_time()
        try:
            case(number, folder)
            report.n_used += 1
        except (SeedbedError, InvalidSettings):
            report.n_refused += 1
        except Exception:
            report.problems.append(f"case {number}: {traceback.format_exc()[-600:]}")
        seconds = time.process_time() - start
        report.slowest = max(report.slowest, seconds)
        if seconds > MAX_SECONDS:
            report.problems.append(f"case {number}: {seconds:.1f} s")
        for path in folder.glob(f"{number}.*"):
            path.unlink()
    report.grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    if report.grown > MAX_BYTES:
        report.problems.append(f"cases {numbers[0]} to {numbers[-1]}: {report.grown / 2**20:.0f} MB")
    return report


CASES = [fuzz_study, fuzz_table, fuzz_corpus]


@pytest.fixture(autouse=True)
def without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDBED_OFFLINE", "1")


@pytest.mark.parametrize("case", CASES)
def test_a_mutated_file_is_used_or_refused_in_a_sentence(tmp_path: Path, case: Case) -> None:
    report = run_cases(case, range(100), tmp_path)
    assert not report.problems, report.problems[:3]
    assert report.n_used
    assert report.n_refused


def fail_like_a_bug(number: int, folder: Path) -> None:
    if number == 2:
        raise IndexError("list index out of range")


def take_long(number: int, folder: Path) -> None:
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass


def test_control_a_traceback_and_a_slow_case_are_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ["case 2" in problem for problem in run_cases(fail_like_a_bug, range(4), tmp_path).problems] == [True]
    monkeypatch.setattr("tests.faults.test_fuzzing.MAX_SECONDS", 0.01)
    assert len(run_cases(take_long, range(2), tmp_path).problems) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("case", "n"), [(fuzz_study, 100_000), (fuzz_table, 5_000), (fuzz_corpus, 5_000)])
def test_many_mutated_files_are_used_or_refused_in_a_sentence(tmp_path: Path, case: Case, n: int) -> None:
    chunks = [range(start, min(n, start + CASES_PER_PROCESS)) for start in range(0, n, CASES_PER_PROCESS)]
    total = Report()
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        for report in pool.starmap(run_cases, [(case, chunk, tmp_path) for chunk in chunks], chunksize=1):
            total.add(report)
    print(f"{case.__name__}: {n:,} files, {total.n_used:,} used, {total.n_refused:,} refused, {len(total.problems)} "
          f"problems; slowest {total.slowest:.2f} s, memory grew by at most {total.grown / 2**20:.0f} MB")  # fmt: skip
    assert not total.problems, total.problems[:10]
    assert total.n_used + total.n_refused == n
