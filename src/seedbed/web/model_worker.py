"""The model worker process: reads requests as lines of JSON from stdin and writes replies to stdout the same way.

    python -m seedbed.web.model_worker HOME

    {"id": 4, "handler": "write", "arguments": {"run": "3f2a", …}}  →  {"id": 4, "value": {…}} …, {"id": 4, "end": true}
    {"cancel": 4}                                                   →  no more replies to 4

Requests are served round-robin, one value each, so a long text delays others by at most one token. The process yields
to training (low priority, one thread) and exits when its stdin closes, also if the server was killed. The client is
`model_client`; the requests it can handle are in `model_handlers`.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, TypeAlias

from seedbed.errors import SeedbedError
from seedbed.records import to_jsonable
from seedbed.web.model_cache import ModelCache
from seedbed.web.model_handlers import HANDLERS

Message: TypeAlias = dict[str, Any]
NICENESS_INCREMENT: Final = 15  # on top of the server's niceness


class ModelWorker:
    """The open requests, each a generator of values."""

    def __init__(self, cache: ModelCache, requests: SimpleQueue[Message], send: Callable[[Message], None]) -> None:
        self._cache, self._requests, self._send = cache, requests, send
        self._generators: dict[int, Iterator[Any]] = {}

    def serve_forever(self) -> None:
        """Runs rounds until the process is killed."""
        while True:
            self.run_round()

    def run_round(self) -> None:
        """Accepts new requests (blocking if none is open), then sends one value of each open request."""
        while not self._generators or not self._requests.empty():
            self._accept(self._requests.get())
        for request_id in list(self._generators):
            self._send({"id": request_id} | self._next_reply(request_id))

    def _accept(self, message: Message) -> None:
        if "cancel" in message:
            self._generators.pop(message["cancel"], None)
        else:
            self._generators[message["id"]] = HANDLERS[message["handler"]](self._cache, **message["arguments"])

    def _next_reply(self, request_id: int) -> Message:
        try:
            return {"value": to_jsonable(next(self._generators[request_id]))}
        except StopIteration:
            final: Message = {"end": True}
        except SeedbedError as error:
            final = {"error": type(error).__name__, "message": str(error)}
        except Exception as error:
            traceback.print_exc()
            final = {"error": "Exception", "message": f"the model failed ({type(error).__name__}: {error})"}
        del self._generators[request_id]
        return final


def _read_requests(lines: Iterable[str], requests: SimpleQueue[Message]) -> None:
    for line in lines:
        requests.put(json.loads(line))
    os._exit(0)  # at once, even in the middle of a computation: the client is gone


def main() -> None:
    import torch

    os.nice(NICENESS_INCREMENT)
    torch.set_num_threads(1)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # library output goes to stderr, not between replies

    def send(message: Message) -> None:
        replies.write(json.dumps(message, ensure_ascii=False, allow_nan=False) + "\n")
        replies.flush()

    requests: SimpleQueue[Message] = SimpleQueue()
    sys.stdin.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    Thread(target=_read_requests, args=(sys.stdin, requests), daemon=True).start()
    ModelWorker(ModelCache(Path(sys.argv[1])), requests, send).serve_forever()


if __name__ == "__main__":
    main()
