"""Small pieces of HTML for notebooks: text whose tokens are coloured, and tables.

Colours are laid over whatever background there is and text keeps its own colour, so both themes stay readable. What a
model writes is escaped, and its direction follows its first letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import isfinite

FULL_COLOR_BITS = 8.0  # bits from which a token has the strongest colour
MAX_COLOR_OPACITY = 0.6  # opacity


def colored_text_html(
    pieces: Iterable[tuple[str, float, str]], prompt: str = "", underlined: Sequence[bool] = ()
) -> str:
    """Text pieces with their bits and a note each, under colours by bits; marked characters are underlined."""
    parts, at = [], 0
    for text, bits, note in pieces:
        parts.append(
            f'<span style="{_background_style(bits)}" title="{escape(note)}">{_underlined_html(text, underlined, at)}</span>'
        )
        at += len(text)
    head = f"<b>{escape(prompt)}</b>" if prompt else ""
    return f'<pre dir="auto" style="white-space: pre-wrap; unicode-bidi: plaintext">{head}{"".join(parts)}</pre>'


def _background_style(bits: float) -> str:
    strength = MAX_COLOR_OPACITY * min(1.0, max(0.0, bits / FULL_COLOR_BITS)) if isfinite(bits) else 0.0
    return f"background: rgba(230, 110, 20, {strength:.2f})"


def _underlined_html(text: str, underlined: Sequence[bool], start: int) -> str:
    if not any(underlined[start : start + len(text)]):
        return escape(text)
    return f'<u style="text-decoration-thickness: 2px">{escape(text)}</u>'


def legend_html(*sentences: str) -> str:
    """A small line below."""
    return f'<p style="font-size: 85%; opacity: 0.8">{escape(" ".join(sentences))}</p>'


def bar_html(share: float) -> str:
    """A share as a bar a reader can compare by eye."""
    width = round(100 * min(1.0, max(0.0, share)), 1)
    return (
        f'<span style="display: inline-block; width: {width}px; height: 0.7em; background: rgba(40, 120, 200, 0.7)">'
        "</span>"
    )


def table_html(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of cells that are HTML already."""
    top = "".join(f'<th style="text-align: start">{escape(cell)}</th>' for cell in head)
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align: start">{cell}</td>' for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def quoted_token_html(text: str) -> str:
    """A token between quotation marks, in its own direction."""
    return f"<bdi>{escape(repr(text))}</bdi>"
