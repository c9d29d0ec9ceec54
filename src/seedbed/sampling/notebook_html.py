"""HTML snippets for notebooks: text with coloured tokens, tables, bars.

Colours are translucent backgrounds and the text keeps its own colour, so light and dark themes both stay readable.
Generated text is escaped, and its direction follows its first strong character.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import isfinite

FULL_COLOR_BITS = 8.0  # surprisal from which a token has the strongest colour
MAX_COLOR_OPACITY = 0.6


def colored_text_html(
    pieces: Iterable[tuple[str, float, str]], prompt: str = "", underlined: Sequence[bool] = ()
) -> str:
    """HTML of (text, bits, tooltip) pieces, coloured by bits; pieces with marked characters are underlined."""
    spans, start = [], 0
    for text, bits, tooltip in pieces:
        content = _underlined_html(text, underlined, start)
        spans.append(f'<span style="{_background_style(bits)}" title="{escape(tooltip)}">{content}</span>')
        start += len(text)
    head = f"<b>{escape(prompt)}</b>" if prompt else ""
    return f'<pre dir="auto" style="white-space: pre-wrap; unicode-bidi: plaintext">{head}{"".join(spans)}</pre>'


def _background_style(bits: float) -> str:
    strength = MAX_COLOR_OPACITY * min(1.0, max(0.0, bits / FULL_COLOR_BITS)) if isfinite(bits) else 0.0
    return f"background: rgba(230, 110, 20, {strength:.2f})"


def _underlined_html(text: str, underlined: Sequence[bool], start: int) -> str:
    if not any(underlined[start : start + len(text)]):
        return escape(text)
    return f'<u style="text-decoration-thickness: 2px">{escape(text)}</u>'


def legend_html(*sentences: str) -> str:
    """A small line of text below a figure."""
    return f'<p style="font-size: 85%; opacity: 0.8">{escape(" ".join(sentences))}</p>'


def bar_html(share: float) -> str:
    """A bar whose width is a share in [0, 1]."""
    width = round(100 * min(1.0, max(0.0, share)), 1)
    return (
        f'<span style="display: inline-block; width: {width}px; height: 0.7em; background: rgba(40, 120, 200, 0.7)">'
        "</span>"
    )


def table_html(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; header cells are escaped, row cells are already HTML."""
    top = "".join(f'<th style="text-align: start">{escape(cell)}</th>' for cell in head)
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align: start">{cell}</td>' for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def quoted_token_html(text: str) -> str:
    """A quoted token, isolated so that its text direction does not affect its surroundings."""
    return f"<bdi>{escape(repr(text))}</bdi>"
