"""Parse text into one SELECT tree; refuse text that is too long, too deep or not readable SQL."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError, SqlglotError

from sfumato.dp.refusal import Refused
from sfumato.query.source_positions import Place
from sfumato.query.sql.columns_and_constants import nodes_of, refuse_at, refuse_unsupported
from sfumato.query.sql.hints import UNION, hint_of_sub_select

MAX_TEXT: Final = 16 * 1024
MAX_TOKENS: Final = 2000
MAX_DEPTH: Final = 20
logging.getLogger("sqlglot").setLevel(logging.CRITICAL + 1)  # sqlglot would log the asker's text
_WORDS: Final = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER)
_OPENING: Final = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING: Final = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_DUCKDB: Final = DuckDB()
_STRAY: Final = (SqlglotError, RecursionError, ValueError, LookupError, AttributeError, TypeError)


@dataclass(frozen=True)
class Parsed:
    """The SELECT of an SQL text, and a refusal to raise after the whole SELECT was read.

    The refusal is for words that the parser dropped. Refusals of unsupported SQL come first,
    because they say more.
    """

    select: exp.Select
    lost: Refused | None


def parse(text: str) -> Parsed:
    """Parse the SQL text as one SELECT, or refuse."""
    tokens = _checked_tokens(text)
    trees: Sequence[exp.Expr | None] = ()
    place: Place | None = None
    try:
        trees = _DUCKDB.parser().parse(tokens, text)
    except ParseError as error:
        place = _stopped_at(error)
    except _STRAY:
        pass
    if len(trees) != 1 or trees[0] is None:
        place = place or _second_statement(tokens)
        refused = Refused(
            "bad-sql",
            "The text cannot be read as one SQL statement.",
            "Write SELECT aggregates FROM the data set WHERE conditions GROUP BY columns.",
        )
        raise refused if place is None else refuse_at(refused, place)
    tree = trees[0]
    if isinstance(tree, exp.SetOperation):
        raise refuse_unsupported(tree, "UNION, INTERSECT and EXCEPT are not supported", UNION)
    if type(tree) is not exp.Select:
        raise refuse_unsupported(tree, "only SELECT is supported")
    return Parsed(tree, _lost(tokens, tree))


def _second_statement(tokens: Sequence[Token]) -> Place | None:
    """Return the position where a second statement begins, or None."""
    pairs = pairwise(tokens)
    return next((_begin(t) for end, t in pairs if end.token_type is TokenType.SEMICOLON), None)


def _stopped_at(error: ParseError) -> Place | None:
    """Return the position where the parser stopped; sqlglot reports the end of the word."""
    found = next(iter(error.errors), {})
    line, column = found.get("line"), found.get("col")
    if not isinstance(line, int) or not isinstance(column, int):
        return None
    return line, max(1, column + 1 - len(str(found.get("highlight") or " ")))


def _lost(tokens: Sequence[Token], tree: exp.Select) -> Refused | None:
    """Return the refusal of an SQL text from which the parser dropped a word, or None."""
    said = _words(tokens)
    if said <= _leaves(tree):
        return None
    try:
        kept = _words(_DUCKDB.tokenize(tree.sql(dialect="duckdb")))
    except _STRAY:
        said, kept = Counter({"it": 1}), Counter()
    lost = sorted((said - kept).elements())
    if not lost:
        return None
    refused = Refused(
        "not-in-language",
        f"sfumato does not support this part of the SQL: {lost[0][:40]!r}.",
        "Remove this part from the question.",
    )
    first = next((t for t in tokens if t.text.casefold() == lost[0]), None)
    return refused if first is None else refuse_at(refused, _begin(first))


def _begin(token: Token) -> Place:
    return token.line, max(1, token.col - (token.end - token.start))


def check_sub_selects(tree: exp.Select) -> None:
    """Refuse a SELECT inside an expression; it is allowed in FROM, JOIN and WITH."""
    for inner in nodes_of(tree):
        if not isinstance(inner, exp.Select):
            continue
        above = inner.parent
        is_alone = type(above) is exp.Subquery and type(above.parent) in (exp.From, exp.Join)
        if inner is tree or is_alone or type(above) is exp.CTE:
            continue
        if type(above) is exp.Subquery:
            above = above.parent
        raise refuse_unsupported(
            inner, "a SELECT in an expression is not supported", hint_of_sub_select(above)
        )


def _leaves(tree: exp.Select) -> Counter[str]:
    """Count the names and constants in the tree; a few times faster than printing the tree.

    The counts are compared with the words of the SQL text, to find words that the parser dropped. A
    word that became something else (a unit, a type) isn't counted. Then the caller prints the tree.
    """
    found: Counter[str] = Counter()
    for node in nodes_of(tree):
        if type(node) is exp.Literal:
            found["a number" if not node.is_string else node.name.casefold()] += 1
        elif type(node) in _LEAVES:
            found[node.name.casefold()] += 1
    return found


_LEAVES: Final = (exp.Identifier, exp.Var)


def _words(tokens: Sequence[Token]) -> Counter[str]:
    """Count the names and constants of a text, without function names, which print differently."""
    before = ["", *(token.text.casefold() for token in tokens[:-1])]
    after = [*(token.text.casefold() for token in tokens[1:]), ""]
    return Counter(
        "a number" if token.token_type is TokenType.NUMBER else token.text.casefold()
        for token, *near in zip(tokens, before, after, strict=True)
        if token.token_type in _WORDS and not _is_of_grammar(token.text.casefold(), *near)
    )


def _is_of_grammar(word: str, before: str, after: str) -> bool:
    """Check whether the word is a function name, or a keyword that is printed differently.

    NULLS LAST is the default order of rows, and WITHIN GROUP another way to write a quantile.
    """
    if after == "(" or (word, after) == ("within", "group"):
        return True
    return (word, after) == ("nulls", "last") or (before, word) == ("nulls", "last")


def too_large(what: str) -> Refused:
    """Return the refusal of a query that is too long or too deep."""
    return Refused(
        "question-too-large",
        f"A question has at most {what}.",
        "Write a shorter question, or split it into several.",
    )


def _checked_tokens(text: str) -> list[Token]:
    """Split the SQL text into tokens; refuse a text that is too long or too deeply nested.

    Return an empty list if the text can't be split into tokens.
    """
    if len(text.encode("utf-8", "replace")) > MAX_TEXT:
        raise too_large("16 KB of text")
    try:
        tokens = _DUCKDB.tokenize(text)
    except _STRAY:
        tokens = []  # parsing will fail, with its own refusal code
    too_deep = _beyond(tokens)
    if too_deep is not None:
        raise refuse_at(too_large(f"{MAX_DEPTH} levels of brackets"), _begin(too_deep))
    if len(tokens) > MAX_TOKENS:
        raise refuse_at(too_large(f"{MAX_TOKENS} words"), _begin(tokens[MAX_TOKENS]))
    return tokens


def _beyond(tokens: Sequence[Token]) -> Token | None:
    """Return the first bracket that is nested too deep; brackets in strings don't count."""
    level = 0
    for token in tokens:
        if token.token_type in _CLOSING:
            level = max(0, level - 1)
        elif token.token_type in _OPENING:
            level += 1
        if level > MAX_DEPTH:
            return token
    return None


def place_at(text: str, at: int) -> Place:
    """Return the line and column of an offset in the text."""
    before = text[:at].split("\n")
    return len(before), len(before[-1]) + 1


def beginning(text: str) -> Place:
    """Return the position of the first character that is no white space."""
    return place_at(text, len(text) - len(text.lstrip()))
