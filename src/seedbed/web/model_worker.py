"""The process that holds models: requests come in as lines of JSON, replies go out the same way; nothing else here.

    python -m seedbed.web.model_worker HOME

    {"id": 4, "ask": "write", "given": {"run": "3f2a", …}}     →  {"id": 4, "value": {…}} …, {"id": 4, "end": true}
    {"cancel": 4}                                              →  nothing more of 4

Requests take turns, one value each, so a long text holds nobody up for more than a token. The process is kind to
training (lowest priority, one thread) and ends when its input does, be it that the server was killed. The other end is
`models.py`; what can be asked is in `replies.py`.
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
NICENESS_INCREMENT: Final = 15  # added to the niceness that the server has


class ModelWorker:
    """Requests under way, each a generator of values."""

    def __init__(self, warm: ModelCache, requests: SimpleQueue[Message], send: Callable[[Message], None]) -> None:
        self._cache, self._requests, self._send = warm, requests, send
        self._generators: dict[int, Iterator[Any]] = {}

    def serve_forever(self) -> None:
        """One turn after the other, for ever."""
        while True:
            self.run_round()

    def run_round(self) -> None:
        """Takes what has come in, waiting where nothing is under way, then one value of every request."""
        while not self._generators or not self._requests.empty():
            self._accept(self._requests.get())
        for number in list(self._generators):
            self._send({"id": number} | self._next_reply(number))

    def _accept(self, message: Message) -> None:
        if "cancel" in message:
            self._generators.pop(message["cancel"], None)
        else:
            self._generators[message["id"]] = HANDLERS[message["ask"]](self._cache, **message["given"])

    def _next_reply(self, number: int) -> Message:
        try:
            return {"value": to_jsonable(next(self._generators[number]))}
        except StopIteration:
            last: Message = {"end": True}
        except SeedbedError as error:
            last = {"error": type(error).__name__, "message": str(error)}
        except Exception as error:
            traceback.print_exc()
            last = {"error": "Exception", "message": f"the model failed ({type(error).__name__}: {error})"}
        del self._generators[number]
        return last


def _read_requests(lines: Iterable[str], requests: SimpleQueue[Message]) -> None:
    for line in lines:
        requests.put(json.loads(line))
    os._exit(0)  # at once, whatever is being computed: nobody listens any more


def main() -> None:
    import torch

    os.nice(NICENESS_INCREMENT)
    torch.set_num_threads(1)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints must not come between replies

    def send(message: Message) -> None:
        replies.write(json.dumps(message, ensure_ascii=False, allow_nan=False) + "\n")
        replies.flush()

    requests: SimpleQueue[Message] = SimpleQueue()
    sys.stdin.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    Thread(target=_read_requests, args=(sys.stdin, requests), daemon=True).start()
    ModelWorker(ModelCache(Path(sys.argv[1])), requests, send).serve_forever()


if __name__ == "__main__":
    main()
