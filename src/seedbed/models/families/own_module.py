"""A family around any nn.Module from tokens (B, T) to logits (B, T, V): what a user subclasses.

    class Mine(OwnModuleFamily):
        kind: Literal["mine"] = setting("mine", "which model")
        dim: int = setting(32, "width", ge=1)

        def make_module(self, info): ...        # a torch module with its own initial weights

It needs torch even to plan, since only the module itself knows its parameters.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from seedbed.models.families.base import EmbeddingTable, Family, Shapes, count_elements
from seedbed.settings import DatasetInfo

if TYPE_CHECKING:
    from torch import nn

    from seedbed.models.decoding import Decoder
    from seedbed.models.init import FloatArray
    from seedbed.models.sequence_model import SequenceModel


class OwnModuleFamily(Family):
    """Settings of a model that is an ordinary torch module, one run at a time."""

    hidden_hooks: ClassVar[str] = "logits"
    uses_bf16_weights: ClassVar[bool] = False
    caches_prefixes: ClassVar[bool] = False
    if not TYPE_CHECKING:  # settings of other families that mean nothing here: the module initialises itself
        embeddings: ClassVar[None] = None
        init: ClassVar[str] = "own"
        init_scale: ClassVar[float] = 1.0

    def make_module(self, info: DatasetInfo) -> nn.Module:
        """The module of one run, initialised by torch's global generator."""
        raise NotImplementedError

    @property
    def stackable(self) -> bool:  # type: ignore[override]  # known only once the module was tried
        return _is_stackable(self)

    # ---- sizes ----

    def embedding_tables(self, info: DatasetInfo) -> dict[str, EmbeddingTable]:
        return {}

    def layer_shapes(self, info: DatasetInfo) -> Shapes:
        return {f"held.{name}": tuple(one.shape) for name, one in _checked_module(self, info).named_parameters()}

    def forward_flops(self, info: DatasetInfo, n_scored: int) -> float:
        """Two for each parameter and token, as if every parameter were part of a matrix product."""
        return 2.0 * info.context_length * count_elements(self.layer_shapes(info))

    def activations_per_token(self, info: DatasetInfo) -> int:
        """A guess: as many as rows of all matrices, twice, and the logits with their softmax."""
        rows = sum(shape[0] for shape in self.layer_shapes(info).values() if len(shape) > 1)
        return 2 * (rows + info.vocab_size)

    def widest_activations(self) -> int:
        return 2**10

    def max_context(self, context: int) -> int | None:
        return context

    # ---- the model ----

    def build(self, info: DatasetInfo) -> SequenceModel:
        from seedbed.models.stacked_module import OwnModule

        return OwnModule(self, _checked_module(self, info), info)

    def initial_arrays(self, model: SequenceModel, seed: int) -> dict[str, FloatArray]:
        """The weights that the module gives itself, from torch's generator seeded for this run."""
        from seedbed.models.stacked_module import OwnModule, make_initial_arrays

        assert isinstance(model, OwnModule)
        return make_initial_arrays(lambda: self.make_module(model.info), seed)

    def make_decoder(self, model: SequenceModel, n_runs: int, n_samples: int, capacity: int) -> Decoder:
        from seedbed.models.decoding import RecomputingDecoder

        return RecomputingDecoder(model, n_samples)


@lru_cache(maxsize=64)
def _checked_module(family: OwnModuleFamily, info: DatasetInfo) -> Any:
    """A module of this family that has passed the checks."""
    from seedbed.models.stacked_module import check_module, make_seeded

    module = make_seeded(lambda: family.make_module(info), 0)
    check_module(module, family.kind, info.vocab_size, info.context_length)
    return module


@lru_cache(maxsize=64)
def _is_stackable(family: OwnModuleFamily) -> bool:
    from seedbed.models.stacked_module import stacks_exactly

    info = DatasetInfo(vocab_size=11, context_length=8, n_train=1, n_classes=2, padding_id=0)
    return stacks_exactly(lambda: family.make_module(info), info.vocab_size, info.context_length)
