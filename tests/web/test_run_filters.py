"""Filters, notes and tags on the page of a study, without a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from seedbed.store import open_store

from ..report.factories import fill
from .conftest import client_of


@pytest.fixture
def home(tmp_path: Path) -> Path:
    fill(tmp_path, "toy", (0.1, 1.0), range(3))
    with open_store(tmp_path) as store:
        store.set_note("toy", "decay matters")
        run = store.runs("toy")[0].id
        store.add_tags(run, ["odd"])
    return tmp_path


def test_the_page_filters_as_the_commands_do(home: Path) -> None:
    with client_of(home) as client:
        found = client.get("/api/study/toy", params={"only": ["weight_decay>=0.5 seed=0,1"]}).json()
        assert found["state"] == "2 runs: 2 finished."
        assert "--only 'weight_decay>=0.5 seed=0,1'" in found["commands"][0]
        assert client.get("/api/study/toy", params={"only": "tag=odd"}).json()["state"] == "1 run: 1 finished."
        missing = client.get("/api/study/toy", params={"only": "seed=9"})
        assert missing.status_code == 404
        assert missing.json()["error"] == "no run of toy has seed=9; seed has 0, 1 and 2 here"
        assert client.get("/api/study/toy", params={"only": "sead=9"}).status_code == 400


def test_the_page_shows_notes_and_tags(home: Path) -> None:
    with client_of(home) as client:
        note, tag = client.get("/api/study/toy").json()["annotations"]
        assert note == "note: decay matters"
        assert tag.endswith(": tags: odd")
    with open_store(home) as store:
        store.set_note("toy", "")
    with client_of(home) as client:
        assert len(client.get("/api/study/toy").json()["annotations"]) == 1
