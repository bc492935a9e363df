"""Exceptions: refusals that the caller can act on, bugs of our own, and the table of codes."""

from __future__ import annotations

from types import TracebackType
from typing import Final

# code -> meaning. The CLI, the client, HTTP and docs/reference/codes/ use this table.
CODES: Final[dict[str, str]] = {
    "airlock-changed": "The files of a request differ from those that were reviewed or released.",
    "airlock-closed": "The card allows no release without noise, or names too few reviewers.",
    "airlock-unknown": "The airlock has no such request that the caller may see.",
    "airlock-unsafe": (
        "A file of the request is not of the type that its name says, so it is not let out."
    ),
    "airlock-waits": "The request has not reached this step yet, or it is over.",
    "anchor-missing": "The ledger's anchor file is missing or damaged.",
    "answer-unknown": "No stored answer has this operation id.",
    "approval-unknown": "No request with this id waits for a second person.",
    "at-rest-key": (
        "The key of a vault that is encrypted at rest is missing, wrong, or not kept private."
    ),
    "at-rest-not-possible": "A vault that is encrypted at rest cannot do or keep this.",
    "average-not-allowed": "A card does not allow this sum over sites without noise.",
    "bad-airlock": "A request to the airlock is not declared correctly.",
    "bad-budget": "An epsilon, delta or error is not a number that can be charged.",
    "bad-environment": "The environment of a program is not available as it was pinned.",
    "bad-federation": "The agreement between sites cannot be read, or would not protect them.",
    "bad-pipeline": "The program, its outputs or its blocks are not declared correctly.",
    "bad-request": "The request does not have the shape that its verb takes.",
    "bad-card": "The data card cannot be read or contradicts itself.",
    "bad-report": "No device of the survey makes such a report.",
    "bad-sql": "The text is not SQL that can be read.",
    "bad-survey": "The survey's definition cannot be read, or contradicts itself.",
    "ballot-forged": "The ballot token was not signed for this survey.",
    "ballot-spent": "The ballot token was already used for another report.",
    "budget-exceeded": "The question costs more than the budget that is left.",
    "cells-unreadable": "Too many cells of a column cannot be read as its type.",
    "connection-unknown": "The caller may use no connection of that name.",
    "data-set-frozen": "The owner has frozen the data set, so it answers no questions.",
    "data-set-exists": "A data set of that name is already in the vault.",
    "engine-unavailable": "The vault's engine cannot be reached, or there is no such engine.",
    "engine-unsafe": "The vault's engine would allow more than reading prepared rows.",
    "error-needs-size": "The error of this aggregate depends on how many people it covers.",
    "error-out-of-reach": "No allowed epsilon reaches that error.",
    "fault": "An internal error; it says nothing about the rows.",
    "federation-unknown": "The data set's owner has joined no federation of that name.",
    "image-not-pulled": "An image of a program was not pulled from its registry.",
    "invitation-unknown": "The survey has no such invitation.",
    "invitation-used": "The invitation was already used for a ballot token.",
    "job-begun": "The job already reads rows, or it is over, so it cannot be cancelled.",
    "job-unknown": "The caller has no such job.",
    "keys-needed": "A grouping needs keys that the owner has declared.",
    "ledger-busy": "Another process held the ledger for too long.",
    "ledger-frozen": "The ledger was rolled back, or it cannot prove that it was not.",
    "ledger-unavailable": "The ledger's disk or database is full or cannot be reached.",
    "no-aggregate": "A question must ask for at least one aggregate.",
    "no-bounds": "A column without declared bounds cannot be summed.",
    "no-header": "A file's first line looks like a row of data, but column names are public.",
    "not-allowed": "The asker may not do this.",
    "not-signed-in": "The token is missing, wrong, expired or revoked.",
    "not-installed": "An optional package is not installed.",
    "not-in-language": "The question uses something outside the language.",
    "noise-out-of-range": "The noise that this question needs is too wide to be drawn exactly.",
    "numbers-too-large": "An expression can become too large for an exact sum.",
    "op-reused": "The operation id already belongs to another question.",
    "out-of-reach": "No recoding of the table reaches the goal.",
    "pipeline-unknown": "The data set has no program of that digest.",
    "pipeline-waits": "The owner has not approved the program, or not at that price.",
    "question-failed": "The question could not be computed, but it was charged.",
    "question-frozen": "A question of this shape was stopped once, and the owner has to thaw it.",
    "question-too-large": "The question is too long or too deeply nested.",
    "remote-elsewhere": "An operation needs tensors that are not at one worker.",
    "remote-private": "The requested value was computed from a site's own table.",
    "remote-refused": "A worker does not allow this operation.",
    "remote-unknown": "The worker holds no such object.",
    "same-people": "The rows seem to belong to people who have a budget under another name.",
    "sandbox-missing": "No sandbox can be started, so no program can run.",
    "second-person-needed": "A second person has to confirm that these are other people.",
    "serve-unsafe": "With these settings, the service would not be safe or could not be reached.",
    "service-down": "The service cannot answer now.",
    "sheet-broken": "An answer sheet or a receipt is not what the vault has signed.",
    "source-unreadable": "The source cannot be read as the card describes it.",
    "source-too-large": "The source has more rows than the card's maximum.",
    "too-large": "The request is larger than the service takes.",
    "too-many": "There were too many requests at once, or within a minute.",
    "sum-message-refused": "A message of a secure sum is not what the round expects.",
    "sum-not-trusted": "The terms of a secure sum would not protect the site.",
    "sum-too-few": "Too few sites are left for a secure sum.",
    "stream-exists": "A stream of that name was opened with other terms.",
    "stream-failed": "A day of the stream could not be counted; nothing of it was released.",
    "stream-lost": "The private state of the stream is missing, or is not the newest.",
    "stream-not-possible": "The card or the question does not allow such a stream.",
    "stream-out-of-order": "The day is closed already, has not begun, or is after the horizon.",
    "stream-unknown": "The data set has no stream of that name.",
    "survey-not-open": "The survey has not begun, or is over.",
    "survey-unknown": "There is no survey with that id, or it belongs to somebody else.",
    "top-up-impossible": "The earlier answer cannot be raised to that price.",
    "top-up-unknown": "The asker has no earlier answer to this question with that operation id.",
    "twin-not-possible": "The card does not allow such a twin.",
    "type-mismatch": "A comparison or an aggregate does not fit the column's type.",
    "unknown-column": "The card names no such column.",
    "unknown-data-set": "The vault holds no such data set.",
    "unknown-page": "There is nothing at that address.",
    "unknown-token": "The caller has no such token.",
    "unknown-user": "The vault knows no such user or group.",
    "update-refused": "An update does not have the numbers that a secure sum takes.",
    "upload-unknown": "The caller has no such upload, or it was already added or removed.",
    "vault-exists": "The folder already holds a vault.",
    "vault-missing": "The folder holds no vault.",
}


class Refused(Exception):
    """A refusal that the caller can act on: its code, its cause and the next step.

    A refusal never holds a value of a row.
    """

    def __init__(self, code: str, cause: str, next_step: str, **facts: object) -> None:
        if code not in CODES:
            raise Bug(f"refusal code {code!r} is not in the table")
        super().__init__(f"{code}: {cause} {next_step}")
        self.code = code
        self.cause = cause
        self.next_step = next_step
        self.facts = facts

    def _render_traceback_(self) -> list[str]:
        """Return a short traceback for IPython and Jupyter: the caller's line, none of ours."""
        at, line = self.__traceback__, 0
        while at is not None and not _is_ours(at):
            line = at.tb_lineno
            at = at.tb_next
        return [f"Refused ({self.code}), line {line}: {self.cause}", f"  {self.next_step}"]


def _is_ours(at: TracebackType) -> bool:
    return str(at.tb_frame.f_globals.get("__name__")).startswith("sfumato.")


class Bug(Exception):
    """An internal error: sfumato broke its own invariant. Input of callers never raises it."""
