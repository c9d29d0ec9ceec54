"""Statistics of a run: the meaning of `value = "best"` or `"t_f"` in a figure or a question. A new one is one record.

    compute_statistic(run, "val/accuracy", "t_f")   # the first step with the best validation accuracy
    compute_statistic(run, "val/accuracy", "t_90")  # the first step with at least 0.9 of it; infinite if there is none
    replay_at_alpha(run, 0.3)                       # the run as if stopped at 0.3 T

    @register_statistic("median", better="metric")  # from outside the package: a function of a metric's curve is enough
    def median(curve: Curve) -> float: ...

`groups` and `comparison` decide which runs are compared, and over which seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import floor, inf, isfinite, isnan, nan
from typing import Any, Final, Literal, TypeAlias, TypeVar

from seedbed.errors import SeedbedError, UsageError
from seedbed.format import capitalise, pluralise
from seedbed.models.model_size import estimate_training_bytes
from seedbed.records import Curve
from seedbed.settings import DatasetInfo, Settings
from seedbed.specs import ACCURACY_QUANTITIES, THRESHOLD_STATISTIC, register_statistic_name
from seedbed.stats.comparison import ConfidenceInterval, mean_confidence_interval
from seedbed.stats.curve_statistics import find_extremum, generalisation_gap, last_value, truncate_curve
from seedbed.stats.grokking import GrokkingResult, classify_grokking
from seedbed.stats.metric_registry import Direction, MetricName, metric_direction, training_metric
from seedbed.stats.summary import RunCurves, never_left_chance, time_to_accuracy
from seedbed.stats.survival import EventTime, median_time

_EXTREMUM_NAMES: Final = {"min": "lowest", "max": "highest", None: "last"}

Function = TypeVar("Function", bound=Callable[..., Any])
ComputeStatistic: TypeAlias = Callable[[RunCurves, str, float | None], float]
DescribeRuns: TypeAlias = Callable[[Sequence[RunCurves], Sequence[str]], str]


def _no_note(runs: Sequence[RunCurves], metrics: Sequence[str]) -> str:
    return ""


@dataclass(frozen=True)
class Statistic:
    """One number per run, how sentences and charts write it, and which values of it are better.

    In the texts, `{}` stands for the metric. Texts that are left out are the title.
    """

    name: str
    compute: ComputeStatistic  # of a run, a metric and t_max, after which values do not count; NaN if undefined
    title: str  # in the titles of charts: "t_f of {}"
    meaning: str = ""  # in legends, one line
    formula: str = ""  # in the reference; M is the metric, t a step
    symbol: str = ""  # in legends; empty: the name
    phrase: str = ""  # in sentences, of a metric in words
    claim: str = ""  # "{first} takes less time than {second}", of the group that leads; {metric} is in words
    axis_title: str = ""  # on the axes of charts; {extremum} is lowest or highest, whichever is better of the metric
    menu_label: str = ""  # among other statistics to choose from; empty: the name
    long_title: str = ""  # in the title of a chart that shows nothing else
    unit: str = ""  # empty: the metric's own; 1: none
    better: Literal["metric", "min", "max"] | None = None  # metric: as of the metric; None: neither is, in itself
    uses_metric: bool = True
    compares_splits: bool = False  # of training and validation together: the same, whichever split the metric names
    is_step: bool = False
    is_difference: bool = False  # 0 means no difference, so that a share is not between 0 and 1
    threshold: float | None = None  # the accuracy whose first step it is; infinite for a run that never gets there
    needs_best: bool = False  # says little without the best value, which comparisons add
    comparison_note: DescribeRuns = _no_note  # what a comparison of these runs and metrics warns of
    chart_note: DescribeRuns = _no_note  # below a chart of these runs and metrics

    def format_phrase(self, metric: str) -> str:
        """The statistic of a metric that is given in words, in a sentence: `final validation loss`."""
        return (self.phrase or self.title).format(metric)

    def format_claim(self, first: str, second: str, metric: str, direction: Direction | None) -> str:
        """That the first group leads the second one: `GPT is better than LSTM in best validation loss`."""
        is_ranked = "{first} is better than {second} in {phrase}"
        template = self.claim or (is_ranked if direction else "{phrase} is lower for {first} than for {second}")
        return template.format(first=first, second=second, metric=metric, phrase=self.format_phrase(metric))

    def axis_title_template(self, metric: str) -> str:
        """The title of an axis, with `{}` for the metric: `lowest {}`."""
        return (self.axis_title or self.title).format("{}", extremum=_EXTREMUM_NAMES[metric_direction(metric)])

    def axis_unit(self, metric_unit: str) -> str:
        """The unit on an axis, given the metric's; empty if there is none."""
        return "" if self.unit == "1" else self.unit or metric_unit

    def direction(self, metric: str) -> Direction | None:
        """Which direction is better; None for steps (earlier is not better in itself) and metrics such as the norm."""
        return metric_direction(metric) if self.better == "metric" else self.better

    def distinct_metrics(self, metrics: Sequence[str]) -> tuple[str, ...]:
        """Those of these metrics of which the statistic can differ: charts draw a panel for each."""
        if self.compares_splits:
            return tuple(dict.fromkeys(metric_for_split(metric, "val") for metric in metrics))
        return tuple(metrics if self.uses_metric else metrics[:1])

    @property
    def legend(self) -> str:
        """The symbol and its meaning; empty if the meaning is not given."""
        return f"{self.symbol or self.name}: {self.meaning}" if self.meaning else ""


