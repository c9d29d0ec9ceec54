"""What a study file shows: its `[[figures]]` and `[[questions]]`, checked in the same pass as the rest of the file.

    shown = shown_in(store.study("quickstart").text)       the declarations of a resolved study
    shown.questions[0].ask

What each option means is `shown`'s; drawing is left to charts, answering to measures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypeVar, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from seedbed.settings import Value, all_dials
from seedbed.shown import METRIC, Figure, Question
from seedbed.study.files import parse_toml
from seedbed.study.lines import line_numbers
from seedbed.study.parts import Findings, written, wrong_value
from seedbed.study.spell import nearest, shown, toml_key, toml_value

Kind: TypeAlias = Literal["figures", "questions"]
Shown = TypeVar("Shown", Figure, Question)

# Names that stand where a dial can: what a run is drawn against, and α, the share of T at which it is replayed.
X_NAMES: Final = ("step", "epoch", "tokens", "time")
EVERYWHERE: Final = ("parameters", "alpha")
DIALS: Final[Mapping[str, tuple[str, ...]]] = {
    "x": (*X_NAMES, *EVERYWHERE), "colour": EVERYWHERE, "dash": EVERYWHERE, "column": EVERYWHERE, "row": EVERYWHERE,
    "between": (), "over": EVERYWHERE,
}  # fmt: skip
METRICS: Final = ("metric", "and_metric", "metrics")
GAP: Final = "gap/"  # before a quantity in a figure: how far validation lags behind training
KNOWN_METRICS: Final = ("train/loss", "val/loss", "train/accuracy", "val/accuracy", "norm")

BOUNDS: Final = ("at_least", "at_most")
AND_BOUNDS: Final = ("and_at_least", "and_at_most")
NEEDED: Final[Mapping[str, tuple[str, ...]]] = {  # options that a kind of question cannot do without
    "how does it change": ("over",),
    "smallest": ("over",),
    "largest": ("over",),
    "which scales better": ("over", "between"),
}


@dataclass(frozen=True)
class Declared:
    """The figures and questions of one study, in the order of its file."""

    figures: tuple[Figure, ...] = ()
    questions: tuple[Question, ...] = ()


def shown_in(text: str) -> Declared:
    """What a resolved study declares; StudyError when its text has problems."""
    document = parse_toml(text, "study")
    lines = line_numbers(text)
    findings = Findings()
    declared = read_shown(document, lambda key: f"study:{lines.get(key, 1)}", findings)
    findings.raise_if_any()
    return declared


def read_shown(document: Mapping[str, Value], where: Callable[[str], str], findings: Findings) -> Declared:
    """The declarations of a parsed file; problems become findings and their tables are left out."""
    reader = _Reader(where, findings)
    figures = [reader.read(Figure, table, key) for table, key in reader.tables(document, "figures")]
    questions = [reader.read(Question, table, key) for table, key in reader.tables(document, "questions")]
    return Declared(
        tuple(figure for figure in figures if figure), tuple(question for question in questions if question)
    )


def write_shown(declared: Declared) -> list[str]:
    """The declarations as lines of TOML that read back as the same."""
    lines = []
    for kind, entries in (("figures", declared.figures), ("questions", declared.questions)):
        for entry in entries:
            options = entry.model_dump(exclude_defaults=True)
            lines += ["", f"[[{kind}]]", *(f"{name} = {_written(value)}" for name, value in options.items())]
    return lines


def _written(value: Value) -> str:
    """A dial's dotted name inside `only` is quoted, so that it stays one name."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_value(name)} = {toml_value(item)}" for name, item in value.items()) + " }"
    return toml_value(value)


