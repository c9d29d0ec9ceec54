"""The `[[figures]]` and `[[questions]]` of a study file, checked in the same pass as the rest of the file.

    declarations = parse_declarations(store.study("quickstart").text)       those of a resolved study
    declarations.questions[0].ask

The options are defined in specs.py; charts/ draws the figures, stats/ answers the questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, TypeVar, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from seedbed.settings import OneOf, Value, all_settings, to_tuples
from seedbed.specs import (
    FIGURE_KINDS,
    METRIC_PATTERN,
    FigureSpec,
    QuestionSpec,
    describe_wrong_metric,
    is_threshold,
)
from seedbed.study.definition import DocumentParser, Problems, check_setting_value, format_assignment
from seedbed.study.former_words import FORMER_FIGURE_KINDS, translate_stored
from seedbed.study.toml_text import (
    closest_match,
    find_key_lines,
    flatten_table,
    format_toml_key,
    format_toml_value,
    parse_toml,
    preview_toml,
    truncate_text,
)

Spec = TypeVar("Spec", FigureSpec, QuestionSpec)

# Names accepted in place of a setting: units of the x axis, the parameter count, and α, the fraction of T to replay to.
X_AXIS_NAMES: Final = ("step", "epoch", "tokens", "time")
DERIVED_AXES: Final = ("parameters", "alpha")
AXIS_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "x": (*X_AXIS_NAMES, *DERIVED_AXES),
    **dict.fromkeys(("colour", "dash", "column", "row", "over"), DERIVED_AXES),
    "between": (),
}
METRIC_OPTIONS: Final = ("metric", "and_metric", "metrics")
GAP_PREFIX: Final = "gap/"  # prefix of a figure's metric: the gap between training and validation
COMMON_METRICS: Final = ("train/loss", "train/running_loss", "val/loss", "train/accuracy", "val/accuracy", "norm")
COMMON_QUANTITIES: Final = (
    "loss",
    "accuracy",
    "perplexity",
    "bits_per_character",
    "bits_per_byte",
    "running_loss",
    "norm",
)

BOUND_OPTIONS: Final = ("at_least", "at_most")
AND_BOUND_OPTIONS: Final = ("and_at_least", "and_at_most")
REQUIRED_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {  # options that a kind of question cannot be asked without
    "how does it change": ("over",),
    "smallest": ("over",),
    "largest": ("over",),
    "which scales better": ("over", "between"),
    "what law": ("over",),
}

UNCENSORED_QUESTIONS: Final = ("which scales better", "what law", "does it hold")  # that need a value of every run


@dataclass(frozen=True)
class Declarations:
    """The figures and questions of one study, in the order of its file."""

    figures: tuple[FigureSpec, ...] = ()
    questions: tuple[QuestionSpec, ...] = ()


def parse_declarations(text: str) -> Declarations:
    """The declarations of a stored study, whichever version wrote it; StudyError if its text has problems."""
    problems = Problems()
    parser = DeclarationParser("study", find_key_lines(text), problems, is_stored=True)
    declarations = parser.parse(translate_stored(parse_toml(text, "study")))
    problems.raise_if_any()
    return declarations


def format_declarations(declared: Declarations) -> list[str]:
    """The declarations as lines of TOML that parse back to equal ones."""
    lines = []
    for kind, entries in (("figures", declared.figures), ("questions", declared.questions)):
        for entry in entries:
            options = entry.model_dump(exclude_defaults=True)
            lines += ["", f"[[{kind}]]", *(f"{name} = {_format_option(value)}" for name, value in options.items())]
    return lines


def _format_option(value: Value) -> str:
    """The value as TOML; setting names inside `only` are quoted so that their dots do not nest."""
    if isinstance(value, dict):
        pairs = (f"{format_toml_value(name)} = {format_toml_value(item)}" for name, item in value.items())
        return f"{{ {', '.join(pairs)} }}"
    return format_toml_value(value)


@dataclass(frozen=True)
class DeclarationParser(DocumentParser):
    """Validates the tables of figures and questions."""

    is_stored: bool = False  # it was valid when it was stored, so an unknown name is probably a plugin's

    def parse(self, document: Mapping[str, Value]) -> Declarations:
        """The declarations of a parsed file; tables with problems are reported and left out."""
        figures = [self.parse_table(FigureSpec, *table) for table in self.iter_tables(document, "figures")]
        questions = [self.parse_table(QuestionSpec, *table) for table in self.iter_tables(document, "questions")]
        return Declarations(tuple(filter(None, figures)), tuple(filter(None, questions)))

    def parse_table(self, model: type[Spec], table: Mapping[str, Value], key: str) -> Spec | None:
        """The figure or question; None, after adding problems, if an option is invalid."""
        before = len(self.problems.entries) + self.problems.n_omitted
        options = {name: _normalize_option(name, value) for name, value in table.items()}
        self.check_options(model, options, key)
        for name, value in options.items():
            self.check_names(name, value, f"{key}.{name}")
        if len(self.problems.entries) + self.problems.n_omitted > before:
            return None
        entry = model.model_validate(options)
        metrics = (entry.metric, entry.and_metric) if isinstance(entry, QuestionSpec) else entry.metrics
        if problem := describe_wrong_metric(entry.value, filter(None, metrics)):
            self.add_problem(f"{key}.value", problem)
        if isinstance(entry, QuestionSpec) and entry.ask in UNCENSORED_QUESTIONS and is_threshold(entry.value):
            what = f"ask = {preview_toml(entry.ask)} cannot use {entry.value}, which some runs may never reach"
            self.add_problem(f"{key}.value", f'{what}; ask "which is better" or "how does it change"')
        if isinstance(entry, QuestionSpec):
            self.check_required_options(entry, key)
        else:
            for name in FIGURE_KINDS[entry.kind]:
                if not getattr(entry, name):
                    self.add_problem(key, f"kind = {format_toml_value(entry.kind)} needs {name} as well")
        return entry

    def check_options(self, model: type[Spec], options: Mapping[str, Value], key: str) -> None:
        """Report unknown options, and options whose values have the wrong type."""
        fields = model.model_fields
        kind = key.partition(".")[0]
        for name in options.keys() - fields.keys():
            self.problems.add_unknown(
                self.location(f"{key}.{name}"), name, f"{format_toml_key(name)} is not an option of [[{kind}]]", fields
            )
        try:
            model.model_validate({name: value for name, value in options.items() if name in fields})
        except ValidationError as error:
            for name in dict.fromkeys(str(detail["loc"][0]) for detail in error.errors()):
                message = _invalid_option_message(name, options[name], fields[name])
                is_registered = any(isinstance(marker, OneOf) for marker in fields[name].metadata)
                hint = "; if a plugin defines it, give --plugin FILE" if self.is_stored and is_registered else ""
                self.add_problem(f"{key}.{name}", message + hint)

    def check_names(self, option: str, value: Value, key: str) -> None:
        """Check the settings and metrics that an option names."""
        if option in AXIS_OPTIONS and isinstance(value, str):
            self.check_setting_name(option, value, key)
        elif option in METRIC_OPTIONS:
            for name in value if isinstance(value, tuple) else (value,):
                if isinstance(name, str) and not METRIC_PATTERN.fullmatch(
                    name.removeprefix(GAP_PREFIX if option == "metrics" else "")
                ):
                    accepted = "a metric such as val/loss, test[NAME]/perplexity, val/accuracy[order=2] or norm"
                    guess = closest_match(name, COMMON_METRICS)
                    hint = f" (did you mean {guess}?)" if guess else ""
                    self.add_problem(key, f"{option} = {preview_toml(name)}: expected {accepted}{hint}")
                elif isinstance(name, str) and not self.is_stored and (guess := _misspelt_metric(name)):
                    self.add_problem(key, f"{option} = {preview_toml(name)} is not a metric (did you mean {guess}?)")
        elif option == "only" and isinstance(value, dict):
            for name, wanted in value.items():
                self.check_filter(name, wanted, f"{key}.{name}")

    def check_setting_name(self, option: str, name: str, key: str) -> None:
        known = (*AXIS_OPTIONS[option], *all_settings())
        if name not in known:
            extra = f", {', '.join(AXIS_OPTIONS[option])}" if AXIS_OPTIONS[option] else ""
            what = f"{option} = {preview_toml(name)}: expected a setting{extra}"
            self.problems.add_unknown(self.location(key), name, what, known)

    def check_filter(self, name: str, wanted: Value, key: str) -> None:
        if name not in all_settings():
            what = f"only: {truncate_text(format_toml_key(name))} is not a setting"
            self.problems.add_unknown(self.location(key), name, what, all_settings())
            return
        for value in _filter_values(name, wanted):
            if expected := check_setting_value(name, value):
                self.add_problem(key, f"only: {format_assignment(name, value)}: expected {expected}")

    def check_required_options(self, question: QuestionSpec, key: str) -> None:
        """Report options without which this kind of question cannot be answered."""
        missing = [name for name in REQUIRED_OPTIONS.get(question.ask, ()) if getattr(question, name) is None]
        if question.ask == "which is better":
            missing = ["between or and_metric"] if question.between is question.and_metric is None else []
        bounded = any(getattr(question, name) is not None for name in BOUND_OPTIONS)
        if question.ask in ("smallest", "largest") and not bounded:
            missing.append("at_least or at_most")
        same_between = question.expect == "same" and question.between is not None
        if question.ask == "does it hold" and not bounded and question.and_metric is None and not same_between:
            missing.append("and_metric, at_least or at_most")
        if question.expect == "same" and question.margin is None:
            missing.append("margin, the largest difference that counts as the same,")
        has_bound = any(getattr(question, name) is not None for name in AND_BOUND_OPTIONS)
        compared = question.ask in ("which is better", "does it hold")
        if question.and_metric is not None and not has_bound and not compared:
            missing.append("and_at_least or and_at_most")
        if has_bound and question.and_metric is None:
            missing.append("and_metric")
        for name in missing:
            self.add_problem(key, f"ask = {preview_toml(question.ask)} needs {name} as well")


def _misspelt_metric(name: str) -> str | None:
    """The metric that is probably meant by one like `val/acc`; None for any other, since plugins have their own."""
    prefix, _, quantity = name.rpartition("/")
    for known in COMMON_QUANTITIES:
        is_close = known.startswith(quantity) or bool(get_close_matches(quantity, [known], cutoff=0.85))
        if quantity != known and len(quantity) > 1 and is_close:
            return f"{prefix}/{known}" if prefix else known
    return None


def _normalize_option(option: str, value: Value) -> Value:
    """Lists as tuples, and the settings of `only` by dotted name even where they are nested tables."""
    if option == "only" and isinstance(value, dict):
        return {name: to_tuples(item) for name, item in flatten_table(value)}
    return to_tuples(value)


def _filter_values(name: str, wanted: Value) -> Sequence[Value]:
    """The accepted values of a filter; for a setting whose type is a list, a list is a single value."""
    return wanted if isinstance(wanted, tuple) and check_setting_value(name, list(wanted)) else (wanted,)


def option_choices(field: FieldInfo) -> tuple[str, ...]:
    """The texts that an option accepts; empty if they are not enumerable."""
    for marker in field.metadata:
        if isinstance(marker, OneOf):
            return tuple(marker.table)
    choices = get_args(field.annotation)
    return choices if all(isinstance(choice, str) for choice in choices) else ()


def _invalid_option_message(name: str, value: Value, field: FieldInfo) -> str:
    choices = option_choices(field)
    if choices:
        if name == "kind" and isinstance(value, str) and value in FORMER_FIGURE_KINDS:
            return f"{name} = {preview_toml(value)} is now called {format_toml_value(FORMER_FIGURE_KINDS[value])}"
        guess = closest_match(value, choices) if isinstance(value, str) else None
        hint = f" (did you mean {guess}?)" if guess else ""
        return f"{name} = {preview_toml(value)}: expected one of {', '.join(map(format_toml_value, choices))}{hint}"
    return f"{name} = {preview_toml(value)}: expected {_EXPECTED_OPTION_VALUES.get(name, 'a string')}"


_NUMBER: Final = "a number"
_EXPECTED_OPTION_VALUES: Final = {
    "metrics": 'a list of metrics such as ["train/loss", "val/loss"]',
    "alphas": "a list of fractions of T such as [0.1, 0.5, 1.0]",
    "only": 'settings and values such as { model.kind = "gpt" }',
    **dict.fromkeys(("layers", "heads"), "a list of whole numbers from 1, such as [1, 4]"),
    **dict.fromkeys((*BOUND_OPTIONS, *AND_BOUND_OPTIONS), _NUMBER),
    "margin": "a number above 0",
    "allow_confounds": "true or false",
}