def compute_statistic(run: RunCurves, metric: str, statistic: str, t_max: float | None = None) -> float:
    """This statistic of a run's metric; NaN if it is undefined."""
    return find_statistic(statistic).compute(run, metric, t_max)


def find_statistic(name: str) -> Statistic:
    """The statistic of this name; UsageError if there is none."""
    if name not in STATISTICS:
        if match := THRESHOLD_STATISTIC.fullmatch(name):
            return _threshold_statistic(int(match["percent"]))
        raise UsageError(f"{name} is not a statistic; expected one of {', '.join(STATISTICS)}")
    return STATISTICS[name]


def summarise_values(statistic: str, values: Mapping[int, float]) -> ConfidenceInterval:
    """The mean over seeds with its 95 % interval; for t_90, the median, since some runs may never get there."""
    if find_statistic(statistic).threshold is None:
        return mean_confidence_interval(list(values.values()))
    times = median_time([EventTime(value, isfinite(value)) for value in values.values() if not isnan(value)])
    low = times.low if times.low > 0 or isfinite(times.high) else -inf  # too few runs for an interval
    return ConfidenceInterval(times.median, low, times.high, times.n)


def register_statistic(
    name_or_record: str | Statistic, function: Function | Statistic | None = None, **options: Any
) -> Any:
    """Adds a statistic, so that figures, questions and commands accept its name; returns the function or record.

    A function from a metric's `Curve` to a number needs only a name: it gets the values up to t_max and is not called
    without any. `options` are fields of `Statistic`, such as `better="metric"` or `unit="steps"`. A statistic of
    several metrics, or of the run itself, is registered as a `Statistic`. With a name alone, returns a decorator.
    """
    if isinstance(name_or_record, Statistic):
        record = replace(name_or_record, **options) if options else name_or_record
    elif isinstance(function, Statistic):
        record = replace(function, name=name_or_record, **options)
    elif function is None:
        return partial(register_statistic, name_or_record, **options)
    else:
        record = _statistic_of_curve(name_or_record, function, options)
    register_statistic_name(record.name)
    STATISTICS[record.name] = record
    return function or record


def _statistic_of_curve(name: str, function: Callable[[Curve], float], options: dict[str, Any]) -> Statistic:
    """The record of a plain function; its meaning is the first line of the docstring."""

    def compute(run: RunCurves, metric: str, t_max: float | None) -> float:
        curve = truncate_curve(run.curve(metric), t_max)
        return float(function(curve)) if curve.steps.size else nan

    meaning = (function.__doc__ or "").strip().partition("\n")[0].rstrip(".")
    defaults = {"title": f"{name.replace('_', ' ')} of {{}}", "meaning": meaning[:1].lower() + meaning[1:]}
    unit = {"unit": "steps"} if options.get("is_step") else {}
    return Statistic(**{"name": name, "compute": compute, **defaults, **unit, **options})


# ---- the statistics of the package ----


def _best(run: RunCurves, metric: str, t_max: float | None) -> float:
    direction = metric_direction(metric)
    if direction is None:
        return _last(run, metric, t_max)
    return find_extremum(run.curve(metric), direction, t_max).value


def _last(run: RunCurves, metric: str, t_max: float | None) -> float:
    return last_value(run.curve(metric), t_max)


def _t_f(run: RunCurves, metric: str, t_max: float | None) -> float:
    direction = metric_direction(metric)
    if direction is None or never_left_chance(run, metric, t_max):
        return nan  # no value is best, so there is no first step with it
    return find_extremum(run.curve(metric), direction, t_max).step


