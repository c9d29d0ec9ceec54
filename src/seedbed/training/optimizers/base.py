"""The Optimizer contract: turn the gradients of all runs of a pack into updates of their weights, in place.

The Trainer owns everything around that: gradients, clip scales, divergence, learning-rate schedules and the moving
average. An update has two halves, because the first consists of tiny operations that a GPU runs compiled or fused with
the Trainer's own, while the second reads and writes every weight:

    hyperparameters = optimizer.next_hyperparameters(lr)
    optimizer.clip_and_step(active, scales, *hyperparameters)

Both run inside CUDA graphs and under torch.compile: no `.item()`, no branch on a value that is on the device. A run
that is not active has learning rate 0 and arrives at `step` with zero gradients, so that its weights do not change.

Rules that treat all weights alike derive from `ElementwiseOptimizer`, which works on whole rows of the flat weights.
Others derive from `Optimizer` and see each parameter with its shape and role (`FlatParameters.params`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seedbed.models.layers import Role
from seedbed.models.parameters import FlatParameters
from seedbed.settings import OPTIMIZERS, TrainSettings

if TYPE_CHECKING:
    from seedbed.training.trainer import Trainer

MAX_CHUNK_ELEMENTS = 2**17  # stays in cache between operations, which whole rows would not (docs/log.md)
ROLES_WITHOUT_DECAY: tuple[Role, ...] = ("bias", "norm")  # unless train.decay_parameters is "all"
# What `Trainer._active_and_lr` returns: which runs are active; their clip scales and hyperparameters.
ActiveAndHyperparameters: TypeAlias = tuple[Bool[Tensor, "R"], tuple[Float[Tensor, "R 1"], ...]]


class Optimizer(ABC):
    """An update rule for all runs of a pack; each run has its own hyperparameters."""

    # What `register_optimizer` enters into `settings.OPTIMIZERS`, whose built-in kinds are known without torch.
    kind: ClassVar[str] = ""
    n_moments: ClassVar[int]
    settings: ClassVar[tuple[str, ...]] = ()
    label: ClassVar[str] = ""
    n_matrix_moments: ClassVar[int | None] = None

    def __init__(self, train_settings: Sequence[TrainSettings], parameters: FlatParameters) -> None:
        self.train_settings, self.parameters = train_settings, parameters
        self.lr, self.weight_decay = self.per_run(lambda t: t.lr), self.per_run(lambda t: t.weight_decay)
        self.n_updates = torch.zeros_like(self.lr)

    @abstractmethod
    def hyperparameters(self, lr: Float[Tensor, "R 1"]) -> tuple[Float[Tensor, "R 1"], ...]:
        """The arguments of this update's `step`: computed in float64 from `lr`, rounded to the weights' dtype."""

    @abstractmethod
    def step(self, *hyperparameters: Float[Tensor, "R 1"]) -> None:
        """Updates the weights from the gradients, which are clipped, and zero in inactive runs."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """What future updates depend on besides weights and settings; each tensor has the run as its first axis."""

    def compile(self) -> None:  # noqa: B027  optional
        """Compiles what torch.compile makes faster (mode "compiled")."""

    def fuse(self) -> Callable[[Trainer, Tensor, Tensor], ActiveAndHyperparameters] | None:
        """Switches to fused GPU kernels (mode "graph") and returns the one that replaces `Trainer._active_and_lr`.

        None where there are none for this rule, device or dtype.
        """
        return None

    def next_hyperparameters(self, lr: Float[Tensor, "R 1"]) -> tuple[Float[Tensor, "R 1"], ...]:
        """Counts an update and returns its hyperparameters."""
        self.n_updates += 1
        return self.hyperparameters(lr)

    def clip_and_step(
        self, active: Bool[Tensor, "R"], scales: Float[Tensor, "R 1"], *hyperparameters: Float[Tensor, "R 1"]
    ) -> None:
        """Scales each run's gradient, sets that of inactive runs to zero even where it is NaN, and makes a `step`."""
        if not is_unclipped(active, scales):
            self.parameters.gradients.mul_(scales).masked_fill_(~active[:, None], 0.0)
        self.step(*hyperparameters)

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restores a state, in place: captured graphs refer to these tensors."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])

    def per_run(self, get: Callable[[TrainSettings], float]) -> Float[Tensor, "R 1"]:
        """One value of each run's settings, in float64."""
        values = [[get(train)] for train in self.train_settings]
        return torch.tensor(values, dtype=torch.float64, device=self.parameters.weights.device)

    def decays(self, role: Role) -> bool:
        """Whether weight decay applies to parameters of this role."""
        return self.train_settings[0].decay_parameters == "all" or role not in ROLES_WITHOUT_DECAY


