"""The data of line charts as plain numbers: which panels a figure has, and what distinguishes the lines in them.

There is a panel for each value of the figure's row and column settings, and for each metric or quantity. If a setting
is coloured, each metric has its own panel; otherwise the metrics of one quantity share a panel, and their splits are
coloured. A figure that names no colour is coloured by the settings that vary in it (`with_chosen_colours`).

>>> import numpy as np
>>> downsample_indices(np.array([0.0, 1.0, 9.0, 1.0, 1.0, 1.0, -5.0, 1.0, 1.0, 1.0]), 4)
array([0, 2, 6, 9])
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import nan
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seedbed.charts.axis_labels import (
    JOINT,
    isolate_direction,
    label_with_unit,
    metric_label,
    metric_quantity,
    metric_unit,
    quantity_label,
    setting_label,
    setting_words,
    value_label,
)
from seedbed.errors import UsageError
from seedbed.format import capitalise, format_config, format_range, join_words
from seedbed.records import Curve, StoredRun
from seedbed.settings import Value
from seedbed.specs import FigureSpec
from seedbed.stats.chance import chance_level
from seedbed.stats.groups import is_numeric, setting_value, varying_settings
from seedbed.stats.metric_registry import MetricName, metric_direction, training_metric
from seedbed.stats.run_statistics import Statistic
from seedbed.stats.summary import RunCurves, group_by_config
from seedbed.study.toml_text import did_you_mean
from seedbed.tasks.base import stored_dataset_info

FloatArray: TypeAlias = NDArray[np.float64]
Scale: TypeAlias = Literal["linear", "log", "log2"]
Palette: TypeAlias = Literal["single", "category", "ordinal", "bar"]

TRAINING_CLOCKS: Final = ("step", "epoch", "tokens", "time")
NON_SETTING_NAMES: Final = (*TRAINING_CLOCKS, "parameters", "alpha", "seed", "none")  # besides settings, in a figure

CONTEXT_LENGTH_LABEL: Final = "context (tokens)"
NO_COLOUR: Final = "none"  # as the colour of a figure: by split, though settings vary
MAX_POINTS_PER_LINE: Final = 500  # a panel cannot show more
MAX_POINTS_PER_FIGURE: Final = 16_000  # so that a page can hold many figures
MIN_POINTS_PER_LINE: Final = 24
MAX_DASHES: Final = 4  # patterns that a reader can tell apart
MAX_COLOURS: Final = 8  # that a reader can tell apart; more numbers get a colour bar
MAX_UNORDERED_NUMBERS: Final = 3  # up to here numbers get the strong colours of categories

STATUS_NOTES: Final = {
    "diverged": "diverged and are excluded from means",
    "failed": "failed and are excluded from means",
    "running": "are still running",
    "stopped": "were stopped early",
    "planned": "have not started",
}


@dataclass(frozen=True)
class Panel:
    """One set of axes; panels with the same y title share their y domain, so that they can be compared by eye."""

    metric: str
    title: str
    y_title: str
    scale: Scale = "linear"
    is_fraction: bool = False  # its y axis is 0 to 1
    non_negative: bool = False  # bands are cut at 0
    chance: float | None = None  # what guessing achieves here


@dataclass(frozen=True)
class Line:
    """One line of a panel: y against x, with a band from low to high over seeds."""

    panel: int
    name: str
    colour: Value
    dash: str
    x: tuple[Value, ...]
    y: FloatArray
    low: FloatArray
    high: FloatArray
    n: int  # runs in the mean
    n_runs: int  # runs of its config, including those left out
    diverged: bool = False  # or failed, where the line ends


@dataclass(frozen=True)
class StoppingMark:
    """Where a stopping rule (named as in the legend) would have stopped, on the mean over a config's seeds."""

    panel: int
    rule: str
    x: float
    y: float
    name: str


@dataclass(frozen=True)
class Axis:
    """The title of an axis or legend, and its scale: None if its values are categories."""

    title: str
    scale: Scale | None = "linear"