def _threshold_statistic(percent: int) -> Statistic:
    """The statistic t_NN: the first step with an accuracy of at least NN %."""
    name, threshold = f"t_{percent}", percent / 100

    def compute(run: RunCurves, metric: str, t_max: float | None) -> float:
        if MetricName.parse(metric).quantity not in ACCURACY_QUANTITIES:
            return nan
        time = time_to_accuracy(run, metric, threshold, t_max)
        return nan if time is None else time.step if time.reached else inf

    return Statistic(
        name,
        compute,
        title=f"{name} of {{}}",
        meaning=f"first recorded step with an accuracy of at least {threshold:g}; a run that never gets there is "
        "censored at its last step",
        formula=f"the first recorded t with A(t) ≥ {threshold:g}; likewise t_1 to t_100",
        phrase=f"{name} of {{}}",
        claim=f"{{first}} reaches a {{metric}} of {threshold:g} sooner than {{second}}",
        menu_label=f"{name}: first step at {threshold:g}",
        unit="steps",
        better="min",
        is_step=True,
        threshold=threshold,
        chart_note=lambda runs, metrics: (
            "Means are medians by Kaplan and Meier, in which runs that never get there count too."
        ),
    )


def _gap(run: RunCurves, metric: str, t_max: float | None) -> float:
    direction = metric_direction(metric)
    train, val = map(run.curve, (training_metric(metric, run.curves), metric_for_split(metric, "val")))
    return nan if direction is None else generalisation_gap(train, val, direction, t_max)


def _delta_t(run: RunCurves, metric: str, t_max: float | None) -> float:
    names = training_metric(metric, run.curves), metric_for_split(metric, "val")
    train, val = (_t_f(run, name, t_max) for name in names)
    return val - train


def _seconds(run: RunCurves, metric: str, t_max: float | None) -> float:
    return run.seconds.get("compute", nan)


def _memory(run: RunCurves, metric: str, t_max: float | None) -> float:
    if run.steady_bytes is not None:
        return run.steady_bytes / 2**20
    return predict_memory_mib(run.run.settings, run.run.dataset_info)


def predict_memory_mib(settings: Settings, info: DatasetInfo | None = None) -> float:
    """Predicted training memory in MiB; NaN if it depends on a corpus that is not available."""
    try:
        return estimate_training_bytes(settings, info) / 2**20
    except SeedbedError:
        return nan


def _no_t_f_note(runs: Sequence[RunCurves], metrics: Sequence[str]) -> str:
    return _chance_note(runs, metrics, "t_f")


def _no_delta_t_note(runs: Sequence[RunCurves], metrics: Sequence[str]) -> str:
    return _chance_note(runs, [metric_for_split(one, split) for one in metrics for split in ("train", "val")], "Δt")


def _chance_note(runs: Sequence[RunCurves], metrics: Sequence[str], symbol: str) -> str:
    complete = {run.run.id: run for run in runs if run.is_complete}
    n = sum(any(never_left_chance(run, metric) for metric in metrics) for run in complete.values())
    return f"{n} of {pluralise(len(complete), 'run')} never left chance, so their {symbol} is undefined" if n else ""


def _as_sentence(clause: str) -> str:
    return f"{capitalise(clause)}." if clause else ""


def _shared_time_note(runs: Sequence[RunCurves], metrics: Sequence[str]) -> str:
    if all(run.run.settings.train.exclusive for run in runs):
        return ""
    return "runs of one pack share its time equally, so their spread says little about timing noise"


def _predicted_memory_note(runs: Sequence[RunCurves], metrics: Sequence[str]) -> str:
    is_predicted = any(run.steady_bytes is None for run in runs)
    return "Memory that was not measured is predicted from the settings." if is_predicted else ""


