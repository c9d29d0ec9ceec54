"""Taps: reading changes no bit, a place replaced by its own value changes no bit, and stacked runs read as alone."""

from __future__ import annotations

from time import process_time

import pytest
import torch

from seedbed.errors import UsageError
from seedbed.models.build import build_pack
from seedbed.models.hooks import (
    NO_HOOKS,
    Hooks,
    attention_patterns,
    from_transformer_lens_name,
    get_activations,
    list_hook_names,
    to_transformer_lens_name,
)
from seedbed.settings import DatasetInfo, Settings

V, T = 19, 7
DATASET_INFO = DatasetInfo(vocab_size=V, context_length=40, n_train=50, n_classes=3, padding_id=0)
TEXT = {"task.kind": "text", "model.dim": 12, "model.heads": 3, "model.layers": 2}
SHAPES = {
    "pre": TEXT | {"model.norm": "pre", "model.final_norm": True},
    "post": TEXT | {"model.norm": "post", "model.positions": "rotary"},
    "alibi": TEXT | {"model.positions": "alibi"},
    "encoder": TEXT | {"task.kind": "labels", "model.kind": "encoder", "model.classifier_hidden": 5},
    "lstm": {"task.kind": "text", "model.kind": "lstm", "model.dim": 12, "model.layers": 2},
}


def made(shape, seeds=(3, 5, 8)):
    settings = [Settings.from_flat(SHAPES[shape])] * len(seeds)
    model, bank = build_pack(settings, seeds, torch.zeros(1, dtype=torch.int64), torch.float64, DATASET_INFO)
    return model.eval(), bank


