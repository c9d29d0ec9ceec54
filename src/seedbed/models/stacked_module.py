"""A user's own nn.Module from tokens to logits as a model of seedbed: the run axis is added by torch.func.

    model = OwnModule(family, module, info)
    model(tokens)                      # (R, B, T) → (R, B, T, V), each run with its own parameters

The module itself is only a template: its parameters are those of the pack, passed in by `functional_call`. Whether all
runs of a pack can go through it at once (`torch.func.vmap`) is tested before it is done; else every run is a pack by
itself. Random layers such as nn.Dropout draw from torch's own generator, so runs that use them do not repeat exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from seedbed.errors import UsageError
from seedbed.models.hooks import NO_HOOKS, Hooks
from seedbed.models.init import FloatArray
from seedbed.models.layers import Positions, select_positions
from seedbed.models.sequence_model import SequenceModel
from seedbed.random_streams import make_generator
from seedbed.settings import DatasetInfo

if TYPE_CHECKING:
    from seedbed.models.families.own_module import OwnModuleFamily

CHECKED_POSITIONS = 8  # tokens of the inputs that checks use


class ParameterTree(nn.Module):
    """Holds parameters under the dotted names that they have in the template."""

    weight_role = "matrix"
    d_in, n_parts = 1, 1

    def add(self, name: str, tensor: Tensor, is_parameter: bool) -> None:
        head, _, rest = name.partition(".")
        if rest:
            if head not in self._modules:
                self.add_module(head, ParameterTree())
            child = self._modules[head]
            assert isinstance(child, ParameterTree)
            child.add(rest, tensor, is_parameter)
        elif is_parameter:
            self.register_parameter(head, nn.Parameter(tensor))
        else:
            self.register_buffer(head, tensor, persistent=False)


class OwnModule(SequenceModel):
    """The stacked form of a module that maps tokens (B, T) to logits (B, T, V)."""

    def __init__(self, family: OwnModuleFamily, module: nn.Module, info: DatasetInfo) -> None:
        super().__init__(family)
        self.info = info
        self._template = (module,)  # in a tuple, so that it is no submodule: its parameters are not those of the pack
        self.held = ParameterTree()
        for name, parameter in module.named_parameters():
            self.held.add(name, torch.empty(1, *parameter.shape, device="meta"), is_parameter=True)
        for name, buffer in module.named_buffers():
            self.held.add(name, buffer, is_parameter=False)

    def forward(
        self, tokens: Tensor, positions: Positions = None, hooks: Hooks = NO_HOOKS, past: object = None
    ) -> Tensor:
        """Logits at the requested positions."""
        (template,) = self._template
        parameters: dict[str, Tensor] = dict(self.held.named_parameters())
        buffers = dict(self.held.named_buffers())

        def call(own: dict[str, Tensor], own_tokens: Tensor) -> Tensor:
            logits: Tensor = functional_call(template, {**own, **buffers}, (own_tokens,))
            return logits

        n_runs = len(next(iter(parameters.values())))
        if n_runs == 1:
            logits = call({name: one[0] for name, one in parameters.items()}, tokens[0])[None]
        else:
            logits = vmap(call, randomness="different")(parameters, tokens.expand(n_runs, -1, -1))
        return hooks("logits", select_positions(logits, positions))

    def train(self, mode: bool = True) -> Self:
        self._template[0].train(mode)
        return super().train(mode)


def make_seeded(make_module: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A module whose initial weights torch's generator draws from this seed; the generator itself is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make_module()


def make_initial_arrays(make_module: Callable[[], nn.Module], seed: int) -> dict[str, FloatArray]:
    """The weights that a module gives itself, for a run with this seed, by their names in an `OwnModule`."""
    module = make_seeded(make_module, int(make_generator(seed, "init/module").integers(2**63)))
    return {f"held.{name}": one.detach().double().numpy() for name, one in module.named_parameters()}


def check_module(module: nn.Module, kind: str, vocab_size: int, context_length: int) -> None:
    """Raises UsageError unless the output has the right shape, is causal, and every parameter gets a gradient."""
    n = min(CHECKED_POSITIONS, context_length)
    tokens = torch.arange(2 * n).reshape(2, n) % vocab_size
    module.eval()
    logits = module(tokens)
    expected = (2, n, vocab_size)
    if not isinstance(logits, Tensor) or tuple(logits.shape) != expected:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise UsageError(f"model.kind = {kind}: its module maps tokens {(2, n)} to {found}; expected logits {expected}")
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % vocab_size
    if not torch.allclose(module(changed)[:, :-1], logits[:, :-1], rtol=1e-5, atol=1e-6):
        raise UsageError(
            f"model.kind = {kind}: its logits depend on later tokens; mask them, so that a token is predicted from "
            "earlier ones alone"
        )
    weights = torch.linspace(-1, 1, logits.numel()).reshape(logits.shape)
    (logits * weights).sum().backward()
    dead = [
        name
        for name, one in module.named_parameters()
        if one.requires_grad and (one.grad is None or not one.grad.any())
    ]
    module.zero_grad()
    if dead:
        raise UsageError(f"model.kind = {kind}: no gradient reaches {', '.join(dead[:3])}; use it, or freeze it")


def stacks_exactly(make_module: Callable[[], nn.Module], vocab_size: int, context_length: int) -> bool:
    """Whether two runs through `vmap` give what each gives alone, in float64."""
    modules = [make_module().double().eval() for _ in range(2)]
    n = min(CHECKED_POSITIONS, context_length)
    tokens = (torch.arange(4 * n).reshape(2, 2, n) * 7) % vocab_size
    stacked = {
        name: torch.stack([dict(module.named_parameters())[name].detach() for module in modules])
        for name, _ in modules[0].named_parameters()
    }
    try:
        together = vmap(lambda own, inputs: functional_call(modules[0], own, (inputs,)))(stacked, tokens)
    except (
        RuntimeError,
        ValueError,
        NotImplementedError,
    ):  # a data-dependent branch, an in-place update, a missing rule
        return False
    alone = torch.stack([module(inputs) for module, inputs in zip(modules, tokens, strict=True)])
    return torch.allclose(together, alone, rtol=1e-10, atol=1e-12)
