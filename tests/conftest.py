"""Shared by all tests: one thread, so that numbers repeat bit for bit; and homes for the page, made once a session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.web.kinds import Kinds

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True, scope="session")
def own_rates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Times measured by tests stay among them, and no test is planned by times of before."""
    file = tmp_path_factory.mktemp("rates") / "rates.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEDBED_RATES", str(file))
        yield file


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with runs that were really trained, tiny ones; made once for all tests of the page, which only read it."""
    from tests.web.made import fill_trained

    home = tmp_path_factory.mktemp("trained")
    fill_trained(home)
    return home


@pytest.fixture(scope="session")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a study of 1,000 runs × 200 records."""
    from tests.web.made import fill_big

    home = tmp_path_factory.mktemp("big")
    fill_big(home)
    return home


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Kinds:
    """A home with a trained run of every kind of model, and their ids by name."""
    from tests.web.kinds import train_all

    return train_all(tmp_path_factory.mktemp("kinds"))
