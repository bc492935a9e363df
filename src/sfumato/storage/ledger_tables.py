"""The ledger's SQL tables: integer amounts with CHECK constraints, and append-only rows."""

from __future__ import annotations

from typing import Final

from sfumato.storage.database import Dialect
from sfumato.vault.hash_chain import MAX_SUM

APPEND_ONLY: Final = ("ledger_entries", "ledger_answers", "ledger_payers")
SUMS: Final = ("epsilon", "delta", "rho", "rho_delta")

# The two tests of the privacy filter (soundness rule 3), as in `fits_under_cap`.
_WITHIN: Final = (
    "(spent_epsilon <= cap_epsilon AND spent_delta <= cap_delta)"
    " OR (spent_rho <= cap_rho AND spent_rho_delta <= cap_rho_delta)"
)

_HEAD = """CREATE TABLE ledger_head (
    id {integer} NOT NULL PRIMARY KEY CHECK (id = 1),
    ledger TEXT NOT NULL,
    epoch {integer} NOT NULL CHECK (epoch >= 1),
    seq {integer} NOT NULL CHECK (seq >= 1),
    hash TEXT NOT NULL,
    frozen TEXT,
    origin TEXT NOT NULL
){table_end}"""

_ENTRIES = """CREATE TABLE ledger_entries (
    seq {integer} NOT NULL PRIMARY KEY CHECK (seq >= 1),
    epoch {integer} NOT NULL CHECK (epoch >= 1),
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    prev TEXT NOT NULL,
    hash TEXT NOT NULL
){table_end}"""

# `lowered` is 1 exactly while an owner's new cap is below what is spent. Every debit writes 0. So
# the CHECK enforces the privacy filter for every debit, even if a statement's WHERE is wrong.
_ACCOUNTS = """CREATE TABLE ledger_accounts (
    name TEXT NOT NULL PRIMARY KEY,
    {columns},
    lowered {integer} NOT NULL CHECK (lowered IN (0, 1)),
    CHECK ((lowered = 0) = ({within}))
){table_end}"""

_OPERATIONS = """CREATE TABLE ledger_operations (
    asker TEXT NOT NULL,
    op TEXT NOT NULL,
    request TEXT NOT NULL,
    answer_key TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('charged', 'answered', 'failed')),
    seq {integer} NOT NULL REFERENCES ledger_entries (seq),
    ended {integer} REFERENCES ledger_entries (seq),
    PRIMARY KEY (asker, op),
    CHECK ((state = 'charged') = (ended IS NULL))
){table_end}"""

# A partial index of open operations, to find the one that is computing the same answer.
_READINGS = """CREATE INDEX ledger_readings ON ledger_operations (answer_key)
    WHERE state = 'charged'"""

_ANSWERS = """CREATE TABLE ledger_answers (
    answer_key TEXT NOT NULL PRIMARY KEY,
    seq {integer} NOT NULL REFERENCES ledger_entries (seq),
    answer TEXT NOT NULL
){table_end}"""

_PAYERS = """CREATE TABLE ledger_payers (
    answer_key TEXT NOT NULL REFERENCES ledger_answers (answer_key),
    account TEXT NOT NULL REFERENCES ledger_accounts (name),
    seq {integer} NOT NULL REFERENCES ledger_entries (seq),
    PRIMARY KEY (answer_key, account)
){table_end}"""

_SHAPES = """CREATE TABLE ledger_frozen_shapes (
    shape TEXT NOT NULL PRIMARY KEY
){table_end}"""


def statements(dialect: Dialect) -> tuple[str, ...]:
    """Return the SQL statements that create the tables of an empty ledger, in order."""
    words = {
        "integer": dialect.integer,
        "table_end": dialect.table_end,
        "columns": ",\n    ".join(_amounts(dialect.integer)),
        "within": _WITHIN,
    }
    tables = (_HEAD, _ENTRIES, _ACCOUNTS, _OPERATIONS, _READINGS, _ANSWERS, _PAYERS, _SHAPES)
    return tuple(table.format(**words) for table in tables) + dialect.guards


def _amounts(integer: str) -> list[str]:
    caps = [
        f"cap_{name} {integer} NOT NULL CHECK (cap_{name} BETWEEN 0 AND {MAX_SUM - 1})"
        for name in SUMS
    ]
    sums = [
        f"spent_{name} {integer} NOT NULL CHECK (spent_{name} BETWEEN 0 AND {MAX_SUM})"
        for name in SUMS
    ]
    return caps + sums
