"""Client of the model worker process, thread-safe; torch is imported only in the worker.

    replies = ModelClient(home).request("write", run="3f2a", given="my lord", …)
    for value in replies: …              # `replies.cancel()`, from any thread, ends the loop

The worker is started on first use, restarted after a crash, and ends with `close` or with this process. A worker that
does not reply for REPLY_TIMEOUT_SECONDS is killed, so that no request hangs forever.
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
REPLY_TIMEOUT_SECONDS: Final = 60.0
MAX_PENDING_REQUESTS: Final = 16
MAX_GENERATED_TOKENS: Final = 2_000  # per request
ERROR_TYPES: Final = {
    kind.__name__: kind for kind in (UsageError, MissingData, StoreError, DamagedCheckpoint, OutOfResources, Busy)
}
# One thread per numerical library instead of one per core, and no downloads of missing corpora.
WORKER_ENVIRONMENT: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "SEEDBED_OFFLINE"), "1"
)


class ModelClient:
    """Sends requests about the models of one home to its worker process."""

    def __init__(self, home: Path, timeout: float = REPLY_TIMEOUT_SECONDS) -> None:
        self.home, self.timeout = home, timeout
        self._lock, self._last_id, self._closed = Lock(), 0, False
        self._worker: _WorkerProcess | None = None

    def request(self, handler: str, **arguments: Any) -> ReplyStream:
        """Sends a request and returns its replies, which are read lazily."""
        with self._lock:
            worker = self._ensure_worker()
            if worker.n_pending >= MAX_PENDING_REQUESTS:
                raise Busy(f"{MAX_PENDING_REQUESTS} model requests are already pending; try again in a moment")
            self._last_id += 1
            replies = worker.send(self._last_id, {"handler": handler, "arguments": arguments})
            return ReplyStream(worker, self._last_id, replies, self.timeout)

    def start_worker(self) -> None:
        """Starts the worker early, so that the first request does not wait for it."""
        with self._lock:
            self._ensure_worker()

    def close(self) -> None:
        """Kills the worker and rejects further requests."""
        with self._lock:
            self._closed = True
            if self._worker is not None:
                self._worker.kill()

    @property
    def worker_pid(self) -> int | None:
        """The worker's process id; None when it is not running."""
        return self._worker.pid if self._worker is not None and self._worker.alive else None

    def _ensure_worker(self) -> _WorkerProcess:
        if self._closed:
            raise Busy("the server is shutting down")
        if self._worker is None or not self._worker.alive:
            self._worker = _WorkerProcess(self.home)
        return self._worker


class ReplyStream:
    """Iterates over the values of one request as they arrive; raises the worker's error."""

    def __init__(self, worker: _WorkerProcess, request_id: int, replies: SimpleQueue[Message], timeout: float) -> None:
        self._worker, self._request_id, self._replies, self._timeout = worker, request_id, replies, timeout

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            reply = self._replies.get(timeout=self._timeout)
        except Empty:
            self._worker.kill()
            raise OutOfResources(
                f"the model did not reply for {self._timeout:.0f} s and was stopped; try a shorter text"
            ) from None
        if "end" in reply:
            raise StopIteration
        if "error" in reply:
            raise ERROR_TYPES.get(reply["error"], SeedbedError)(reply["message"])
        return reply["value"]

    def cancel(self) -> None:
        """Cancels the request and ends the iteration, also for a thread that waits for the next value."""
        self._worker.cancel(self._request_id)
        self._replies.put({"end": True})


class _WorkerProcess:
    """A worker process and its pending requests."""

    def __init__(self, home: Path) -> None:
        command = [sys.executable, "-m", "seedbed.web.model_worker", str(home)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | WORKER_ENVIRONMENT, text=True,
            encoding="utf-8", start_new_session=True,
        )  # fmt: skip
        self._lock, self._pending = Lock(), dict[int, SimpleQueue[Message]]()
        self._exit_error: Message | None = None  # the reply to every request once it has exited
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

    def send(self, request_id: int, message: Message) -> SimpleQueue[Message]:
        replies: SimpleQueue[Message] = SimpleQueue()
        with self._lock:
            if self._exit_error is not None:
                replies.put(self._exit_error)
            else:
                self._pending[request_id] = replies
                self._write({"id": request_id} | message)
        return replies

    def cancel(self, request_id: int) -> None:
        """Drops further replies to this request and tells the worker to stop it."""
        with self._lock:
            if self._pending.pop(request_id, None) is not None:
                self._write({"cancel": request_id})

    def kill(self) -> None:
        self._process.kill()

    def _write(self, message: Message) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # the worker has exited; the reader thread handles that

    def _read_replies(self) -> None:
        """Dispatches each reply to its request; when the worker exits, fails all pending requests."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            reply = json.loads(line)
            with self._lock:
                queue = self._pending.get(reply["id"])
                if queue is not None and "value" not in reply:
                    del self._pending[reply["id"]]
            if queue is not None:
                queue.put(reply)
        code = self._process.wait()
        message = f"the model worker exited (exit code {code}), possibly out of memory; try again to restart it"
        with self._lock:
            self._exit_error = {"error": "OutOfResources", "message": message}
            for queue in self._pending.values():
                queue.put(self._exit_error)
            self._pending.clear()
