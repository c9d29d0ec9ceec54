"""Host copies and the reuse of streams; the rest needs a GPU (`benchmarks/device.py`)."""

from __future__ import annotations

import torch

from seedbed.training import cuda_graphs
from seedbed.training.cuda_graphs import HostCopy, acquire_stream


def test_a_host_copy_does_not_follow_later_changes():
    source = torch.arange(3.0)
    host_copy = HostCopy({"x": source})
    source += 1
    assert host_copy.is_ready
    assert host_copy.tensors["x"].tolist() == [0.0, 1.0, 2.0]


def test_without_a_gpu_there_is_no_stream():
    with acquire_stream("cpu") as stream:
        assert stream is None


def test_streams_in_use_differ_and_are_reused_when_free(monkeypatch):
    """Two packs must never share a stream while both train, even if there are more packs than torch has streams."""
    monkeypatch.setattr(torch.cuda, "Stream", object)
    monkeypatch.setattr(cuda_graphs, "_free_streams", [])
    with acquire_stream("cuda") as first:
        with acquire_stream("cuda") as second:
            assert first is not second
        with acquire_stream("cuda") as third:
            assert third is second
    with acquire_stream("cuda") as fourth:
        assert fourth is first
