"""Where each key of a TOML text stands, which `tomllib` does not say, and limits checked before anything is parsed.

>>> line_numbers('[base]\\nmodel.layers = 3\\n')["base.model.layers"]
2
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

MAX_DEPTH = 32
MAX_KEY_PARTS = 32
MAX_STRING = 10_000
MAX_TOKENS = 200_000

# Every repetition is possessive or bounded by its line, so that scanning takes time in proportion to the text.
_TOKEN = re.compile(
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


class Token(NamedTuple):
    kind: Literal["newline", "string", "mark", "bare"]
    text: str
    line: int


class OverLimit(ValueError):
    """A text too large in one of its measures to be parsed safely."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


def tokens(text: str) -> Iterator[Token]:
    """The tokens of a TOML text without spaces and comments; stops at the first thing that is not TOML."""
    line, position = 1, 0
    while match := _TOKEN.match(text, position):
        kind = match.lastgroup
        token = match.group()
        if kind != "space":
            yield Token(kind, token, line)  # type: ignore[arg-type]
        line += token.count("\n")
        position = match.end()


def check_limits(text: str) -> None:
    """Raises OverLimit for a text that is nested too deeply, or has too many or too long parts."""
    depth = parts = 0
    for n_tokens, (kind, token, line) in enumerate(tokens(text)):
        if n_tokens >= MAX_TOKENS:
            raise OverLimit(line, f"more than {MAX_TOKENS:,} names, values and signs up to here")
        if kind in ("string", "bare") and len(token) > MAX_STRING:
            raise OverLimit(line, f"a text of {len(token):,} characters; at most {MAX_STRING:,} are accepted")
        depth += (token in "[{") - (token in "]}") if kind == "mark" else 0
        if depth > MAX_DEPTH:
            raise OverLimit(line, f"brackets nested more than {MAX_DEPTH} deep")
        parts = parts + 1 if token == "." else parts if kind in ("string", "bare") else 0
        if parts >= MAX_KEY_PARTS:
            raise OverLimit(line, f"a key of more than {MAX_KEY_PARTS} parts")


def line_numbers(text: str) -> dict[str, int]:
    """The line of each key and list item of a valid TOML text, by its dotted path (`points.0.model.heads`)."""
    scanner = _Scanner([*tokens(text), Token("newline", "\n", text.count("\n") + 1)])
    scanner.read_document()
    return scanner.lines


@dataclass
class _Scanner:
    """Walks over tokens that `tomllib` has already accepted, so it never has to complain."""

    tokens: list[Token]
    at: int = 0
    lines: dict[str, int] = field(default_factory=dict)
    n_items: dict[str, int] = field(default_factory=dict)  # of each [[array]] so far

    def read_document(self) -> None:
        table = ""
        while self.at < len(self.tokens):
            if self._skip("\n"):
                continue
            table = self._read_header() if self._peek() == "[" else self._read_pair(table)

    def _read_header(self) -> str:
        self._skip("[")
        is_item = self._skip("[")
        path = ""
        names, line = self._read_key()
        for place, name in enumerate(names):
            path = _join(path, name)
            if is_item and place == len(names) - 1:
                self.n_items[path] = self.n_items.get(path, 0) + 1
            self.lines.setdefault(path, line)
            if path in self.n_items:
                path = _join(path, str(self.n_items[path] - 1))
        self.lines.setdefault(path, line)
        self._skip("]")
        self._skip("]")
        return path

    def _read_pair(self, table: str) -> str:
        path = table
        names, line = self._read_key()
        for name in names:
            path = _join(path, name)
            self.lines.setdefault(path, line)
        self._skip("=")
        self._read_value(path)
        return table

    def _read_key(self) -> tuple[list[str], int]:
        line = self.tokens[self.at].line
        names = []
        while self._peek() not in ("]", "=", "\n"):
            kind, text, _ = self._next()
            if text != ".":
                names.append(tomllib.loads(f"key = {text}")["key"] if kind == "string" else text)
        return names, line

    def _read_value(self, path: str) -> None:
        self.lines.setdefault(path, self.tokens[self.at].line)
        if self._skip("["):
            self._read_items(path)
        elif self._skip("{"):
            while not self._skip("}"):
                if not self._skip(",") and not self._skip("\n"):
                    self._read_pair(path)
        else:
            while self._peek() not in (",", "]", "}", "\n"):
                self.at += 1

    def _read_items(self, path: str) -> None:
        n_items = 0
        while not self._skip("]"):
            if not self._skip(",") and not self._skip("\n"):
                self._read_value(_join(path, str(n_items)))
                n_items += 1

    def _peek(self) -> str:
        return self.tokens[self.at].text

    def _next(self) -> Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def _skip(self, text: str) -> bool:
        """Whether the next token is this one; if so it is passed."""
        found = self._peek() == text
        self.at += found
        return found


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
