"""A PostgreSQL server for tests: Debian's, on 127.0.0.1, as a user of its own since it refuses root."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FAST = ("fsync=off", "full_page_writes=off", "shared_buffers=32MB", "max_connections=60")


def find_programs() -> Path | None:
    """The folder of initdb and postgres; None if they are not installed."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None, key=lambda path: int(path.parent.name))


class PostgresServer:
    """A running server, which can be killed and started again; each of its databases may hold a store."""

    def __init__(self, programs: Path, folder: Path, options: tuple[str, ...]) -> None:
        self._programs, self._folder, self._options = programs, folder, options
        self._user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        if self._user:
            shutil.chown(folder, "postgres", "postgres")
        self._call("initdb", "-A", "trust", "-U", "seedbed", "-E", "UTF8", "--no-locale", "--no-sync", "-D", "data")
        self.start()

    def _call(self, program: str, *words: str) -> None:
        command = [str(self._programs / program), *words]
        subprocess.run(command, cwd=self._folder, check=True, stdout=subprocess.DEVNULL, **self._user)  # type: ignore[call-overload]

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        words = [f"-c{option}" for option in (*self._options, f"port={self._port}", "listen_addresses=127.0.0.1")]
        command = [str(self._programs / "postgres"), "-D", "data", "-k", str(self._folder), *words]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log, **self._user)  # type: ignore[call-overload]
        self.execute("SELECT 1")

    def kill(self) -> None:
        """Ends the server at once, as a crash would."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Runs a statement in a database, waiting for a server that starts."""
        import psycopg

        deadline = time.monotonic() + 60
        while True:
            try:
                address = self.address(database)
                with psycopg.connect(address, autocommit=True, connect_timeout=5) as connection:
                    connection.execute(statement)  # type: ignore[call-overload]
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def address(self, database: str = "postgres") -> str:
        return f"postgresql://seedbed@127.0.0.1:{self._port}/{database}"

    def new_store(self, home: Path, database: str = "postgres") -> str:
        """The address of a store that does not exist yet, with its files below a home."""
        self.execute("DROP SCHEMA IF EXISTS seedbed CASCADE", database)
        return f"{self.address(database)}#{home}"


@contextmanager
def start_postgres(*options: str) -> Iterator[PostgresServer]:
    """Yields a server, which ends with the block; the test is skipped where PostgreSQL or psycopg is missing."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'seedbed[cluster]'")
    if (programs := find_programs()) is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="seedbed-postgres-"))
    try:
        server = PostgresServer(programs, folder, options or FAST)
        try:
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
