"""Optimizers: `base.py` has the contract, each other file one update rule; `settings.OPTIMIZERS` lists them.

    optimizer = make_optimizer(train_settings, parameters)

A new optimizer is a new file here and its line in that table; one from outside calls `register_optimizer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TypeVar

from seedbed.models.parameters import FlatParameters
from seedbed.settings import OPTIMIZERS, OptimizerInfo, TrainSettings, register_optimizer_info
from seedbed.training.optimizers.base import ElementwiseOptimizer, Optimizer

__all__ = ["ElementwiseOptimizer", "Optimizer", "make_optimizer", "register_optimizer"]
OptimizerT = TypeVar("OptimizerT", bound=Optimizer)


def make_optimizer(train_settings: Sequence[TrainSettings], parameters: FlatParameters) -> Optimizer:
    """The optimizer that `train.optimizer` names, for all runs of a pack."""
    module, _, name = OPTIMIZERS[train_settings[0].optimizer].implementation.partition(":")
    optimizer: Optimizer = getattr(import_module(module), name)(train_settings, parameters)
    return optimizer


def register_optimizer(cls: type[OptimizerT]) -> type[OptimizerT]:
    """Makes an optimizer known under its `kind`; usable as a decorator."""
    if not cls.kind:
        raise ValueError(f"{cls.__name__} needs a kind, the value of train.optimizer that names it")
    implementation = f"{cls.__module__}:{cls.__qualname__}"
    info = OptimizerInfo(implementation, cls.n_moments, cls.settings, cls.label, cls.n_matrix_moments)
    register_optimizer_info(cls.kind, info)
    return cls
