"""Tasks, one file for each kind; importing this package registers them, in the order in which they are listed."""

# ruff: noqa: I001
from seedbed.tasks.arithmetic import ArithmeticSettings
from seedbed.tasks.text import TextSettings
from seedbed.tasks.labels import LabelsSettings
from seedbed.tasks.addition import AdditionSettings

__all__ = ["AdditionSettings", "ArithmeticSettings", "LabelsSettings", "TextSettings"]
