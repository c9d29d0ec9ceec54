"""Line numbers of TOML keys, which `tomllib` does not report, and size limits checked before parsing.

>>> find_key_lines('[base]\\nmodel.layers = 3\\n')["base.model.layers"]
2
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

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