@dataclass(frozen=True)
class _Reader:
    where: Callable[[str], str]
    findings: Findings

    def tables(self, document: Mapping[str, Value], kind: Kind) -> Iterator[tuple[dict[str, Value], str]]:
        value = document.get(kind, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.add(kind, f"{kind} = {shown(value)}: expected tables that begin with [[{kind}]]")
            return
        for place, table in enumerate(value):
            yield table, f"{kind}.{place}"

    def add(self, key: str, what: str) -> None:
        self.findings.add(self.where(key), what)

    def read(self, model: type[Shown], table: Mapping[str, Value], key: str) -> Shown | None:
        """The declaration; None, and findings, when something in it means nothing."""
        before = len(self.findings.problems) + self.findings.n_more
        options = {name: _plain(name, value) for name, value in table.items()}
        self.check_options(model, options, key)
        for name, value in options.items():
            self.check_names(name, value, f"{key}.{name}")
        if len(self.findings.problems) + self.findings.n_more > before:
            return None
        entry = model.model_validate(options)
        if isinstance(entry, Question):
            self.check_needs(entry, key)
        elif entry.kind == "attention" and not entry.text:
            self.add(key, 'kind = "attention" needs text as well')
        return entry

    def check_options(self, model: type[Shown], options: Mapping[str, Value], key: str) -> None:
        fields = model.model_fields
        kind = key.partition(".")[0]
        for name in options.keys() - fields.keys():
            self.findings.add_unknown(
                self.where(f"{key}.{name}"), name, f"{toml_key(name)} is not an option of [[{kind}]]", fields
            )
        try:
            model.model_validate({name: value for name, value in options.items() if name in fields})
        except ValidationError as error:
            for name in dict.fromkeys(str(wrong["loc"][0]) for wrong in error.errors()):
                self.add(f"{key}.{name}", _wrong_option(name, options[name], fields[name]))

    def check_names(self, option: str, value: Value, key: str) -> None:
        """Dials and metrics that an option names."""
        if option in DIALS and isinstance(value, str):
            self.check_dial_name(option, value, key)
        elif option in METRICS:
            for name in value if isinstance(value, tuple) else (value,):
                if isinstance(name, str) and not METRIC.fullmatch(
                    name.removeprefix(GAP if option == "metrics" else "")
                ):
                    accepted = "a reading such as val/loss, test[NAME]/perplexity, val/accuracy[order=2] or norm"
                    guess = nearest(name, KNOWN_METRICS)
                    hint = f" (did you mean {guess}?)" if guess else ""
                    self.add(key, f"{option} = {shown(name)}: expected {accepted}{hint}")
        elif option == "only" and isinstance(value, dict):
            for name, wanted in value.items():
                self.check_filter(name, wanted, f"{key}.{name}")

    def check_dial_name(self, option: str, name: str, key: str) -> None:
        known = (*DIALS[option], *all_dials())
        if name not in known:
            extra = f", {', '.join(DIALS[option])}" if DIALS[option] else ""
            what = f"{option} = {shown(name)}: expected a setting{extra}"
            self.findings.add_unknown(self.where(key), name, what, known)

    def check_filter(self, name: str, wanted: Value, key: str) -> None:
        if name not in all_dials():
            self.findings.add_unknown(
                self.where(key), name, f"only: {written(name, wanted)} is not a setting", all_dials()
            )
            return
        for value in _one_of(name, wanted):
            if wrong := wrong_value(name, value):
                self.add(key, f"only: {written(name, value)}: expected {wrong}")

    def check_needs(self, question: Question, key: str) -> None:
        missing = [name for name in NEEDED.get(question.ask, ()) if getattr(question, name) is None]
        if question.ask == "which is better":
            missing = ["between or and_metric"] if question.between is question.and_metric is None else []
        bounded = any(getattr(question, name) is not None for name in BOUNDS)
        if question.ask in ("smallest", "largest") and not bounded:
            missing.append("at_least or at_most")
        if question.ask == "does it hold" and not bounded and question.and_metric is None:
            missing.append("and_metric, at_least or at_most")
        has_bound = any(getattr(question, name) is not None for name in AND_BOUNDS)
        compared = question.ask in ("which is better", "does it hold")
        if question.and_metric is not None and not has_bound and not compared:
            missing.append("and_at_least or and_at_most")
        if has_bound and question.and_metric is None:
            missing.append("and_metric")
        for name in missing:
            self.add(key, f"ask = {shown(question.ask)} needs {name} as well")


def _plain(option: str, value: Value) -> Value:
    """Lists as tuples, and the dials of `only` by their dotted names however they are nested."""
    if option == "only" and isinstance(value, dict):
        return {name: _tuples(item) for name, item in _leaves(value, "")}
    return _tuples(value)


def _tuples(value: Value) -> Value:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _leaves(table: Mapping[str, Value], path: str) -> Iterator[tuple[str, Value]]:
    for key, value in table.items():
        name = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            yield from _leaves(value, name)
        else:
            yield name, value


def _one_of(name: str, wanted: Value) -> Sequence[Value]:
    """The values that a filter lets pass; for a dial that is itself a list, the list is one value."""
    return wanted if isinstance(wanted, tuple) and wrong_value(name, list(wanted)) else (wanted,)


def _wrong_option(name: str, value: Value, field: FieldInfo) -> str:
    choices = get_args(field.annotation)
    if choices and all(isinstance(choice, str) for choice in choices):
        guess = nearest(value, choices) if isinstance(value, str) else None
        hint = f" (did you mean {guess}?)" if guess else ""
        return f"{name} = {shown(value)}: expected one of {', '.join(map(toml_value, choices))}{hint}"
    return f"{name} = {shown(value)}: expected {_EXPECTED.get(name, 'a text')}"


_NUMBER: Final = "a number"
_EXPECTED: Final = {
    "metrics": 'a list of readings such as ["train/loss", "val/loss"]',
    "alphas": "a list of shares of T such as [0.1, 0.5, 1.0]",
    "only": 'settings and values such as { model.kind = "gpt" }',
    **dict.fromkeys(("layers", "heads"), "a list of whole numbers from 1, such as [1, 4]"),
    **dict.fromkeys((*BOUNDS, *AND_BOUNDS), _NUMBER),
}
