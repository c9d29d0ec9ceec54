"""The contract of a model family: a settings group whose fields are its settings and whose methods describe the model.

    settings.model.build(info)                # the torch module, parameters on the meta device
    settings.model.count_parameters(info)     # the same counts, without torch

Planning, packing, training, sampling and analyses never ask which kind of model it is: they call the methods below. So
a new family is one file of settings, one of modules, and one line in `families/__init__.py`. Only faster versions
(`models/fast/`, `training/large_output.py`) name the modules that they know, and leave all others as they are.
Estimates run wherever a study is planned, so only the methods under "the model" may import torch, inside the method.
`tests/contracts/family.py` holds every family to this contract.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from seedbed.records import ParameterCounts
from seedbed.settings import DatasetInfo, ModelSettings, setting, when_task

if TYPE_CHECKING:
    from seedbed.models.decoding import Decoder
    from seedbed.models.init import FloatArray, Initializer
    from seedbed.models.sequence_model import SequenceModel

InitScheme = Literal["library", "normal-0.02", "xavier-normal", "xavier-uniform", "orthogonal"]
Shapes: TypeAlias = dict[str, tuple[int, ...]]  # by parameter name, without the run axis


@dataclass(frozen=True)
class EmbeddingTable:
    """A table that `model.embeddings` can fill with frozen rows."""

    module: str  # submodule whose `weight` it is
    n_rows: int
    dim: int


@dataclass(frozen=True)
class GateHooks:
    """Hooks of a recurrent family that gate statistics read, as `<layers>.<layer>.<name>`."""

    layers: str
    units: tuple[str, ...]  # gates in [0, 1], and the candidate
    candidate: str  # in [−1, 1]
    state: str  # what a layer carries along time
    state_symbol: str  # in tables

    @property
    def gates(self) -> tuple[str, ...]:
        return tuple(name for name in self.units if name != self.candidate)


class Family(ModelSettings):
    """A kind of model. The class attributes say what it is like, the methods what follows from its settings."""

    causal: ClassVar[bool] = True  # an output depends only on its own and earlier tokens
    has_attention: ClassVar[bool] = False  # has `layers` blocks of `heads`, with the hooks `blocks.N.attention.*`
    carries_state: ClassVar[bool] = False  # decodes text of any length from a state of fixed size
    caches_prefixes: ClassVar[bool] = True  # has `prefill`, so that equal beginnings of samples are computed once
    pads_inputs: ClassVar[bool] = False  # reads whole contexts: shorter texts are padded
    # Whether linear layers may use a 16-bit copy of the weights. Not where a weight is used at every position in turn:
    # its gradients would be summed over positions in bf16.
    uses_bf16_weights: ClassVar[bool] = True
    max_compiled_positions: ClassVar[int | None] = None  # longest sample worth compiling; None: any
    hidden_hooks: ClassVar[str]  # pattern of the hooks whose units are analysed as neurons
    gate_hooks: ClassVar[GateHooks | None] = None

    @property
    def can_share_prefixes(self) -> bool:
        """Whether equal beginnings of samples are computed once: not with dropout, whose masks they would share."""
        return self.caches_prefixes and not any(value for name, value in self if name.endswith("dropout"))

    # ---- sizes ----

    def embedding_tables(self, info: DatasetInfo) -> dict[str, EmbeddingTable]:
        """Token and position tables by their name in a file of embeddings (`tokens`, `positions`)."""
        raise NotImplementedError

    def layer_shapes(self, info: DatasetInfo) -> Shapes:
        """Shapes of all other parameters by name."""
        raise NotImplementedError

    def parameter_shapes(self, info: DatasetInfo) -> Shapes:
        """Shapes of all parameters by name; those of frozen tables are included."""
        tables = self.embedding_tables(info).values()
        return {f"{table.module}.weight": (table.n_rows, table.dim) for table in tables} | self.layer_shapes(info)

    def count_parameters(self, info: DatasetInfo) -> ParameterCounts:
        """Trainable parameters; `non_embedding` excludes the tables, and so a tied output matrix."""
        return _count_parameters(self, info)

    def forward_flops(self, info: DatasetInfo, n_scored: int) -> float:
        """FLOPs of the matrix products of one sample with logits at `n_scored` positions."""
        raise NotImplementedError

    def activations_per_token(self, info: DatasetInfo) -> int:
        """Floats saved for the backward pass, per token of a batch."""
        raise NotImplementedError

    def attention_scores_per_token(self, info: DatasetInfo) -> int:
        """How many of these are attention scores and their softmax, which kernels of a GPU do not keep."""
        return 0

    def widest_activations(self) -> int:
        """Activations per token of the widest layers without the logits; bounds the chunks of an evaluation."""
        raise NotImplementedError

    def max_context(self, context: int) -> int | None:
        """The longest input in tokens of a model trained with this context length; None if unlimited."""
        return None

    # ---- the model (these import torch) ----

    def build(self, info: DatasetInfo) -> SequenceModel:
        """The model, its parameters on the meta device."""
        raise NotImplementedError

    def initial_arrays(self, model: SequenceModel, seed: int) -> dict[str, FloatArray]:
        """Initial parameters of one run by name, without the run axis."""
        from seedbed.models.init import initial_weights

        return initial_weights(model, self, seed)

    def initializers(self, model: SequenceModel) -> Mapping[str, Initializer]:
        """Initializers of parameters that do not follow `model.init`, by parameter name."""
        return {}

    def make_decoder(self, model: SequenceModel, n_runs: int, n_samples: int, capacity: int) -> Decoder:
        """A decoder of this model for at most `capacity` tokens per sample."""
        raise NotImplementedError

    def make_static_decoder(self, model: SequenceModel, n_runs: int, n_samples: int, capacity: int) -> Decoder | None:
        """A decoder that can be captured as a CUDA graph; None if there is none for this model."""
        return None

    def default_hop(self, context: int) -> int:
        """Tokens by which a full window advances while generating; 0: the window keeps growing."""
        return 0


@lru_cache(maxsize=4096)
def _count_parameters(family: Family, info: DatasetInfo) -> ParameterCounts:
    embedding = sum(table.n_rows * table.dim for table in family.embedding_tables(info).values())
    non_embedding = count_elements(family.layer_shapes(info))
    if family.embeddings is not None:
        return ParameterCounts(total=non_embedding, non_embedding=non_embedding, frozen=embedding)
    return ParameterCounts(total=embedding + non_embedding, non_embedding=non_embedding)


def count_elements(shapes: Shapes, prefix: str = "") -> int:
    """Number of parameters whose name starts with the prefix."""
    return sum(prod(shape) for name, shape in shapes.items() if name.startswith(prefix))


def linear_shapes(name: str, d_in: int, d_out: int, bias: bool) -> Shapes:
    """Shapes of a `layers.Linear`."""
    return {f"{name}.weight": (d_out, d_in)} | ({f"{name}.bias": (d_out,)} if bias else {})


def norm_shapes(name: str, dim: int) -> Shapes:
    """Shapes of a `layers.LayerNorm` or `BatchNorm`."""
    return {f"{name}.weight": (dim,), f"{name}.bias": (dim,)}


def output_shapes(dim: int, n_logits: int, bias: bool, tied: bool) -> Shapes:
    """Shapes of a `layers.OutputLayer` named `output`."""
    return ({} if tied else {"output.weight": (n_logits, dim)}) | ({"output.bias": (n_logits,)} if bias else {})


def dropout_rate(meaning: str) -> Any:
    """A setting that is a dropout rate."""
    return setting(0.0, meaning, per_run=True, nonzero_adds_work=True)


def frozen_embeddings(meaning: str) -> Any:
    """The setting `embeddings`; the meaning says which tables of the file are used."""
    return setting(None, meaning, active_when=when_task("has_corpus"), names_local_file=True)


def positive_init_scale() -> Any:
    """The setting `init_scale`, the same in all families."""
    return setting(1.0, "factor on all initial matrices and tables", per_run=True, gt=0.0, le=1_000.0)
