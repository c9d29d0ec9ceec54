"""The model worker: turns, cancelling, dying, ending with its server; and the models that it keeps warm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from seedbed.errors import Busy, MissingData, OutOfResources, UsageError
from seedbed.web import model_client as client
from seedbed.web.model_cache import ModelCache
from seedbed.web.model_client import ModelClient
from seedbed.web.model_worker import NICENESS_INCREMENT, ModelWorker

DRAWN = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}


@pytest.fixture(scope="module")
def models(kinds) -> Iterator[ModelClient]:
    opened = ModelClient(kinds.home)
    yield opened
    opened.close()


def attend(models: ModelClient, run: str, text: str = "my lord") -> Any:
    question = models.request("attention", run=run, step="last", text=text, by="token")
    try:
        return next(question)
    finally:
        question.cancel()


def write(models: ModelClient, run: str, tokens: int) -> client.ReplyStream:
    return models.request("write", run=run, step="last", given="my lord", tokens=tokens, seed=0, **DRAWN)


def wait_until(is_so: Callable[[], bool], seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether a process is no more, or only remembered by its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# ---- turns, without a process ----


def talk(monkeypatch: pytest.MonkeyPatch, *messages: dict[str, Any]) -> tuple[ModelWorker, list[dict[str, Any]]]:
    def count(_: ModelCache, n: int) -> Iterator[int]:
        yield from range(n)

    def fail(_: ModelCache) -> Iterator[int]:
        yield 1
        raise ZeroDivisionError("by design")

    monkeypatch.setattr("seedbed.web.model_worker.REPLIES", {"count": count, "fail": fail})
    requests: SimpleQueue[dict[str, Any]] = SimpleQueue()
    for message in messages:
        requests.put(message)
    said: list[dict[str, Any]] = []
    return ModelWorker(ModelCache(Path("nowhere")), requests, said.append), said


def test_requests_take_turns_so_that_a_short_one_ends_before_a_long_one(monkeypatch):
    worker, said = talk(
        monkeypatch, {"id": 1, "ask": "count", "given": {"n": 99}}, {"id": 2, "ask": "count", "given": {"n": 1}}
    )
    for _ in range(2):
        worker.run_round()
    assert said == [{"id": 1, "value": 0}, {"id": 2, "value": 0}, {"id": 1, "value": 1}, {"id": 2, "end": True}]


def test_nothing_more_is_said_to_a_request_that_was_cancelled(monkeypatch):
    worker, said = talk(
        monkeypatch, {"id": 1, "ask": "count", "given": {"n": 9}}, {"id": 2, "ask": "count", "given": {"n": 2}},
        {"cancel": 1},
    )  # fmt: skip
    for _ in range(3):
        worker.run_round()
    assert [message["id"] for message in said] == [2, 2, 2]


def test_a_failure_ends_its_own_request_only_and_is_named(monkeypatch, capsys):
    worker, said = talk(
        monkeypatch, {"id": 1, "ask": "fail", "given": {}}, {"id": 2, "ask": "count", "given": {"n": 3}}
    )
    for _ in range(3):
        worker.run_round()
    assert [message["value"] for message in said if message["id"] == 2] == [0, 1, 2]
    (last,) = [message for message in said if "error" in message]
    assert last == {"id": 1, "error": "Exception", "message": "the model failed (ZeroDivisionError: by design)"}
    assert "ZeroDivisionError" in capsys.readouterr().err


# ---- the process ----


def test_the_server_side_knows_no_torch():
    code = "import sys, seedbed.web.app, seedbed.web.model_client; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_worker_gives_way_to_training(models, kinds):
    attend(models, kinds["english"])
    ours, theirs = (os.getpriority(os.PRIO_PROCESS, pid) for pid in (0, models.process))
    assert theirs == min(19, ours + NICENESS_INCREMENT)


def test_errors_come_back_as_what_they_are(models, kinds):
    with pytest.raises(MissingData, match="there is no run 'zzz'"):
        attend(models, "zzz")
    with pytest.raises(UsageError, match=r"U\+00DF, column 4.*not among the .* characters"):
        attend(models, kinds["english"], "my ß")


def test_a_short_question_is_answered_while_a_long_text_is_written(models, kinds):
    long = write(models, kinds["english"], 2000)
    next(long), next(long)
    attend(models, kinds["english"])
    assert next(long)["token"] >= 0  # it had not come to its end meanwhile
    long.cancel()
    assert len(list(long)) < 1900  # what had come already


def test_cancelling_frees_who_waits_for_a_value_and_makes_room(models, kinds, monkeypatch):
    monkeypatch.setattr(client, "MOST_OPEN", 2)
    first, second = (write(models, kinds["english"], 2000) for _ in range(2))
    with pytest.raises(Busy, match="answering 2 questions already"):
        write(models, kinds["english"], 1)
    first.cancel()
    second.cancel()
    assert len(list(write(models, kinds["english"], 3))) == 4  # the prompt and three tokens


def test_a_worker_that_dies_is_told_to_all_who_wait_and_started_anew(models, kinds):
    before = models.process
    waiting = write(models, kinds["english"], 2000)
    next(waiting)
    os.kill(before, signal.SIGKILL)
    with pytest.raises(OutOfResources, match=r"has ended \(exit code -9\).*ask again"):
        list(waiting)
    wait_until(lambda: gone(before))
    assert attend(models, kinds["english"])["labels"] == list("my·lord")
    assert models.process not in (None, before)


def test_a_worker_that_says_nothing_is_ended(kinds):
    hasty = ModelClient(kinds.home, timeout=0.05)  # less than it takes to start
    with pytest.raises(OutOfResources, match="said nothing for 0 s and was stopped"):
        attend(hasty, kinds["english"])
    wait_until(lambda: hasty.worker_pid is None)


def test_the_worker_ends_when_its_server_is_killed(kinds):
    code = (
        "import sys, time; from pathlib import Path; from seedbed.web.model_client import Models\n"
        "models = Models(Path(sys.argv[1])); models.wake(); print(models.process, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(kinds.home)], stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    ) as server:
        worker = int(server.stdout.readline())
        assert not gone(worker)
        server.kill()
    wait_until(lambda: gone(worker))


def test_the_worker_asks_no_other_machine_for_a_corpus_that_is_missing(models):
    environment = Path(f"/proc/{models.process}/environ").read_bytes().split(b"\0")
    assert b"SEEDBED_OFFLINE=1" in environment
    assert b"OMP_NUM_THREADS=1" in environment


# ---- warm models ----


def test_a_model_is_loaded_once_and_the_oldest_goes_when_there_is_no_room(kinds):
    warm = ModelCache(kinds.home)
    first = warm.get_model(kinds["english"], "last")
    assert warm.get_model(kinds["english"][:6], first.step) is first
    assert warm.get_model(kinds["english"], 20) is not first
    small = ModelCache(kinds.home, max_bytes=1)
    small.get_model(kinds["english"], "last")
    small.get_model(kinds["hebrew"], "last")
    assert len(small) == 1
