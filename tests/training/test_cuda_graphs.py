"""What the host holds of the device's work; the rest needs a GPU (`benchmarks/device.py`)."""

from __future__ import annotations

import torch

from seedbed.training.cuda_graphs import HostCopy, acquire_stream


def test_what_has_arrived_stays_as_it_was():
    held = torch.arange(3.0)
    arrival = HostCopy({"held": held})
    held += 1
    assert arrival.is_ready
    assert arrival.tensors()["held"].tolist() == [0.0, 1.0, 2.0]


def test_without_a_gpu_there_is_no_stream():
    with acquire_stream("cpu") as stream:
        assert stream is None


def test_streams_in_use_differ_and_are_handed_on_when_free(monkeypatch):
    """More packs than torch has streams must never share one while both train."""
    monkeypatch.setattr(torch.cuda, "Stream", object)
    monkeypatch.setattr(graphs, "_free", [])
    with acquire_stream("cuda") as first:
        with acquire_stream("cuda") as second:
            assert first is not second
        with acquire_stream("cuda") as third:
            assert third is second
    with acquire_stream("cuda") as fourth:
        assert fourth is first
