"""Text becomes one SELECT tree, or is refused: too long, too deep, or no SQL that can be read."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final

from sqlglot import Token, TokenType, exp
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
    tokens = _checked_tokens(text)
    try:
        trees: Sequence[exp.Expr | None] = DuckDB().parser().parse(tokens, text)
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
    _check_whole(tokens, tree)
    return tree


def _check_whole(tokens: Sequence[Token], tree: exp.Select) -> None:
    """Refuse a text of which the parser has dropped something, an argument too many say."""
    try:
        said, kept = _words(tokens), _words(DuckDB().tokenize(tree.sql(dialect="duckdb")))
    except _STRAY:
        said, kept = Counter({"it": 1}), Counter()
    lost = sorted((said - kept).elements())
    if lost:
        raise Refused(
            "not-in-language",
            f"A part of the question has no meaning here: {lost[0][:40]!r}.",
            "Leave it out.",
        )


def _words(tokens: Sequence[Token]) -> Counter[str]:
    """Count the names and constants of a text; functions are called otherwise once printed."""
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


def _checked_tokens(text: str) -> list[Token]:
    """Return the words of a text that is short and flat enough; none, if it cannot be read."""
    if len(text.encode("utf-8", "replace")) > MAX_TEXT:
        raise too_large("16 KB of text")
    if _depth(text) > MAX_DEPTH:
        raise too_large(f"{MAX_DEPTH} levels of brackets")
    try:
        tokens = DuckDB().tokenize(text)
    except _STRAY:
        tokens = []  # nothing can be parsed from it, and that has its own code
    if len(tokens) > MAX_TOKENS:
        raise too_large(f"{MAX_TOKENS} words")
    return tokens


def _depth(text: str) -> int:
    deepest = level = 0
    for letter in text:
        level += (letter in "([{") - (letter in ")]}")
        deepest = max(deepest, level)
    return deepest
