"""Refusals the asker can act on, faults that are ours, and the one table of codes."""

from __future__ import annotations

from typing import Final

# code -> what it means. The table feeds the CLI, the client, HTTP and docs/codes/.
CODES: Final[dict[str, str]] = {
    "anchor-missing": "The ledger's anchor file is not where it should be.",
    "answer-unknown": "No stored answer stands under that operation.",
    "bad-budget": "An epsilon, delta or error is not a number that can be charged.",
    "bad-card": "The data card cannot be read or contradicts itself.",
    "bad-sql": "The text is not SQL that can be read.",
    "budget-exceeded": "The question costs more than is left.",
    "data-set-exists": "A data set of that name is already in the vault.",
    "engine-unavailable": "The vault's engine cannot be reached, or is none that there is.",
    "engine-unsafe": "The vault's engine would let more be done than reading prepared rows.",
    "error-needs-size": "The error of this aggregate depends on how many people it covers.",
    "error-out-of-reach": "No allowed epsilon reaches that error.",
    "keys-needed": "A grouping needs keys that the owner has declared.",
    "ledger-busy": "Another process held the ledger for too long.",
    "ledger-frozen": "The ledger was rolled back or cannot show that it was not.",
    "ledger-unavailable": "The ledger's disk or database is full or out of reach.",
    "no-aggregate": "A question must ask for at least one aggregate.",
    "no-bounds": "A column without declared bounds cannot be summed.",
    "not-allowed": "The asker may not do this.",
    "not-installed": "A part that is optional is not installed.",
    "not-in-language": "The question uses something outside the language.",
    "noise-out-of-range": "The noise this question needs is larger than can be drawn exactly.",
    "numbers-too-large": "An expression can grow beyond what is added up exactly.",
    "op-reused": "The operation id already belongs to another question.",
    "question-failed": "The question could not be computed; it was charged all the same.",
    "question-frozen": "This shape of question was stopped once and waits for the owner.",
    "question-too-large": "The text is longer or deeper than a question may be.",
    "same-people": "The rows seem to be of people whose budget has another name.",
    "source-unreadable": "The source cannot be read as the card describes it.",
    "source-too-large": "The source has more rows than the card's maximum.",
    "top-up-impossible": "The earlier answer cannot be raised to that price.",
    "top-up-unknown": "The asker has no earlier answer to this very question under that operation.",
    "type-mismatch": "A comparison or an aggregate does not fit the column's type.",
    "unknown-column": "The card names no such column.",
    "unknown-data-set": "The vault holds no such data set.",
    "unknown-user": "The vault knows no such user or group.",
    "vault-exists": "The folder already holds a vault.",
    "vault-missing": "The folder holds no vault.",
}


class Refused(Exception):
    """A refusal that the asker can act on: a code, why, what to do next; never a row's value."""

    def __init__(self, code: str, cause: str, next_step: str, **facts: object) -> None:
        if code not in CODES:
            raise Bug(f"refusal code {code!r} is not in the table")
        super().__init__(f"{code}: {cause} {next_step}")
        self.code = code
        self.cause = cause
        self.next_step = next_step
        self.facts = facts


class Bug(Exception):
    """We broke a promise of our own; never raised for something the asker did."""
