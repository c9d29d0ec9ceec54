"""Shared by all tests: one thread, so that results are bit-reproducible; and homes for the page, built once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.postgres_server import PostgresServer, start_postgres

if TYPE_CHECKING:
    from tests.web.model_zoo import ModelZoo

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True, scope="session")
def isolated_rates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Timings measured by tests go to a file of their own, and earlier timings influence no test."""
    file = tmp_path_factory.mktemp("rates") / "rates.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEDBED_RATES", str(file))
        yield file


@pytest.fixture(scope="session")
def trained_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with tiny trained runs, built once for all tests of the page, which only read it."""
    from tests.web.factories import fill_trained

    home = tmp_path_factory.mktemp("trained")
    fill_trained(home)
    return home


@pytest.fixture(scope="session")
def large_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a study of 1,000 runs × 200 evaluations."""
    from tests.web.factories import fill_large

    home = tmp_path_factory.mktemp("big")
    fill_large(home)
    return home


@pytest.fixture(scope="session")
def model_zoo(tmp_path_factory: pytest.TempPathFactory) -> ModelZoo:
    """A home with a trained run of every kind of model."""
    from tests.web.model_zoo import train_zoo

    return train_zoo(tmp_path_factory.mktemp("model_zoo"))


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[str]:
    """The address of a Ray cluster with two nodes of one CPU each."""
    from tests.ray_cluster import start_cluster

    with start_cluster() as cluster:
        yield cluster.address


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests of a session."""
    with start_postgres() as server:
        yield server