def drawn(n=T, runs=3):
    return torch.randint(V, (runs, 4, n), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("n", [T, 23], ids=["short", "fused"])
@pytest.mark.parametrize("shape", SHAPES)
def test_reading_every_tap_changes_no_bit_of_the_logits(shape, n):
    model, _ = made(shape)
    assert torch.equal(model(drawn(n), hooks=Hooks("*")), model(drawn(n)))


@pytest.mark.parametrize("n", [T, 23], ids=["short", "fused"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_tap_replaced_by_its_own_value_changes_no_bit_of_the_logits(shape, n):
    model, _ = made(shape)
    plain, values = model(drawn(n)), get_activations(model, drawn(n), "*")
    for name, value in values.items():
        assert torch.equal(model(drawn(n), hooks=Hooks(replace={name: value.clone()})), plain), name
    assert torch.equal(
        model(drawn(n), hooks=Hooks(replace={name: value.clone() for name, value in values.items()})), plain
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_every_tap_is_on_the_way_to_the_logits(shape):
    """The negative control: half the value, and the logits are others."""
    model, _ = made(shape)
    plain = model(drawn())
    for name in list_hook_names(model):
        assert not torch.equal(model(drawn(), hooks=Hooks(replace={name: lambda value: value / 2})), plain), name


@pytest.mark.parametrize("shape", SHAPES)
def test_stacked_runs_read_what_each_reads_alone(shape):
    model, _ = made(shape)
    stacked = get_activations(model, drawn(), "*")
    for slot, seed in enumerate((3, 5, 8)):
        alone, _ = made(shape, (seed,))
        for name, value in get_activations(alone, drawn()[slot : slot + 1], "*").items():
            torch.testing.assert_close(stacked[name][slot : slot + 1], value, rtol=1e-10, atol=1e-12)


def test_patching_the_pattern_by_the_uniform_one_averages_the_values():
    model, _ = made("pre")
    even = torch.full((3, 4, 3, T, T), 1 / T, dtype=torch.float64)
    taps = Hooks("blocks.1.attention.*", replace={"blocks.1.attention.pattern": even})
    model(drawn(), hooks=taps)
    value, z = taps.activations["blocks.1.attention.v"], taps.activations["blocks.1.attention.z"]
    torch.testing.assert_close(z, value.mean(2, keepdim=True).expand_as(z))


def test_patching_a_cell_at_one_position_reaches_later_positions_and_no_earlier_ones():
    model, _ = made("lstm")
    cell = get_activations(model, drawn(), "lstm.0.cell")["lstm.0.cell"]
    cell[..., 3, :] += 1
    changed = model(drawn(), hooks=Hooks(replace={"lstm.0.cell": cell})) - model(drawn())
    assert (changed[:, :, :3] == 0).all()
    assert (changed[:, :, 3] != 0).any()


def test_patching_one_run_leaves_its_neighbours_as_they_were():
    model, _ = made("pre")
    embed = get_activations(model, drawn(), "embed")["embed"]
    embed[1] += 1
    changed = model(drawn(), hooks=Hooks(replace={"embed": embed})) - model(drawn())
    assert (changed[[0, 2]] == 0).all()
    assert (changed[1] != 0).any()


def test_the_names_are_those_of_the_places_in_order():
    names = list_hook_names(made("pre")[0])
    assert names[:3] == ["embed.tokens", "embed", "blocks.0.in"]
    assert names[-2:] == ["final_norm", "logits"]
    inner = [f"attention.{part}" for part in ("q", "k", "v", "pattern", "z", "out")]
    inner += ["mid", "mlp.pre", "mlp.post", "mlp.out", "out"]
    assert [name for name in names if name.startswith("blocks.1.")] == [f"blocks.1.{part}" for part in ("in", *inner)]
    assert {f"lstm.1.{part}" for part in ("i", "f", "g", "o", "cell", "out")} <= set(list_hook_names(made("lstm")[0]))


LENS_SHAPES = {  # TransformerLens' main demonstration: names, and shapes as its cache shows them
    "hook_embed": "BTD", "ln_final.hook_normalized": "BTD",
    **{f"blocks.1.{name}": "BTD" for name in ("hook_resid_pre", "hook_resid_mid", "hook_resid_post")},
    **{f"blocks.1.{name}": "BTD" for name in ("hook_attn_out", "hook_mlp_out")},
    **{f"blocks.1.attn.hook_{name}": "BTHK" for name in "qkvz"},
    "blocks.1.attn.hook_pattern": "BHTT", "blocks.1.mlp.hook_pre": "BTF", "blocks.1.mlp.hook_post": "BTF",
}  # fmt: skip


@pytest.mark.parametrize(("name", "axes"), LENS_SHAPES.items())
def test_a_name_of_transformer_lens_reads_one_place_of_the_same_shape(name, axes):
    sizes = {"B": 4, "T": T, "D": 12, "H": 3, "K": 4, "F": 48}
    [(place, value)] = get_activations(made("pre")[0], drawn(), name).items()
    assert value[0].shape == tuple(sizes[axis] for axis in axes)
    assert (place, to_transformer_lens_name(place)) == (from_transformer_lens_name(name), name)


def test_all_names_of_transformer_lens_are_told_apart():
    names = [to_transformer_lens_name(place) for place in list_hook_names(made("pre")[0])]
    known = [name for name in names if name is not None]
    assert len(set(known)) == len(known) == len(LENS_SHAPES) + 12  # of the other block
    assert set(LENS_SHAPES) <= set(known)


def test_token_vectors_without_positions_are_the_rows_of_the_table():
    model, _ = made("pre")
    values = get_activations(model, drawn(), "hook_embed", "blocks.0.hook_resid_pre", "embed")
    expected = torch.stack([table[tokens] for table, tokens in zip(model.embed.weight, drawn(), strict=True)])
    assert torch.equal(values["embed.tokens"], expected)
    assert torch.equal(values["embed"], values["blocks.0.in"])


def test_names_of_transformer_lens_work_as_patterns_and_for_replacing():
    model, _ = made("pre")
    assert list(get_activations(model, drawn(), "*.hook_z")) == ["blocks.0.attention.z", "blocks.1.attention.z"]
    by_lens, ours = (
        get_activations(model, drawn(), "logits", replace={name: torch.zeros_like})["logits"]
        for name in ("blocks.0.hook_mlp_out", "blocks.0.mlp.out")
    )
    assert torch.equal(by_lens, ours)
    assert not torch.equal(ours, model(drawn()))


def test_a_pattern_that_matches_nothing_is_refused_by_name():
    with pytest.raises(UsageError, match=r"blocks\.9\.out"):
        get_activations(made("pre")[0], drawn(), "blocks.9.out")
    with pytest.raises(UsageError, match=r"blocks\.0\.attn\.out"):
        get_activations(made("pre")[0], drawn(), "logits", replace={"blocks.0.attn.out": torch.zeros_like})


def test_reading_every_tap_costs_at_most_twice_a_plain_pass():
    """By the processor's clock and the best of several, so that neighbours on the machine do not count."""
    dials = TEXT | {"model.norm": "pre", "model.dim": 192, "model.heads": 6}  # report A's, with two layers
    facts = DatasetInfo(vocab_size=70, context_length=128, n_train=1, padding_id=0)
    model, _ = build_pack([Settings.from_flat(dials)], [0], torch.zeros(1, dtype=torch.int64), torch.float32, facts)
    tokens, spent = torch.randint(70, (1, 4, 128)), {False: [], True: []}
    for _ in range(7):
        for reads in spent:
            start = process_time()
            with torch.inference_mode():
                model.eval()(tokens, hooks=Hooks("*") if reads else NO_HOOKS)
            spent[reads].append(process_time() - start)
    assert min(spent[True]) <= 2 * min(spent[False])


def test_taps_that_want_nothing_look_at_no_name():
    """Where nobody reads, a place costs one call: no pattern is compared, nothing is kept."""

    class Untouchable(str):
        __slots__ = ()

        def __eq__(self, other):
            raise AssertionError

        __hash__ = str.__hash__

    value = torch.ones(1)
    assert NO_HOOKS(Untouchable("embed"), value) is value
    assert not NO_HOOKS.is_requested(Untouchable("embed"))


def test_the_model_goes_on_training_after_a_look_inside():
    model, _ = made("pre")
    model.train()
    get_activations(model, drawn(), "embed")
    assert model.training


def test_attention_is_there_for_every_block_and_absent_where_there_is_none():
    patterns = attention_patterns(made("pre")[0], drawn())
    assert [tuple(one.shape) for one in patterns] == [(3, 4, 3, T, T)] * 2
    assert attention_patterns(made("lstm")[0], drawn()) == []
    assert not NO_HOOKS.activations
