"""HTTP clients of the page without a browser, over homes built once a session (tests/conftest.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from seedbed.web.guard import Guard
from seedbed.web.server import make_app
from seedbed.web.store_cache import StoreCache

PORT = 8765


def client_of(home: Path) -> TestClient:
    """A client with the token; `client.app.guard` holds it."""
    guard = Guard.create("127.0.0.1", PORT)
    headers = {"x-seedbed-token": guard.token, "origin": f"http://127.0.0.1:{PORT}"}
    return TestClient(
        make_app(StoreCache(home), guard), base_url=f"http://127.0.0.1:{PORT}", headers=headers, follow_redirects=False,
        raise_server_exceptions=False,
    )  # fmt: skip


@pytest.fixture(scope="session")
def client(trained_home: Path) -> Iterator[TestClient]:
    """A client of the home with trained runs."""
    with client_of(trained_home) as opened:
        yield opened
