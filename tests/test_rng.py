"""Draws depend on seed, stream name and counter alone, and pass simple tests of randomness."""

from __future__ import annotations

import numpy as np
import torch

from seedbed.random_streams import make_generator
from seedbed.rng import _random_int16_at, device_keys, random_bits, random_int16, uniform

CPU = torch.device("cpu")
STEP = torch.tensor([5])


def test_draws_of_a_run_do_not_depend_on_the_other_runs():
    alone = random_bits(device_keys([7], "order", CPU), STEP, 33)
    in_pack = random_bits(device_keys([3, 7, 9], "order", CPU), STEP, 33)
    assert torch.equal(alone[0], in_pack[1])


def test_drawing_more_numbers_keeps_the_first_ones():
    keys = device_keys([7], "order", CPU)
    assert torch.equal(random_bits(keys, STEP, 10), random_bits(keys, STEP, 1000)[:, :10])


def test_seed_stream_and_counter_each_change_the_draws():
    draws = [
        random_bits(device_keys([seed], stream, CPU), torch.tensor([counter]), 64)[0].tolist()
        for seed, stream, counter in [(0, "a", 0), (1, "a", 0), (0, "b", 0), (0, "a", 1)]
    ]
    assert len({tuple(draw) for draw in draws}) == 4


def test_uniform_draws_pass_a_chi_squared_test():
    draws = uniform(device_keys(range(64), "x", CPU), STEP, 10_000)
    counts = torch.histc(draws, bins=100, min=0, max=1)
    chi2 = ((counts - 6400) ** 2 / 6400).sum()
    assert 50 < chi2 < 160  # 99 degrees of freedom: outside with probability below 1e-4
    assert draws.min() >= 0
    assert draws.max() < 1


def test_draws_of_adjacent_counters_and_seeds_are_uncorrelated():
    keys = device_keys(range(50), "x", CPU)
    draws = torch.cat([uniform(keys, torch.tensor([step]), 4000) for step in range(4)]).double()
    correlation = torch.corrcoef(draws) - torch.eye(200)
    assert correlation.abs().max() < 0.09  # 19,900 pairs of 4,000: 5.7 standard deviations


def test_host_streams_are_reproducible_and_differ_by_name():
    first, again, other = (make_generator(1, name).standard_normal(8) for name in ("init/a", "init/a", "init/b"))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_int16_draws_are_the_low_and_high_halves_of_each_word():
    keys = device_keys([7, 9], "x", CPU)
    words = random_bits(keys, STEP, 6).numpy().view(np.uint32).astype(np.int64)
    expected = np.stack([words & 0xFFFF, words >> 16], axis=-1).reshape(2, 12)
    signed = np.where(expected < 2**15, expected, expected - 2**16)
    assert random_int16(keys, STEP, 11).tolist() == signed[:, :11].tolist()
    assert random_int16(keys, STEP, 5, start=2).tolist() == signed[:, 4:9].tolist()


def test_elementwise_int16_draws_of_the_gpu_path_match_the_cpu_path():
    keys = device_keys([7, 9, 11], "x", CPU)
    index = torch.arange(6, 6 + 501, dtype=torch.int32)
    assert _random_int16_at(keys, STEP, index).tolist() == random_int16(keys, STEP, 501, start=3).tolist()


def test_drawing_does_not_modify_keys_or_counter():
    keys, counter = device_keys([7], "x", CPU), torch.tensor([5], dtype=torch.int32)
    before = keys.clone()
    random_bits(keys, counter, 10)
    assert torch.equal(keys, before)
    assert counter.tolist() == [5]
