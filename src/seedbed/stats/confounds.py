"""Settings that differ between compared groups besides the one a question asks about.

A setting that varies inside every group in the same way is balanced; a setting that only some kinds have, or that has
no effect under another value of the one asked about, follows from it. Any other difference could explain the result as
well, so there is no verdict unless the question allows it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from seedbed.format import format_value, join_words, setting_label
from seedbed.settings import TRAINING_BUDGETS, Settings, Value

# They decide when something is shown or saved, or how it is timed, and change no metric.
NEUTRAL_SETTINGS: Final = frozenset(
    {
        "train.save_every",
        "train.save_steps",
        "train.exclusive",
        "train.sample_every",
        "train.sample_tokens",
        "train.prompt",
    }
)
# Of different kinds of model, parts of different layers that happen to have the same name.
KIND_SETTINGS: Final = frozenset({"model.hidden", "model.activation"})
MAX_LISTED_CONFOUNDS: Final = 8
MAX_LISTED_VALUES: Final = 4
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Confound:
    """A setting that differs between groups, with its values in each group."""

    setting: str
    values: Mapping[str, tuple[Value, ...]]

    def __str__(self) -> str:
        """`steps (1,201 vs 60)`."""
        texts = list(dict.fromkeys(join_words([_format(value) for value in values]) for values in self.values.values()))
        if len(texts) == 2:
            return f"{setting_label(self.setting)} ({' vs '.join(texts)})"
        more = " …" if texts[MAX_LISTED_VALUES:] else ""
        return f"{setting_label(self.setting)} ({', '.join(texts[:MAX_LISTED_VALUES])}{more})"


def _format(value: Value) -> str:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return "unset" if value is None else f"{value:,}" if is_count else format_value(value)


def find_confounds(configs: Mapping[str, Mapping[Key, Settings]], asked: Collection[str] = ()) -> tuple[Confound, ...]:
    """The settings, other than those asked about, in which groups differ; `configs` are each group's, by combination.

    Configs of the same combination are compared with one another. To ask about `parameters` is to ask about all
    settings of the model.
    """
    differing: dict[str, None] = {}
    combinations = dict.fromkeys(combination for group in configs.values() for combination in group)
    for combination in combinations:
        compared = [group[combination] for group in configs.values() if combination in group]
        differing |= dict.fromkeys(_differing_settings(compared))
    return tuple(
        Confound(name, {group: _values(by_combination.values(), name) for group, by_combination in configs.items()})
        for name in differing
        if not _is_asked(name, asked) and name not in NEUTRAL_SETTINGS
    )


def _differing_settings(configs: Sequence[Settings]) -> Iterable[str]:
    """The settings that have an effect in several of these configs and differ there."""
    names = dict.fromkeys(name for config in configs for name in config.flat())
    for name in names:
        always = name in TRAINING_BUDGETS  # steps against epochs is a difference, though only one has an effect
        values = {_hashable(config, name) for config in configs if always or config.is_active(name)}
        if len(values) > 1:
            yield name


def _hashable(config: Settings, name: str) -> Hashable:
    value = config.get(name) if config.is_active(name) else None
    return tuple(value) if isinstance(value, list) else value


def _values(configs: Iterable[Settings], name: str) -> tuple[Value, ...]:
    return tuple(dict.fromkeys(_hashable(config, name) for config in configs))


def _is_asked(name: str, asked: Collection[str]) -> bool:
    if "model.kind" in asked and name in KIND_SETTINGS:
        return True
    return name in asked or ("parameters" in asked and name.startswith("model."))


def merge_confounds(confounds: Iterable[Confound]) -> list[Confound]:
    """Each setting once, as it was found last."""
    return list({confound.setting: confound for confound in confounds}.values())


def describe_confounds(confounds: Sequence[Confound]) -> str:
    """`steps (1,201 vs 60) and width (64 vs 32)`."""
    names = [str(confound) for confound in confounds[:MAX_LISTED_CONFOUNDS]]
    n_more = len(confounds) - len(names)
    return join_words([*names, f"{n_more} more settings"] if n_more else names)


def confounds_to_dicts(confounds: Sequence[Confound]) -> list[dict[str, Value]]:
    return [{"setting": confound.setting, "values": dict(confound.values)} for confound in confounds]