# In the order in which messages list them. t_f and Δt have no better direction: an early t_f is not better if the value
# attained is worse. t_90 has one, since all runs are held to the same value.
STATISTICS: Final[dict[str, Statistic]] = {
    one.name: one
    for one in (
        Statistic(
            "best",
            _best,
            formula="min or max of M(t) over recorded steps t ≤ t_max",
            title="best {}",
            meaning="lowest or highest recorded value, whichever is better",
            phrase="best {}",
            axis_title="{extremum} {}",
            better="metric",
        ),
        Statistic(
            "t_f",
            _t_f,
            formula="the first recorded t with M(t) = best, exactly; undefined for runs that never left chance",
            title="t_f of {}",
            meaning="first recorded step with the best value",
            phrase="t_f of {}",
            claim="{first} reaches its best {metric} earlier than {second}",
            axis_title="t_f of the {}",
            menu_label="t_f: first step at its best",
            unit="steps",
            is_step=True,
            needs_best=True,
            comparison_note=_no_t_f_note,
            chart_note=lambda runs, metrics: _as_sentence(_no_t_f_note(runs, metrics)),
        ),
        _threshold_statistic(90),
        Statistic(
            "last",
            _last,
            formula="M at the last recorded step",
            title="last {}",
            meaning="value at the last recorded step",
            phrase="final {}",
            better="metric",
        ),
        Statistic(
            "gap",
            _gap,
            formula="M_val − M_train (accuracy: M_train − M_val) at t_f(M_val)",
            title="gap of {}",
            meaning="how much worse val is than train at the best val step",
            phrase="generalisation gap of {}",
            claim="{first} has a smaller generalisation gap of {metric} than {second}",
            axis_title="gap of the {}",
            menu_label="gap between training and validation",
            long_title="gap between training and validation {}",
            better="min",
            compares_splits=True,
            is_difference=True,
        ),
        Statistic(
            "delta_t",
            _delta_t,
            formula="t_f(M_val) − t_f(M_train)",
            title="Δt of {}",
            meaning="t_f(val) − t_f(train) of the same run",
            symbol="Δt",
            phrase="delay Δt of {}",
            claim="the delay Δt of {metric} is shorter for {first} than for {second}",
            axis_title="Δt of the {}",
            menu_label="Δt: t_f of validation − of training",
            long_title="delay of validation behind training {}",
            unit="steps",
            is_step=True,
            is_difference=True,
            compares_splits=True,
            comparison_note=_no_delta_t_note,
            chart_note=lambda runs, metrics: _as_sentence(_no_delta_t_note(runs, metrics)),
        ),
        Statistic(
            "seconds",
            _seconds,
            formula="seconds of the pack's updates ÷ its runs",
            title="compute time",
            meaning="compute time of the run: its share of its pack's, without evaluation",
            symbol="time",
            phrase="compute time in seconds",
            claim="{first} takes less compute time than {second}",
            menu_label="compute time (s)",
            unit="s",
            better="min",
            uses_metric=False,
            comparison_note=_shared_time_note,
        ),
        Statistic(
            "memory",
            _memory,
            formula="bytes between updates ÷ 2²⁰ ÷ runs of the pack",
            title="memory while training",
            meaning="memory between updates; predicted if not measured",
            phrase="memory in MiB",
            claim="{first} needs less memory than {second}",
            menu_label="memory (MiB)",
            unit="MiB",
            better="min",
            uses_metric=False,
            chart_note=_predicted_memory_note,
        ),
    )
}


# ---- curves of a run ----


def metric_for_split(metric: str, split: str, quantity: str | None = None) -> str:
    """The same metric of another split: `val/loss[order=2]` → `train/loss[order=2]`."""
    parts = MetricName.parse(metric)
    return f"{split}/{quantity or parts.quantity}{parts.group}"


def classify_run(run: RunCurves, metric: str = "val/accuracy", t_max: float | None = None) -> GrokkingResult | None:
    """The grokking label of a run, from the accuracies of the metric's group; None if they were not recorded."""
    train, val = (run.curves.get(metric_for_split(metric, split, "accuracy")) for split in ("train", "val"))
    if train is None or val is None or not (train.steps.size and val.steps.size):
        return None
    return classify_grokking(train, val, t_max)


def total_steps(run: RunCurves) -> int:
    """T: train.steps; the steps that its epochs or tokens make; with a time limit, the steps done so far."""
    settings = run.run.settings
    return settings.train.steps if settings.is_active("train.steps") else run.planned_steps or run.run.step


def replay_at_alpha(run: RunCurves, alpha: float) -> RunCurves:
    """The run as if stopped at αT, with `alpha` added to its config; complete if it was trained that far."""
    stopped = truncate_run(run, floor(alpha * total_steps(run)))
    return replace(stopped, config={**run.config, "alpha": alpha})


def truncate_run(run: RunCurves, t_max: int) -> RunCurves:
    """The run as if stopped at a step; complete if it was trained that far."""
    curves = {name: truncate_curve(curve, t_max) for name, curve in run.curves.items()}
    return replace(run, curves=curves, t_max=t_max)
