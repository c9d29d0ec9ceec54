"""A Ray cluster on this machine, for tests: its nodes are processes bound to 127.0.0.1."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NODE = {"num_cpus": 1, "object_store_memory": 2**27, "node_ip_address": "127.0.0.1", "include_dashboard": False}


@contextmanager
def start_cluster(n_nodes: int = 2, **options: Any) -> Iterator[Any]:
    """Yields a `ray.cluster_utils.Cluster`; this process is disconnected from it at the end."""
    # Without the second, Ray replaces 127.0.0.1 by the address of this machine's network.
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'seedbed[cluster]'")
    from ray.cluster_utils import Cluster

    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args=NODE | options)
    try:
        for _ in range(n_nodes - 1):
            cluster.add_node(**(NODE | options))
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
