"""Hooks: recording activations or replacing one by itself changes no bit; stacked runs match runs alone."""

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
    "t5": TEXT | {"model.positions": "t5"},
    "encoder": TEXT | {"task.kind": "labels", "model.kind": "encoder", "model.classifier_hidden": 5},
    "lstm": {"task.kind": "text", "model.kind": "lstm", "model.dim": 12, "model.layers": 2},
    "gru": {"task.kind": "text", "model.kind": "gru", "model.dim": 12, "model.layers": 2},
}


def make_model(shape, seeds=(3, 5, 8)):
    settings = [Settings.from_flat(SHAPES[shape])] * len(seeds)
    model, parameters = build_pack(settings, seeds, torch.zeros(1, dtype=torch.int64), torch.float64, DATASET_INFO)
    return model.eval(), parameters


def make_tokens(n=T, runs=3):
    return torch.randint(V, (runs, 4, n), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("n", [T, 23], ids=["short", "fused"])
@pytest.mark.parametrize("shape", SHAPES)
def test_recording_every_hook_changes_no_bit_of_the_logits(shape, n):
    model, _ = make_model(shape)
    assert torch.equal(model(make_tokens(n), hooks=Hooks("*")), model(make_tokens(n)))


@pytest.mark.parametrize("n", [T, 23], ids=["short", "fused"])
@pytest.mark.parametrize("shape", SHAPES)
def test_replacing_every_activation_by_itself_changes_no_bit_of_the_logits(shape, n):
    model, _ = make_model(shape)
    plain, values = model(make_tokens(n)), get_activations(model, make_tokens(n), "*")
    for name, value in values.items():
        assert torch.equal(model(make_tokens(n), hooks=Hooks(replace={name: value.clone()})), plain), name
    assert torch.equal(
        model(make_tokens(n), hooks=Hooks(replace={name: value.clone() for name, value in values.items()})), plain
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_every_hook_influences_the_logits(shape):
    """Negative control: halving an activation changes the logits."""
    model, _ = make_model(shape)
    plain = model(make_tokens())
    for name in list_hook_names(model):
        assert not torch.equal(model(make_tokens(), hooks=Hooks(replace={name: lambda value: value / 2})), plain), name


@pytest.mark.parametrize("shape", SHAPES)
def test_activations_of_stacked_runs_match_runs_alone(shape):
    model, _ = make_model(shape)
    stacked = get_activations(model, make_tokens(), "*")
    for slot, seed in enumerate((3, 5, 8)):
        alone, _ = make_model(shape, (seed,))
        for name, value in get_activations(alone, make_tokens()[slot : slot + 1], "*").items():
            torch.testing.assert_close(stacked[name][slot : slot + 1], value, rtol=1e-10, atol=1e-12)


def test_patching_in_a_uniform_pattern_averages_the_values():
    model, _ = make_model("pre")
    uniform = torch.full((3, 4, 3, T, T), 1 / T, dtype=torch.float64)
    hooks = Hooks("blocks.1.attention.*", replace={"blocks.1.attention.pattern": uniform})
    model(make_tokens(), hooks=hooks)
    value, z = hooks.activations["blocks.1.attention.v"], hooks.activations["blocks.1.attention.z"]
    torch.testing.assert_close(z, value.mean(2, keepdim=True).expand_as(z))


def test_patching_a_cell_at_one_position_changes_only_later_positions():
    model, _ = make_model("lstm")
    cell = get_activations(model, make_tokens(), "lstm.0.cell")["lstm.0.cell"]
    cell[..., 3, :] += 1
    difference = model(make_tokens(), hooks=Hooks(replace={"lstm.0.cell": cell})) - model(make_tokens())
    assert (difference[:, :, :3] == 0).all()
    assert (difference[:, :, 3] != 0).any()


def test_patching_one_run_does_not_change_its_neighbours():
    model, _ = make_model("pre")
    embed = get_activations(model, make_tokens(), "embed")["embed"]
    embed[1] += 1
    difference = model(make_tokens(), hooks=Hooks(replace={"embed": embed})) - model(make_tokens())
    assert (difference[[0, 2]] == 0).all()
    assert (difference[1] != 0).any()


def test_hook_names_are_listed_in_forward_order():
    names = list_hook_names(make_model("pre")[0])
    assert names[:3] == ["embed.tokens", "embed", "blocks.0.in"]
    assert names[-2:] == ["final_norm", "logits"]
    inner = [f"attention.{part}" for part in ("q", "k", "v", "pattern", "z", "out")]
    inner += ["mid", "mlp.pre", "mlp.post", "mlp.out", "out"]
    assert [name for name in names if name.startswith("blocks.1.")] == [f"blocks.1.{part}" for part in ("in", *inner)]
    assert {f"lstm.1.{part}" for part in ("i", "f", "g", "o", "cell", "out")} <= set(
        list_hook_names(make_model("lstm")[0])
    )


LENS_SHAPES = {  # TransformerLens' main demonstration: names, and shapes as its cache shows them
    "hook_embed": "BTD", "ln_final.hook_normalized": "BTD",
    **{f"blocks.1.{name}": "BTD" for name in ("hook_resid_pre", "hook_resid_mid", "hook_resid_post")},
    **{f"blocks.1.{name}": "BTD" for name in ("hook_attn_out", "hook_mlp_out")},
    **{f"blocks.1.attn.hook_{name}": "BTHK" for name in "qkvz"},
    "blocks.1.attn.hook_pattern": "BHTT", "blocks.1.mlp.hook_pre": "BTF", "blocks.1.mlp.hook_post": "BTF",
}  # fmt: skip


@pytest.mark.parametrize(("name", "axes"), LENS_SHAPES.items())
def test_a_transformer_lens_name_reads_one_hook_of_the_same_shape(name, axes):
    sizes = {"B": 4, "T": T, "D": 12, "H": 3, "K": 4, "F": 48}
    [(hook, value)] = get_activations(make_model("pre")[0], make_tokens(), name).items()
    assert value[0].shape == tuple(sizes[axis] for axis in axes)
    assert (hook, to_transformer_lens_name(hook)) == (from_transformer_lens_name(name), name)


def test_transformer_lens_names_are_distinct():
    names = [to_transformer_lens_name(hook) for hook in list_hook_names(make_model("pre")[0])]
    known = [name for name in names if name is not None]
    assert len(set(known)) == len(known) == len(LENS_SHAPES) + 12  # of the other block
    assert set(LENS_SHAPES) <= set(known)


def test_token_embeddings_without_positions_are_rows_of_the_table():
    model, _ = make_model("pre")
    values = get_activations(model, make_tokens(), "hook_embed", "blocks.0.hook_resid_pre", "embed")
    expected = torch.stack([table[tokens] for table, tokens in zip(model.embed.weight, make_tokens(), strict=True)])
    assert torch.equal(values["embed.tokens"], expected)
    assert torch.equal(values["embed"], values["blocks.0.in"])


def test_transformer_lens_names_work_as_patterns_and_for_replacing():
    model, _ = make_model("pre")
    assert list(get_activations(model, make_tokens(), "*.hook_z")) == ["blocks.0.attention.z", "blocks.1.attention.z"]
    by_lens, ours = (
        get_activations(model, make_tokens(), "logits", replace={name: torch.zeros_like})["logits"]
        for name in ("blocks.0.hook_mlp_out", "blocks.0.mlp.out")
    )
    assert torch.equal(by_lens, ours)
    assert not torch.equal(ours, model(make_tokens()))


def test_a_pattern_that_matches_nothing_is_refused_by_name():
    with pytest.raises(UsageError, match=r"blocks\.9\.out"):
        get_activations(make_model("pre")[0], make_tokens(), "blocks.9.out")
    with pytest.raises(UsageError, match=r"blocks\.0\.attn\.out"):
        get_activations(make_model("pre")[0], make_tokens(), "logits", replace={"blocks.0.attn.out": torch.zeros_like})


def test_recording_every_hook_costs_at_most_twice_a_plain_forward_pass():
    """By CPU time and the best of several, so that other processes do not count."""
    values = TEXT | {"model.norm": "pre", "model.dim": 192, "model.heads": 6}  # report A's, with two layers
    info = DatasetInfo(vocab_size=70, context_length=128, n_train=1, padding_id=0)
    model, _ = build_pack([Settings.from_flat(values)], [0], torch.zeros(1, dtype=torch.int64), torch.float32, info)
    tokens, spent = torch.randint(70, (1, 4, 128)), {False: [], True: []}
    for _ in range(7):
        for reads in spent:
            start = process_time()
            with torch.inference_mode():
                model.eval()(tokens, hooks=Hooks("*") if reads else NO_HOOKS)
            spent[reads].append(process_time() - start)
    assert min(spent[True]) <= 2 * min(spent[False])


def test_unused_hooks_compare_no_names():
    """Without requests a hook costs one call: no pattern is compared, nothing is stored."""

    class Untouchable(str):
        __slots__ = ()

        def __eq__(self, other):
            raise AssertionError

        __hash__ = str.__hash__

    value = torch.ones(1)
    assert NO_HOOKS(Untouchable("embed"), value) is value
    assert not NO_HOOKS.is_requested(Untouchable("embed"))


def test_recording_activations_restores_training_mode():
    model, _ = make_model("pre")
    model.train()
    get_activations(model, make_tokens(), "embed")
    assert model.training


def test_every_block_has_an_attention_pattern_and_an_lstm_has_none():
    patterns = attention_patterns(make_model("pre")[0], make_tokens())
    assert [tuple(one.shape) for one in patterns] == [(3, 4, 3, T, T)] * 2
    assert attention_patterns(make_model("lstm")[0], make_tokens()) == []
    assert not NO_HOOKS.activations