@dataclass(frozen=True)
class LineChart:
    """The data of a line chart."""

    title: str
    panels: tuple[Panel, ...]
    n_columns: int
    lines: tuple[Line, ...]
    x: Axis
    colour: Axis | None
    dash_title: str | None  # of the legend of dashes
    notes: tuple[str, ...]
    mark_type: Literal["line", "point"] = "line"
    stopping_marks: tuple[StoppingMark, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(np.isfinite(line.y).any() for line in self.lines)

    @cached_property
    def palette(self) -> Palette:
        """How colours are chosen: by name, along a ramp of a few steps, or from a colour bar."""
        n = len({line.colour for line in self.lines})
        if self.colour is None or n < 2:
            return "single"
        if (
            self.colour.scale is None
            or n <= MAX_UNORDERED_NUMBERS
            or (self.colour.title == "seed" and n <= MAX_COLOURS)
        ):
            return "category"
        return "ordinal" if n <= MAX_COLOURS else "bar"

    @cached_property
    def colour_labels(self) -> list[str]:
        """The colours of the legend in order: numbers ascending, others as they appear."""
        values = list(dict.fromkeys(line.colour for line in self.lines))
        return list(dict.fromkeys(map(value_label, sorted(values) if is_numeric(values) else values)))

    @cached_property
    def dash_labels(self) -> list[str]:
        return list(dict.fromkeys(line.dash for line in self.lines if line.dash))


def downsample_indices(values: FloatArray, max_points: int = MAX_POINTS_PER_LINE) -> NDArray[np.int64]:
    """Indices of at most `max_points` values to keep: both ends, and each chunk's minimum, maximum and first NaN."""
    if len(values) <= max_points:
        return np.arange(len(values))
    indices = {0, len(values) - 1}
    missing = np.isnan(values)
    has_gaps = bool(missing.any())
    lows, highs = (np.where(missing, end, values) for end in (np.inf, -np.inf))
    for chunk in _inner_chunks(len(values), max(1, (max_points - 2) // (3 if has_gaps else 2))):
        first = int(chunk[0])
        indices |= {first + int(lows[chunk].argmin()), first + int(highs[chunk].argmax())}
        if has_gaps and missing[chunk].any():
            indices.add(first + int(missing[chunk].argmax()))
    return np.array(sorted(indices))


@lru_cache(maxsize=16)
def _inner_chunks(n_values: int, n_chunks: int) -> list[NDArray[np.int64]]:
    """The indices between both ends in chunks; the lines of a chart mostly have the same number of values."""
    return np.array_split(np.arange(1, n_values - 1), n_chunks)


# ---- runs ----


def clock_units_per_step(clock: str, run: StoredRun) -> float:
    """Epochs or tokens that one step takes; NaN where a corpus is needed that is missing here."""
    if clock not in ("epoch", "tokens"):
        return 1.0
    info = stored_dataset_info(run)
    if clock == "tokens":
        return run.settings.tokens_per_update(info)
    return nan if info is None else 1 / run.settings.updates_per_epoch(info)


def measured_clock_units_per_step(clock: str, run: RunCurves) -> float:
    """One step of this run in units of a clock; compute time is spread evenly over steps. NaN if unknown."""
    if clock != "time":
        return clock_units_per_step(clock, run.run)
    return run.seconds.get("compute", nan) / run.run.step if run.run.step else nan


def metric_curve(run: RunCurves, metric: str) -> Curve:
    """The run's curve of this metric; `gap/accuracy` is the train–validation gap at each step."""
    if not metric.startswith("gap/"):
        return run.curve(metric)
    quantity = metric.removeprefix("gap/")
    train, val = map(run.curve, (training_metric(quantity, run.curves), f"val/{quantity}"))
    steps, of_train, of_val = np.intersect1d(train.steps, val.steps, return_indices=True)
    sign = 1 if metric_direction(quantity) == "max" else -1
    return Curve(steps, sign * (train.values[of_train] - val.values[of_val]))


def check_setting_names(runs: Sequence[RunCurves], names: Iterable[str | None]) -> None:
    """Raises UsageError for a name that is no setting of any of these runs."""
    settings = {id(run.run.settings): run.run.settings for run in runs}  # which the runs of a config mostly share
    known = dict.fromkeys(
        [*(name for one in settings.values() for name in one.flat()), *(n for r in runs for n in r.config)]
    )
    for name in JOINT.join(filter(None, names)).split(JOINT):
        if name and runs and name not in NON_SETTING_NAMES and name not in known:
            guess = did_you_mean(name, (*NON_SETTING_NAMES, *known))
            raise UsageError(
                f"{name} is not a setting of these runs{guess}; expected {', '.join(NON_SETTING_NAMES)}, or a setting "
                "that `seedbed plan STUDY --print-config` lists"
            )


def check_clock(name: str) -> None:
    """Raises UsageError for an x axis along which a single run has no curve."""
    if name not in TRAINING_CLOCKS:
        clocks = ", ".join(TRAINING_CLOCKS)
        raise UsageError(f"x = {name}: learning curves are drawn over {clocks}; kind sweep draws over a setting")


def channel_value(run: RunCurves, name: str) -> Value:
    """A run's value of a setting, or of several joined by `+`: `GPT, 0.01`."""
    if JOINT not in name:
        return setting_value(run, name)
    return ", ".join(value_label(setting_value(run, part)) for part in name.split(JOINT))


def distinct_values(runs: Sequence[RunCurves], name: str | None) -> list[Value]:
    """The distinct values of a setting: numbers sorted, others in order of appearance."""
    if name is None:
        return [None]
    values = list(dict.fromkeys(channel_value(run, name) for run in runs))
    return sorted(values) if is_numeric(values) else values


# ---- panels ----


@dataclass(frozen=True)
class PanelSpec:
    """One panel: its metrics, and the row and column values of its runs."""

    metrics: tuple[str, ...]
    row: Value
    column: Value

    def select(self, figure: FigureSpec, runs: Sequence[RunCurves]) -> list[RunCurves]:
        """The runs of this panel."""
        facets = [(name, value) for name, value in ((figure.row, self.row), (figure.column, self.column)) if name]
        return [run for run in runs if all(channel_value(run, name) == value for name, value in facets)]


def panel_specs(
    figure: FigureSpec, runs: Sequence[RunCurves], metrics_by_panel: Sequence[tuple[str, ...]]
) -> tuple[list[PanelSpec], int]:
    """Panels from left to right, top to bottom, and how many stand in a row.

    Metrics are rows if a setting has the columns, else columns.
    """
    rows, columns = distinct_values(runs, figure.row), distinct_values(runs, figure.column)
    specs = [PanelSpec(metrics, row, column) for row, metrics, column in product(rows, metrics_by_panel, columns)]
    n = len(metrics_by_panel)
    return specs, max(1, len(columns)) if figure.column else n if figure.row or n == 3 else min(2, n)


def group_metrics(figure: FigureSpec) -> list[tuple[str, ...]]:
    """The metrics of each panel: one, if a setting is coloured, else those of one quantity."""
    if figure.colour:
        return [(metric,) for metric in figure.metrics]
    quantities = dict.fromkeys(map(metric_quantity, figure.metrics))
    return [tuple(name for name in figure.metrics if metric_quantity(name) == quantity) for quantity in quantities]


def build_panel(
    figure: FigureSpec, spec: PanelSpec, runs: Sequence[RunCurves], statistic: Statistic | None = None
) -> Panel:
    """The panel, its y axis titled by the metric or a statistic of it; a fraction is never on a log axis."""
    facets = ((figure.row, spec.row), (figure.column, spec.column))
    metric = spec.metrics[0] if len(spec.metrics) == 1 else metric_quantity(spec.metrics[0])
    template = statistic.axis_title_template(spec.metrics[0]) if statistic else "{}"
    unit = statistic.axis_unit(metric_unit(metric)) if statistic else metric_unit(metric)
    is_difference = metric.startswith("gap/") or (statistic is not None and statistic.is_difference)
    # Test sets and groups of samples have other most frequent answers than the training set, whose share is known.
    is_whole = all(name.startswith(("train/", "val/")) and not MetricName.parse(name).group for name in spec.metrics)
    has_metric_values = is_whole and not is_difference and (statistic is None or not statistic.unit)
    return Panel(
        metric=metric,
        title=", ".join(value_title(name, value) for name, value in facets if name),
        y_title=label_with_unit(template.format(metric_label(metric)), unit),
        scale="linear" if unit == "fraction" else figure.y_scale,
        is_fraction=unit == "fraction" and not is_difference,
        non_negative=not is_difference,
        chance=_chance_of_panel(metric_quantity(metric), spec.select(figure, runs)) if has_metric_values else None,
    )


def _chance_of_panel(quantity: str, runs: Sequence[RunCurves]) -> float | None:
    """The accuracy or loss of guessing, where it is the same for all runs."""
    if quantity not in ("accuracy", "loss"):
        return None
    levels = {chance_level(run.run) for run in {id(run.run.settings): run for run in runs}.values()}
    level = levels.pop() if len(levels) == 1 else None
    return None if level is None else level.accuracy if quantity == "accuracy" else level.loss


def value_title(name: str, value: Value) -> str:
    """`GPT`, `layers L = 2`: a setting's value as a panel title."""
    return value_label(value) if name == "model.kind" else f"{setting_label(name)} = {value_label(value)}"


def config_label(run: RunCurves) -> str:
    """The varied settings of a run as text: `GPT, 2 layers, width 64`."""
    return isolate_direction(format_config(run.config))


def split_and_group(metric: str) -> tuple[str, str]:
    """The split and the group of samples of a metric, as text: what distinguishes metrics of one quantity."""
    name = MetricName.parse(metric)
    split = metric_label(f"{name.split}/?").replace(" ?", "") if name.split else "all"
    return split, name.group.strip("[]")


# ---- colours and dashes ----


def with_chosen_colours(figure: FigureSpec, runs: Sequence[RunCurves]) -> FigureSpec:
    """The figure; if it names no colour and settings vary inside its panels, colour and dash tell them apart."""
    check_setting_names(runs, (figure.colour, figure.dash, figure.row, figure.column))
    if figure.colour:
        return figure.model_copy(update={"colour": None}) if figure.colour == NO_COLOUR else figure
    names = _undistinguished_settings(figure, runs)
    counts = {name: len(distinct_values(runs, name)) for name in names}
    if len(names) < 2:
        return figure.model_copy(update={"colour": names[0]}) if names else figure
    n_configs = len({tuple(channel_value(run, name) for name in names) for run in runs})
    by_size = sorted(names, key=lambda name: (counts[name], is_numeric(distinct_values(runs, name))))
    if not figure.dash and counts[by_size[-2]] <= MAX_DASHES and len(names) == 2:
        return figure.model_copy(update={"colour": by_size[-1], "dash": by_size[-2]})
    if n_configs <= MAX_COLOURS:
        return figure.model_copy(update={"colour": JOINT.join(names)})
    dash = next((name for name in reversed(by_size[:-1]) if counts[name] <= MAX_DASHES), None)
    return figure.model_copy(update={"colour": by_size[-1], "dash": figure.dash or dash})


def _undistinguished_settings(figure: FigureSpec, runs: Sequence[RunCurves]) -> list[str]:
    """The settings in which runs differ that stand in one panel, at one x, with one colour and dash."""
    shown = [figure.row, figure.column, figure.colour, figure.dash, figure.x if figure.kind == "sweep" else None]
    groups: dict[Hashable, list[RunCurves]] = {}
    for run in runs if "seed" in shown else [seed_runs[0] for seed_runs in group_by_config(runs)]:
        groups.setdefault(tuple(channel_value(run, name) for name in shown if name), []).append(run)
    # Along the number of parameters, a line joins all sizes of one kind of model.
    by_kind = figure.x == "parameters" and "model.kind" not in shown and len(distinct_values(runs, "model.kind")) > 1
    return [*["model.kind"] * by_kind, *varying_settings(groups.values())]


def ambiguity_note(figure: FigureSpec, runs: Sequence[RunCurves]) -> str:
    """Which settings neither panel nor colour nor dash tell apart; empty if there are none."""
    names = _undistinguished_settings(figure, runs) if figure.colour else []
    return f"Lines that look alike differ in {', '.join(map(setting_words, names))}." if names else ""


def colour_axis(figure: FigureSpec, runs: Sequence[RunCurves]) -> Axis | None:
    """The legend of colours: the figure's setting, or the split of each metric."""
    if figure.colour is None:
        return Axis("measured on", None) if any(len(metrics) > 1 for metrics in group_metrics(figure)) else None
    return Axis(
        setting_label(figure.colour), scale_for_values(distinct_values(runs, figure.colour), figure.colour_scale)
    )


def line_colour(figure: FigureSpec, run: RunCurves, metric: str) -> Value:
    """The colour of a line: its value of the figure's setting, else the split of its metric."""
    return channel_value(run, figure.colour) if figure.colour else split_and_group(metric)[0]


def scale_for_values(values: Sequence[Value], requested: str) -> Scale | None:
    """The scale for a setting's values: None for categories, linear if a value has no logarithm.

    `auto` is log₂ for powers of two, log for values that span orders of magnitude.
    """
    if not values or not is_numeric(values):
        return None
    if requested == "linear" or min(values) <= 0:
        return "linear"
    if requested != "auto":
        return "log2" if requested == "log2" else "log"
    if all(isinstance(value, int) and value & (value - 1) == 0 for value in values) and max(values) > 4:
        return "log2"
    return "log" if max(values) >= 50 * min(values) else "linear"


def dash_title(figure: FigureSpec) -> str | None:
    """The title of the dashes: the figure's second setting, the context length, or the group of samples."""
    if figure.dash:
        return setting_label(figure.dash)
    groups = {MetricName.parse(metric).group for metric in figure.metrics}
    if len(groups) < 2 or figure.colour:
        return None
    return CONTEXT_LENGTH_LABEL if any(group.startswith("[length=") for group in groups) else "samples"


def line_dash(figure: FigureSpec, run: RunCurves, metric: str) -> str:
    """The dash of a line: its value of the figure's second setting, or its group of samples; else empty."""
    if figure.dash:
        return value_label(channel_value(run, figure.dash))
    title = dash_title(figure)
    if title is None:
        return ""
    return split_and_group(metric)[1] or ("as in training" if title == CONTEXT_LENGTH_LABEL else "all")


# ---- titles and notes ----


def list_quantities(figure: FigureSpec) -> str:
    """`loss and accuracy`: what the figure's metrics measure."""
    return join_words(list(dict.fromkeys(map(quantity_label, figure.metrics))))


def title_by_settings(text: str, figure: FigureSpec) -> str:
    """`Loss during training, by learning rate`: a title with the settings that colour and dash the lines."""
    settings = [setting_words(name) for name in (figure.colour, figure.dash) if name]
    return capitalise(text + (f", by {join_words(settings)}" if settings else ""))


def seed_count_note(lines: Iterable[Line]) -> str:
    """`n = 3 seeds per line.`, `n = 1 to 3 seeds per line.`: how many runs are in the means."""
    counts = {line.n for line in lines if not line.diverged}
    return f"n = {format_range(counts)} seed{'s' * (max(counts) != 1)} per line." if counts else ""


def status_notes(runs: Sequence[RunCurves], of_means: bool = False) -> Iterator[str]:
    """How many runs are unfinished, or excluded from the means, and why; `of_means`: a run gives a single value."""
    statuses = [run.run.status for run in runs]
    for status, text in STATUS_NOTES.items():
        if n := statuses.count(status):  # type: ignore[arg-type]  # its keys are statuses
            yield f"{n} of {len(runs)} runs {text}."
    if of_means and any(run.is_included and not run.is_complete for run in runs):
        yield "Means are over complete runs; configs without any are shown as far as all of their runs have got."
