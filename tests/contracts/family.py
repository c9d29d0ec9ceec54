"""What every model family must fulfil; the test of a new family inherits `FamilyContract` and names its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from seedbed.models.build import build_model, build_pack
from seedbed.models.families.base import Family
from seedbed.models.hooks import Hooks, get_activations, list_hook_names
from seedbed.models.parameters import FlatParameters
from seedbed.models.sequence_model import SequenceModel
from seedbed.settings import DatasetInfo, Settings
from seedbed.training.trainer import Trainer

V, T, C = 11, 7, 3
INFO = DatasetInfo(vocab_size=V, context_length=T, n_train=50, n_classes=C, padding_id=0)
SEEDS = (3, 5, 8)


class FamilyContract:
    """Three runs of each variant of a family in float64, with awkward sizes."""

    settings: ClassVar[dict[str, Any]]  # of the smallest model
    variants: ClassVar[list[dict[str, Any]]] = []  # settings that change parameters or computations
    larger: ClassVar[list[dict[str, Any]]]  # settings, one at a time, that make the model larger

    def all_settings(self) -> list[Settings]:
        return [Settings.from_flat(self.settings | variant) for variant in ({}, *self.variants)]

    @staticmethod
    def make_pack(settings: Settings, seeds: tuple[int, ...] = SEEDS) -> tuple[SequenceModel, FlatParameters]:
        """Runs with noise on the initial weights, so that zeros and ones cannot hide a mistake."""
        step = torch.zeros(1, dtype=torch.int64)
        model, parameters = build_pack([settings] * len(seeds), seeds, step, torch.float64, INFO)
        for slot, seed in enumerate(seeds):
            generator = torch.Generator().manual_seed(seed)
            noise = torch.randn(parameters.weights.shape[1], generator=generator, dtype=torch.float64)
            parameters.weights[slot] += 0.1 * noise
        return model.eval(), parameters

    @staticmethod
    def make_tokens(n_runs: int = 3, n: int = T) -> Tensor:
        return torch.randint(V, (n_runs, 4, n), generator=torch.Generator().manual_seed(0))

    # ---- sizes ----

    def test_shapes_and_counts_are_those_of_the_module(self) -> None:
        for settings in self.all_settings():
            assert settings.conflicts() == []
            family: Family = settings.model
            built = {name: tuple(p.shape[1:]) for name, p in build_model(settings, INFO).named_parameters()}
            assert family.parameter_shapes(INFO) == built
            sizes = {name: torch.Size(shape).numel() for name, shape in built.items()}
            tables = {f"{table.module}.weight" for table in family.embedding_tables(INFO).values()}
            counts = family.count_parameters(INFO)
            assert counts.total == sum(sizes.values())
            assert counts.non_embedding == sum(n for name, n in sizes.items() if name not in tables)

    def test_estimates_grow_with_every_size(self) -> None:
        small: Family = Settings.from_flat(self.settings).model
        for change in self.larger:
            large: Family = Settings.from_flat(self.settings | change).model
            assert large.count_parameters(INFO).total > small.count_parameters(INFO).total, change
            assert large.forward_flops(INFO, 1) > small.forward_flops(INFO, 1), change
            assert large.activations_per_token(INFO) > small.activations_per_token(INFO), change
        assert small.widest_activations() > 0
        longer = DatasetInfo(vocab_size=V, context_length=2 * T, n_train=50, n_classes=C)
        assert small.forward_flops(longer, 1) > small.forward_flops(INFO, 1)

    # ---- runs are independent ----

    def test_stacked_runs_match_runs_alone(self) -> None:
        for settings in self.all_settings():
            stacked = self.make_pack(settings)[0](self.make_tokens())
            for slot, seed in enumerate(SEEDS):
                alone = self.make_pack(settings, (seed,))[0](self.make_tokens()[slot : slot + 1])
                torch.testing.assert_close(stacked[slot : slot + 1], alone, rtol=1e-10, atol=1e-11)

    def test_no_run_affects_another(self) -> None:
        for settings in self.all_settings():
            model, parameters = self.make_pack(settings)
            gradients = torch.autograd.grad(model(self.make_tokens())[1].cos().sum(), parameters.parameters)
            for gradient in gradients:
                assert not gradient[[0, 2]].any()

    def test_every_parameter_gets_a_gradient(self) -> None:
        for settings in self.all_settings():
            model, parameters = self.make_pack(settings)
            loss = model.train()(self.make_tokens()).cos().sum()
            for name, gradient in zip(
                parameters.shapes, torch.autograd.grad(loss, parameters.parameters, allow_unused=True), strict=True
            ):
                assert gradient is not None, name
                assert gradient.any(), name

    # ---- hooks ----

    def test_hooks_change_nothing_and_every_one_matters(self) -> None:
        for settings in self.all_settings():
            model, _ = self.make_pack(settings)
            tokens, family = self.make_tokens(), settings.model
            plain = model(tokens)
            torch.testing.assert_close(model(tokens, hooks=Hooks("*")), plain, rtol=0, atol=1e-12)
            names = list_hook_names(model)
            assert names[-1] == "logits"
            for name in names:
                halved = model(tokens, hooks=Hooks(replace={name: lambda value: value / 2}))
                assert not torch.equal(halved, plain), name
            hidden = get_activations(model, tokens, family.hidden_hooks)
            assert len(hidden) == family.layers
            if family.has_attention:
                assert len(get_activations(model, tokens, "blocks.*.attention.pattern")) == family.layers
            if family.gate_hooks is not None:
                wanted = {f"{family.gate_hooks.layers}.0.{name}" for name in family.gate_hooks.units}
                assert wanted | {f"{family.gate_hooks.layers}.0.{family.gate_hooks.state}"} <= set(names)

    # ---- predicting the next token ----

    def test_later_tokens_change_no_earlier_logit_exactly_if_causal(self) -> None:
        for settings in self.all_settings():
            model, _ = self.make_pack(settings)
            tokens = self.make_tokens()
            changed = tokens.clone()
            changed[..., 4:] = (changed[..., 4:] + 1) % V
            if settings.model.predicts == "next_token":
                before, after = model(tokens)[:, :, :4], model(changed)[:, :, :4]
                assert torch.allclose(before, after, rtol=0, atol=1e-12) == settings.model.causal
            else:
                assert not torch.allclose(model(tokens), model(changed))

    def test_selected_positions_have_the_same_logits(self) -> None:
        for settings in self.all_settings():
            if settings.model.predicts == "next_token":
                model, _ = self.make_pack(settings)
                whole = model(self.make_tokens())
                selected = model(self.make_tokens(), slice(-2, None))
                torch.testing.assert_close(selected, whole[:, :, -2:], rtol=0, atol=1e-12)
                positions = torch.randint(T, (3, 4, 2), generator=torch.Generator().manual_seed(1))
                gathered = whole.gather(2, positions[..., None].expand(-1, -1, -1, V))
                torch.testing.assert_close(model(self.make_tokens(), positions), gathered, rtol=0, atol=1e-12)

    def test_a_prefilled_cache_continues_the_sequence(self) -> None:
        for settings in self.all_settings():
            if settings.model.predicts == "next_token":
                model, _ = self.make_pack(settings)
                tokens = self.make_tokens()
                continued = model(tokens[..., 3:], past=model.prefill(tokens[..., :3]))
                torch.testing.assert_close(continued, model(tokens)[:, :, 3:], rtol=0, atol=1e-12)

    @pytest.mark.parametrize(("n_runs", "n_prefilled"), [(1, 0), (1, 2), (3, 2)])
    def test_decoded_logits_are_those_of_the_forward_pass(self, n_runs: int, n_prefilled: int) -> None:
        for settings in self.all_settings():
            if settings.model.predicts == "next_token":
                model, _ = self.make_pack(settings, SEEDS[:n_runs])
                for n_samples in (1, 4):
                    tokens = self.make_tokens(n_runs)[:, :n_samples]
                    decoder = settings.model.make_decoder(model, n_runs, n_samples, T)
                    with torch.inference_mode():
                        decoder.prefill(tokens[..., :n_prefilled])
                        steps = [decoder.step(tokens[..., i]).clone() for i in range(n_prefilled, T)]
                        expected = model(tokens)[:, :, n_prefilled:]
                    torch.testing.assert_close(torch.stack(steps, dim=2), expected, rtol=0, atol=1e-11)

    # ---- training ----

    def test_restored_training_continues_exactly(self, tmp_path: Path) -> None:
        rows = [f"{'wet' if i % 3 else 'dry'}\tday {i % 5} had {i % 3} drops of rain\n" for i in range(20)]
        (tmp_path / "rain.tsv").write_text("".join(rows), encoding="utf-8")
        task = {"task.corpus": str(tmp_path / "rain.tsv"), "task.length": 5, "train.batch_size": 4}
        settings = Settings.from_flat(self.settings | task | {"model.dropout": 0.2, "model.embedding_dropout": 0.1})
        whole, resumed = (Trainer([settings] * 2, SEEDS[:2], "cpu", torch.float32) for _ in range(2))
        for _ in range(3):
            whole.train_step()
        resumed.restore({name: tensor.clone() for name, tensor in whole.state().items()})
        start = whole.parameters.weights.clone()
        for _ in range(3):
            whole.train_step()
            resumed.train_step()
        assert not torch.equal(whole.parameters.weights, start)
        assert torch.equal(whole.parameters.weights, resumed.parameters.weights)
