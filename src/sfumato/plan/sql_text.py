"""Text becomes one SELECT tree, or is refused: too long, too deep, or no SQL that can be read."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from sfumato.core.refusal import Refused
from sfumato.plan.sql_leaves import outside

MAX_TEXT: Final = 16 * 1024
MAX_TOKENS: Final = 2000
MAX_DEPTH: Final = 20
logging.getLogger("sqlglot").setLevel(logging.CRITICAL + 1)  # it would print the asker's text
_WORDS: Final = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER)
_STRAY: Final = (SqlglotError, RecursionError, ValueError, LookupError, AttributeError, TypeError)


def parsed(text: str) -> exp.Select:
    """Return the one SELECT that the text is, or refuse."""
    _check_size(text)
    try:
        trees: Sequence[exp.Expr | None] = sqlglot.parse(text, dialect="duckdb")
    except _STRAY:
        trees = ()
    if len(trees) != 1 or trees[0] is None:
        raise Refused(
            "bad-sql",
            "This is not one SQL statement that can be read.",
            "Write SELECT aggregates FROM the data set WHERE conditions GROUP BY columns.",
        )
    tree = trees[0]
    if type(tree) is not exp.Select:
        raise outside(tree, "only SELECT is answered")
    _check_whole(text, tree)
    return tree


def _check_whole(text: str, tree: exp.Select) -> None:
    """Refuse a text of which the parser has dropped something, an argument too many say."""
    try:
        said, kept = _words(text), _words(tree.sql(dialect="duckdb"))
    except _STRAY:
        said, kept = Counter({"it": 1}), Counter()
    lost = sorted((said - kept).elements())
    if lost:
        raise Refused(
            "not-in-language",
            f"A part of the question has no meaning here: {lost[0][:40]!r}.",
            "Leave it out.",
        )


def _words(text: str) -> Counter[str]:
    """Count the names and constants of a text; functions are called otherwise once printed."""
    tokens = DuckDB().tokenize(text)
    after = [*(token.token_type for token in tokens[1:]), None]
    pairs = zip(tokens, after, strict=True)
    return Counter(
        "a number" if token.token_type is TokenType.NUMBER else token.text.casefold()
        for token, next_type in pairs
        if token.token_type in _WORDS and next_type is not TokenType.L_PAREN
    )


def too_large(what: str) -> Refused:
    """Return the refusal of a question that is longer or deeper than one may be."""
    return Refused("question-too-large", f"A question has at most {what}.", "Ask a shorter one.")


def _check_size(text: str) -> None:
    if len(text.encode("utf-8", "replace")) > MAX_TEXT:
        raise too_large("16 KB of text")
    if _depth(text) > MAX_DEPTH:
        raise too_large(f"{MAX_DEPTH} levels of brackets")
    try:
        tokens = len(DuckDB().tokenize(text))
    except _STRAY:
        tokens = 0  # the parser refuses it with its own code
    if tokens > MAX_TOKENS:
        raise too_large(f"{MAX_TOKENS} words")


def _depth(text: str) -> int:
    deepest = level = 0
    for letter in text:
        level += (letter in "([{") - (letter in ")]}")
        deepest = max(deepest, level)
    return deepest
