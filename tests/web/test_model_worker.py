"""The model worker: round-robin, cancellation, crashes, exit with its server; and the model cache."""

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
from seedbed.web.model_client import ModelClient
from seedbed.web.model_worker import NICENESS_INCREMENT, ModelCache, ModelWorker

SAMPLING = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}


@pytest.fixture(scope="module")
def models(model_zoo) -> Iterator[ModelClient]:
    opened = ModelClient(model_zoo.home)
    yield opened
    opened.close()


def attend(models: ModelClient, run: str, text: str = "my lord") -> Any:
    replies = models.request("attention", run=run, step="last", text=text, by="token")
    try:
        return next(replies)
    finally:
        replies.cancel()


def write(models: ModelClient, run: str, tokens: int) -> client.ReplyStream:
    return models.request("write", run=run, step="last", given="my lord", tokens=tokens, seed=0, **SAMPLING)


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.01)


def has_exited(pid: int) -> bool:
    """Whether a process has exited, possibly as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# ---- scheduling, without a process ----


def make_worker(monkeypatch: pytest.MonkeyPatch, *messages: dict[str, Any]) -> tuple[ModelWorker, list[dict[str, Any]]]:
    def count(_: ModelCache, n: int) -> Iterator[int]:
        yield from range(n)

    def fail(_: ModelCache) -> Iterator[int]:
        yield 1
        raise ZeroDivisionError("by design")

    monkeypatch.setattr("seedbed.web.model_worker.HANDLERS", {"count": count, "fail": fail})
    requests: SimpleQueue[dict[str, Any]] = SimpleQueue()
    for message in messages:
        requests.put(message)
    replies: list[dict[str, Any]] = []
    return ModelWorker(ModelCache(Path("nowhere")), requests, replies.append), replies


def test_requests_are_served_round_robin_so_a_short_one_ends_first(monkeypatch):
    worker, replies = make_worker(
        monkeypatch,
        {"id": 1, "handler": "count", "arguments": {"n": 99}},
        {"id": 2, "handler": "count", "arguments": {"n": 1}},
    )
    for _ in range(2):
        worker.run_round()
    assert replies == [{"id": 1, "value": 0}, {"id": 2, "value": 0}, {"id": 1, "value": 1}, {"id": 2, "end": True}]


def test_a_cancelled_request_gets_no_more_replies(monkeypatch):
    worker, replies = make_worker(
        monkeypatch,
        {"id": 1, "handler": "count", "arguments": {"n": 9}},
        {"id": 2, "handler": "count", "arguments": {"n": 2}},
        {"cancel": 1},
    )
    for _ in range(3):
        worker.run_round()
    assert [message["id"] for message in replies] == [2, 2, 2]


def test_a_failure_ends_only_its_own_request(monkeypatch, capsys):
    worker, replies = make_worker(
        monkeypatch, {"id": 1, "handler": "fail", "arguments": {}}, {"id": 2, "handler": "count", "arguments": {"n": 3}}
    )
    for _ in range(3):
        worker.run_round()
    assert [message["value"] for message in replies if message["id"] == 2] == [0, 1, 2]
    (last,) = [message for message in replies if "error" in message]
    assert last == {"id": 1, "error": "Exception", "message": "the model failed (ZeroDivisionError: by design)"}
    assert "ZeroDivisionError" in capsys.readouterr().err


# ---- the process ----


def test_the_server_does_not_import_torch():
    code = "import sys, seedbed.web.server, seedbed.web.model_client; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_worker_runs_at_low_priority(models, model_zoo):
    attend(models, model_zoo["english"])
    ours, theirs = (os.getpriority(os.PRIO_PROCESS, pid) for pid in (0, models.worker_pid))
    assert theirs == min(19, ours + NICENESS_INCREMENT)


def test_errors_keep_their_type(models, model_zoo):
    with pytest.raises(MissingData, match="there is no run 'zzz'"):
        attend(models, "zzz")
    with pytest.raises(UsageError, match=r"U\+00DF, column 4.*not among the .* characters"):
        attend(models, model_zoo["english"], "my ß")


def test_a_short_request_is_answered_during_a_long_generation(models, model_zoo):
    long = write(models, model_zoo["english"], 2000)
    next(long), next(long)
    attend(models, model_zoo["english"])
    assert next(long)["token"] >= 0  # it had not finished meanwhile
    long.cancel()
    assert len(list(long)) < 1900  # those already received


def test_cancelling_makes_room_for_another_request(models, model_zoo, monkeypatch):
    monkeypatch.setattr(client, "MAX_PENDING_REQUESTS", 2)
    first, second = (write(models, model_zoo["english"], 2000) for _ in range(2))
    with pytest.raises(Busy, match="2 model requests are already pending"):
        write(models, model_zoo["english"], 1)
    first.cancel()
    second.cancel()
    assert len(list(write(models, model_zoo["english"], 3))) == 4  # the prompt and three tokens


def test_a_crashed_worker_fails_its_requests_and_is_restarted(models, model_zoo):
    before = models.worker_pid
    waiting = write(models, model_zoo["english"], 2000)
    next(waiting)
    os.kill(before, signal.SIGKILL)
    with pytest.raises(OutOfResources, match=r"exited \(exit code -9\).*try again"):
        list(waiting)
    wait_until(lambda: has_exited(before))
    assert attend(models, model_zoo["english"])["labels"] == list("my·lord")
    assert models.worker_pid not in (None, before)


def test_a_worker_that_does_not_reply_is_killed(model_zoo):
    hasty = ModelClient(model_zoo.home, timeout=0.05)  # less than it takes to start
    with pytest.raises(OutOfResources, match="did not reply for 0 s and was stopped"):
        attend(hasty, model_zoo["english"])
    wait_until(lambda: hasty.worker_pid is None)


def test_the_worker_exits_when_its_server_is_killed(model_zoo):
    code = (
        "import sys, time; from pathlib import Path; from seedbed.web.model_client import ModelClient\n"
        "models = ModelClient(Path(sys.argv[1])); models.start_worker()\n"
        "print(models.worker_pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(model_zoo.home)], stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    ) as server:
        worker = int(server.stdout.readline())
        assert not has_exited(worker)
        server.kill()
    wait_until(lambda: has_exited(worker))


def test_the_worker_downloads_no_corpora(models):
    environment = Path(f"/proc/{models.worker_pid}/environ").read_bytes().split(b"\0")
    assert b"SEEDBED_OFFLINE=1" in environment
    assert b"OMP_NUM_THREADS=1" in environment


# ---- model cache ----


def test_a_model_is_loaded_once_and_the_least_recently_used_is_evicted(model_zoo):
    cache = ModelCache(model_zoo.home)
    first = cache.get_model(model_zoo["english"], "last")
    assert cache.get_model(model_zoo["english"][:6], first.step) is first
    assert cache.get_model(model_zoo["english"], 20) is not first
    small = ModelCache(model_zoo.home, max_bytes=1)
    small.get_model(model_zoo["english"], "last")
    small.get_model(model_zoo["hebrew"], "last")
    assert len(small) == 1
