"""TOML as text: parsed within limits, with the line of each key; values and keys written; spelling suggestions.

    document = parse_toml(text, path)      # StudyError with the line if it is not TOML, or too large
    lines = find_key_lines(text)           # which `tomllib` does not report

>>> format_toml_value({"orders": (2, 3), "kind": "gpt"})
'{ orders = [2, 3], kind = "gpt" }'
>>> find_key_lines('[base]\\nmodel.layers = 3\\n')["base.model.layers"]
2
>>> did_you_mean("model.head", ["model.heads", "train.lr"])
' (did you mean model.heads?)'
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Literal, NamedTuple

from seedbed.errors import Problem, StudyError
from seedbed.settings import Value

SETTING_GROUPS = ("task", "model", "train")  # the prefix of every setting's name
MAX_PREVIEW_CHARACTERS = 60  # longest value quoted in a message
MAX_INT_BITS = 64
MAX_NESTING_DEPTH = 32
MAX_KEY_PARTS = 32
MAX_STRING_CHARACTERS = 10_000
MAX_TOKENS = 200_000

# Every repetition is possessive or bounded by its line, so that scanning takes linear time on hostile input.
_TOKEN_PATTERN = re.compile(
    r"""
      (?P<space>   [ \t\r]++ | \#[^\n]*+ )
    | (?P<newline> \n )
    | (?P<string>  \"{3} (?: \\. | (?!\"{3})[^\\] )*+ \"{3,5} | '{3} (?: (?!'{3}). )*+ '{3,5}
                 | \" (?: \\[^\n] | [^\"\\\n] )*+ \" | ' [^'\n]*+ ' )
    | (?P<mark>    [][{},=.] )
    | (?P<bare>    [^][{},=.\s"'#]++ )
    """,
    re.VERBOSE | re.DOTALL,
)


# ---- writing ----


def format_toml_value(value: Value) -> str:
    """The value as TOML; unprintable characters are escaped."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "".join(_escape_unprintable(character) for character in json.dumps(value, ensure_ascii=False))
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(format_toml_value, value)) + "]"
    if isinstance(value, dict):
        inside = ", ".join(f"{format_toml_key(key)} = {format_toml_value(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:  # Python refuses to print thousands of digits
        return f"<integer of {value.bit_length()} bits>"
    return str(value)


def _escape_unprintable(character: str) -> str:
    if character.isprintable():
        return character
    return f"\\u{ord(character):04x}" if ord(character) <= 0xFFFF else f"\\U{ord(character):08x}"


def format_toml_key(name: str) -> str:
    """A dotted name as a TOML key, its parts quoted where needed."""
    return ".".join(
        part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else format_toml_value(part) for part in name.split(".")
    )


def preview_toml(value: Value) -> str:
    """The value as TOML, shortened for a message."""
    return truncate_text(format_toml_value(value))


def truncate_text(text: str) -> str:
    return text if len(text) <= MAX_PREVIEW_CHARACTERS else text[: MAX_PREVIEW_CHARACTERS - 1] + "…"


# ---- reading ----


def parse_toml(text: str, path: str) -> dict[str, Value]:
    """The TOML document; StudyError if it exceeds the limits or is not TOML."""
    try:
        check_toml_limits(text)
        return tomllib.loads(text)
    except LimitError as limit:
        raise study_error(f"{path}:{limit.line}", str(limit)) from None
    except tomllib.TOMLDecodeError as error:
        what, _, position = str(error).rpartition(" (at ")
        found = re.match(r"line (\d+), (column \d+)", position)
        line = int(found[1]) if found else text.count("\n") + 1
        if not re.search(r"(?m)^\s*(\[|[\w.\"'-]+\s*=)", text):
            raise study_error(
                path, "not a study file; expected TOML, such as seeds = 3, or [base] above settings"
            ) from None
        what = _describe_repeated_key(text, line, what) or f"{what} ({found[2] if found else 'end of file'})"
        raise study_error(f"{path}:{line}", what) from None
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits, a date that does not exist
        raise study_error(path, f"cannot be read as TOML ({error})") from None


def _describe_repeated_key(text: str, line: int, what: str) -> str | None:
    """`seeds is given twice (lines 2 and 3)`, if that is what the parser objects to."""
    if not what.startswith(("Cannot overwrite a value", "Cannot declare")):
        return None
    lines = text.splitlines()
    key = re.match(r"\s*(\[{1,2}[^]]+\]{1,2}|[^=]+?)\s*(?:=|$)", lines[line - 1])
    if key is None:
        return None
    earlier = [n for n in range(1, line) if re.match(rf"\s*{re.escape(key[1])}\s*(?:=|#|$)", lines[n - 1])]
    return f"{truncate_text(key[1])} is given twice (lines {earlier[-1]} and {line})" if earlier else None


def study_error(where: str, what: str) -> StudyError:
    return StudyError([Problem(where, what)])


def parse_value(piece: str) -> Value:
    """A TOML value, or the text itself if it is not TOML; LimitError if it is too large to read."""
    line = f"value = {piece}"
    check_toml_limits(line)
    if "\n" in piece or "\r" in piece:  # TOML would read several lines
        return piece
    try:
        return tomllib.loads(line)["value"]
    except ValueError:
        return piece


def split_outside_quotes(text: str, separators: str) -> Iterator[str]:
    """The pieces of a text between any of these characters, where they are outside brackets and quotes."""
    depth, quote, start = 0, "", 0
    for index, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character in separators and depth <= 0:
            yield text[start:index]
            start = index + 1
    yield text[start:]


def flatten_table(table: Mapping[str, Value], prefix: str = "") -> Iterator[tuple[str, Value]]:
    """Dotted names and values of a table of settings, whether their names are nested or dotted."""
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and (value or name in SETTING_GROUPS):
            yield from flatten_table(value, f"{name}.")
        else:
            yield name, value


# ---- limits and lines ----


class TomlToken(NamedTuple):
    kind: Literal["newline", "string", "mark", "bare"]
    text: str
    line: int


class LimitError(ValueError):
    """Text that is too large, too long or too deeply nested to be parsed safely."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


def tokenize_toml(text: str) -> Iterator[TomlToken]:
    """The tokens of a TOML text without whitespace and comments; stops at the first character that fits none."""
    line, position = 1, 0
    while match := _TOKEN_PATTERN.match(text, position):
        kind = match.lastgroup
        token = match.group()
        if kind != "space":
            yield TomlToken(kind, token, line)  # type: ignore[arg-type]
        line += token.count("\n")
        position = match.end()


def check_toml_limits(text: str) -> None:
    """Raise LimitError if the text has too many tokens, too long strings or keys, or too deep nesting."""
    depth = parts = 0
    for n_tokens, (kind, token, line) in enumerate(tokenize_toml(text)):
        if n_tokens >= MAX_TOKENS:
            raise LimitError(line, f"more than {MAX_TOKENS:,} tokens up to here")
        if kind in ("string", "bare") and len(token) > MAX_STRING_CHARACTERS:
            raise LimitError(
                line, f"a string of {len(token):,} characters; at most {MAX_STRING_CHARACTERS:,} are accepted"
            )
        depth += (token in "[{") - (token in "]}") if kind == "mark" else 0
        if depth > MAX_NESTING_DEPTH:
            raise LimitError(line, f"brackets nested more than {MAX_NESTING_DEPTH} deep")
        parts = parts + 1 if token == "." else parts if kind in ("string", "bare") else 0
        if parts >= MAX_KEY_PARTS:
            raise LimitError(line, f"a key of more than {MAX_KEY_PARTS} parts")


def find_key_lines(text: str) -> dict[str, int]:
    """The line of each key and list item of a valid TOML text, by dotted path (`configs.0.model.heads`)."""
    scanner = _KeyLineScanner([*tokenize_toml(text), TomlToken("newline", "\n", text.count("\n") + 1)])
    scanner.scan_document()
    return scanner.lines


@dataclass
class _KeyLineScanner:
    """Walks over tokens that `tomllib` has already accepted, so it needs no error handling."""

    tokens: list[TomlToken]
    position: int = 0
    lines: dict[str, int] = field(default_factory=dict)
    n_array_items: dict[str, int] = field(default_factory=dict)  # items of each [[array of tables]] so far

    def scan_document(self) -> None:
        table = ""
        while self.position < len(self.tokens):
            if self._accept("\n"):
                continue
            table = self._scan_header() if self._peek() == "[" else self._scan_pair(table)

    def _scan_header(self) -> str:
        self._accept("[")
        is_item = self._accept("[")
        path = ""
        names, line = self._scan_key()
        for index, name in enumerate(names):
            path = _join_path(path, name)
            if is_item and index == len(names) - 1:
                self.n_array_items[path] = self.n_array_items.get(path, 0) + 1
            self.lines.setdefault(path, line)
            if path in self.n_array_items:
                path = _join_path(path, str(self.n_array_items[path] - 1))
        self.lines.setdefault(path, line)
        self._accept("]")
        self._accept("]")
        return path

    def _scan_pair(self, table: str) -> str:
        path = table
        names, line = self._scan_key()
        for name in names:
            path = _join_path(path, name)
            self.lines.setdefault(path, line)
        self._accept("=")
        self._scan_value(path)
        return table

    def _scan_key(self) -> tuple[list[str], int]:
        line = self.tokens[self.position].line
        names = []
        while self._peek() not in ("]", "=", "\n"):
            kind, text, _ = self._next()
            if text != ".":
                names.append(tomllib.loads(f"key = {text}")["key"] if kind == "string" else text)
        return names, line

    def _scan_value(self, path: str) -> None:
        self.lines.setdefault(path, self.tokens[self.position].line)
        if self._accept("["):
            self._scan_items(path)
        elif self._accept("{"):
            while not self._accept("}"):
                if not self._accept(",") and not self._accept("\n"):
                    self._scan_pair(path)
        else:
            while self._peek() not in (",", "]", "}", "\n"):
                self.position += 1

    def _scan_items(self, path: str) -> None:
        n_items = 0
        while not self._accept("]"):
            if not self._accept(",") and not self._accept("\n"):
                self._scan_value(_join_path(path, str(n_items)))
                n_items += 1

    def _peek(self) -> str:
        return self.tokens[self.position].text

    def _next(self) -> TomlToken:
        self.position += 1
        return self.tokens[self.position - 1]

    def _accept(self, text: str) -> bool:
        """Consume the next token if it is this one; returns whether it was."""
        found = self._peek() == text
        self.position += found
        return found


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# ---- spelling suggestions ----


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean X?)`, or an empty string if no known name is close."""
    guess = closest_match(name, known)
    return f" (did you mean {guess}?)" if guess else ""


def closest_match(name: str, known: Iterable[str]) -> str | None:
    """The most likely intended name: one with the same last part, else the closest spelling of it, in its group first.

    A common group such as `train.` says nothing about the rest of a name, so only the last parts are compared.

    >>> known = ["task.p", "train.lr_floor", "train.steps", "model.batch_norm", "train.batch_size"]
    >>> closest_match("train.step", known), closest_match("train.foo", known), closest_match("task.foo", known)
    ('train.steps', None, None)
    >>> closest_match("train.batch", known)
    'train.batch_size'
    """
    if len(name) > MAX_PREVIEW_CHARACTERS:
        return None
    known = list(known)
    name = name.lower()
    group, _, last = name.rpartition(".")
    if not group and (close := get_close_matches(name, known, n=1, cutoff=0.7)):
        return close[0]
    by_last = {choice.rpartition(".")[2]: choice for choice in reversed(known)}
    by_last |= {choice.rpartition(".")[2]: choice for choice in known if choice.rpartition(".")[0] == group}
    close = [last] if last in by_last else get_close_matches(last, by_last, n=1, cutoff=0.7)
    if not close and last:  # the beginning of a longer name
        longer = [choice for choice in by_last if choice.startswith(f"{last}_")]
        close = sorted(longer, key=lambda choice: not by_last[choice].startswith(f"{group}."))[:1]
    return by_last[close[0]] if close else None
