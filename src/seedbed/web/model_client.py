"""Asks the model worker, from any thread; no torch on this side.

    question = Models(home).question("write", run="3f2a", given="my lord", …)
    for value in question: …              # `question.cancel()`, from wherever, ends the loop

The worker starts when it is first needed, again after it has died, and ends with `close` or with this process. A worker
that says nothing for SILENCE seconds is ended, so that no question hangs for ever.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, Self, TypeAlias

from seedbed.errors import Busy, DamagedCheckpoint, MissingData, OutOfResources, SeedbedError, StoreError, UsageError

Message: TypeAlias = dict[str, Any]
REPLY_TIMEOUT_SECONDS: Final = 60.0  # seconds
MAX_PENDING_REQUESTS: Final = 16  # questions at once
MAX_GENERATED_TOKENS: Final = 2_000  # that are written in one answer
ERROR_TYPES: Final = {
    kind.__name__: kind for kind in (UsageError, MissingData, StoreError, DamagedCheckpoint, OutOfResources, Busy)
}
# One thread for each library that would otherwise start one a core; and a corpus that is not here stays missing.
WORKER_ENVIRONMENT: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "SEEDBED_OFFLINE"), "1"
)


class ModelClient:
    """The models of one home, wherever they are."""

    def __init__(self, home: Path, timeout: float = REPLY_TIMEOUT_SECONDS) -> None:
        self.home, self.timeout = home, timeout
        self._lock, self._last_id, self._closed = Lock(), 0, False
        self._worker: _WorkerProcess | None = None

    def request(self, what: str, **given: Any) -> ReplyStream:
        """A question that is on its way."""
        with self._lock:
            worker = self._ensure_worker()
            if worker.n_pending >= MAX_PENDING_REQUESTS:
                raise Busy(f"the models are answering {MAX_PENDING_REQUESTS} questions already; ask again in a moment")
            self._last_id += 1
            replies = worker.send(self._last_id, {"ask": what, "given": given})
            return ReplyStream(worker, self._last_id, replies, self.timeout)

    def start_worker(self) -> None:
        """Starts the worker, so that the first question finds it ready."""
        with self._lock:
            self._ensure_worker()

    def close(self) -> None:
        """Ends the worker."""
        with self._lock:
            self._closed = True
            if self._worker is not None:
                self._worker.kill()

    @property
    def worker_pid(self) -> int | None:
        """The worker's process id, while there is one."""
        return self._worker.pid if self._worker is not None and self._worker.alive else None

    def _ensure_worker(self) -> _WorkerProcess:
        if self._closed:
            raise Busy("the page is closing and asks no model any more")
        if self._worker is None or not self._worker.alive:
            self._worker = _WorkerProcess(self.home)
        return self._worker


class ReplyStream:
    """The values of one question as they come; the errors are those that the worker met."""

    def __init__(self, worker: _WorkerProcess, request_id: int, replies: SimpleQueue[Message], timeout: float) -> None:
        self._worker, self._request_id, self._replies, self._timeout = worker, request_id, replies, timeout

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        reply = self._next_message()
        if "end" in reply:
            raise StopIteration
        if "error" in reply:
            raise ERROR_TYPES.get(reply["error"], SeedbedError)(reply["message"])
        return reply["value"]

    def cancel(self) -> None:
        """Nobody wants to know any more; who waits for a value gets none."""
        self._worker.cancel(self._request_id)
        self._replies.put({"end": True})

    def _next_message(self) -> Message:
        try:
            return self._replies.get(timeout=self._timeout)
        except Empty:
            self._worker.kill()
            raise OutOfResources(
                f"the model said nothing for {self._timeout:.0f} s and was stopped; give it a shorter text"
            ) from None


class _WorkerProcess:
    """One worker process and the questions that it has not answered."""

    def __init__(self, home: Path) -> None:
        command = [sys.executable, "-m", "seedbed.web.model_worker", str(home)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | WORKER_ENVIRONMENT, text=True,
            encoding="utf-8", start_new_session=True,
        )  # fmt: skip
        self._lock, self._pending = Lock(), dict[int, SimpleQueue[Message]]()
        self._exit_error: Message | None = None  # what is said to all once it has ended
        Thread(target=self._read_replies, daemon=True, name="seedbed-models").start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def n_pending(self) -> int:
        return len(self._pending)

    def send(self, number: int, message: Message) -> SimpleQueue[Message]:
        replies: SimpleQueue[Message] = SimpleQueue()
        with self._lock:
            if self._exit_error is not None:
                replies.put(self._exit_error)
            else:
                self._pending[number] = replies
                self._write({"id": number} | message)
        return replies

    def cancel(self, number: int) -> None:
        """No more replies to this question are wanted."""
        with self._lock:
            if self._pending.pop(number, None) is not None:
                self._write({"cancel": number})

    def kill(self) -> None:
        self._process.kill()

    def _write(self, message: Message) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it has died; its end is heard by the thread that listens

    def _read_replies(self) -> None:
        """Hands each reply to who waits for it; at the end tells all of them that there is none."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            reply = json.loads(line)
            with self._lock:
                waiting = self._pending.get(reply["id"])
                if waiting is not None and "value" not in reply:
                    del self._pending[reply["id"]]
            if waiting is not None:
                waiting.put(reply)
        self._fail_pending()

    def _fail_pending(self) -> None:
        code = self._process.wait()
        said = f"the model worker has ended (exit code {code}), perhaps for want of memory; ask again to start it anew"
        with self._lock:
            self._exit_error = {"error": "OutOfResources", "message": said}
            for waiting in self._pending.values():
                waiting.put(self._exit_error)
            self._pending.clear()