class ElementwiseOptimizer(Optimizer):
    """A rule that treats all weights alike: `update` on whole rows of the flat weights, or on some of their columns.

    The second hyperparameter is the weight decay; `NO_DECAY` is its value for parameters that do not decay.
    """

    NO_DECAY: ClassVar[float] = 0.0

    def __init__(
        self,
        train_settings: Sequence[TrainSettings],
        parameters: FlatParameters,
        columns: Sequence[slice] | None = None,
    ) -> None:
        """`columns` are those of the flat weights that are updated; None: all."""
        super().__init__(train_settings, parameters)
        n_runs, n_weights = parameters.weights.shape
        self.columns = [slice(0, n_weights)] if columns is None else columns
        n_columns = sum(one.stop - one.start for one in self.columns)
        n_moments = OPTIMIZERS[train_settings[0].optimizer].n_moments
        self.moments = [parameters.weights.new_zeros(n_runs, n_columns) for _ in range(n_moments)]
        self.decay_mask: Bool[Tensor, "P"] | None = None  # None: all weights decay
        params = parameters.params()
        if not all(self.decays(param.role) for param in params):
            mask = torch.zeros(1, n_weights, dtype=torch.bool, device=parameters.weights.device)
            for param, view in zip(params, parameters.views(mask).values(), strict=True):
                view.fill_(self.decays(param.role))
            self.decay_mask = mask[0]
        # A static method of the class, not a bound one: no reference cycle. Compiled or fused versions replace it.
        self.clipped_update = clip_and_mask(self.update)

    @staticmethod
    @abstractmethod
    def update(w: Tensor, moments: Sequence[Tensor], g: Tensor, *hyperparameters: Tensor) -> None:
        """Updates weights and moments in place, (R, n) each, from their gradients."""

    def step(self, *hyperparameters: Float[Tensor, "R 1"]) -> None:
        self._update_columns(self.update, (), hyperparameters)

    def clip_and_step(
        self, active: Bool[Tensor, "R"], scales: Float[Tensor, "R 1"], *hyperparameters: Float[Tensor, "R 1"]
    ) -> None:
        """Clips and updates in one pass over the weights."""
        if is_unclipped(active, scales):
            self.step(*hyperparameters)
        else:
            self._update_columns(self.clipped_update, (scales, active[:, None]), hyperparameters)

    def _update_columns(
        self, update: Callable[..., None], clipping: tuple[Tensor, ...], hyperparameters: tuple[Tensor, ...]
    ) -> None:
        weights, gradients = self.parameters.weights, self.parameters.gradients
        if self.decay_mask is not None:
            lr, decay, *rest = hyperparameters
            hyperparameters = lr, torch.where(self.decay_mask, decay, self.NO_DECAY), *rest
        max_width = max(1, MAX_CHUNK_ELEMENTS // len(weights)) if weights.device.type == "cpu" else weights.shape[1]
        for columns, moment_columns in _column_chunks(self.columns, max_width):
            moments = [moment[:, moment_columns] for moment in self.moments]
            numbers = (x if x.shape[1] == 1 else x[:, columns] for x in hyperparameters)
            update(weights[:, columns], moments, gradients[:, columns], *clipping, *numbers)

    def compile(self) -> None:
        self.clipped_update = torch.compile(self.clipped_update, dynamic=False)

    def state(self) -> dict[str, Tensor]:
        # The keys are the names in checkpoint files.
        return {"updates": self.n_updates} | {f"moment{i}": moment for i, moment in enumerate(self.moments)}


def is_unclipped(active: Bool[Tensor, "R"], scales: Float[Tensor, "R 1"]) -> bool:
    """Whether all runs are active and none is clipped, which is usual; False where checking would synchronize."""
    return scales.device.type == "cpu" and bool((active & (scales[:, 0] == 1)).all())


def clip_and_mask(update: Callable[..., None]) -> Callable[..., None]:
    """The update with clipped gradients; those of inactive runs become zero, even where they are NaN."""

    def clipped_update(
        w: Tensor, moments: Sequence[Tensor], g: Tensor, clip_scale: Tensor, active: Tensor, *hyperparameters: Tensor
    ) -> None:
        update(w, moments, torch.where(active, g * clip_scale, 0.0), *hyperparameters)

    return clipped_update


def _column_chunks(columns: Sequence[slice], max_width: int) -> Iterator[tuple[slice, slice]]:
    """Chunks of these columns, and where they lie when the columns are concatenated."""
    n_before = 0
    for one in columns:
        for start in range(one.start, one.stop, max_width):
            stop, offset = min(start + max_width, one.stop), n_before - one.start
            yield slice(start, stop), slice(start + offset, stop + offset)
        n_before += one.stop - one.start
