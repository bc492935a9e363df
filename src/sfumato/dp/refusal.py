"""Exceptions: refusals that the caller can act on, bugs of our own, and the table of codes."""

from __future__ import annotations

from types import TracebackType
from typing import Final

# code -> what it means. The table feeds the CLI, the client, HTTP and docs/reference/codes/.
CODES: Final[dict[str, str]] = {
    "airlock-changed": "The files of a request are not what was looked at, or what was released.",
    "airlock-closed": "The card lets nothing out without noise, or names too few reviewers.",
    "airlock-unknown": "There is no such request in the airlock for the caller.",
    "airlock-unsafe": "A file of the request is not what its name says, so it is not let out.",
    "airlock-waits": "The request has not come so far, or is over.",
    "anchor-missing": "The ledger's anchor file is not where it should be.",
    "answer-unknown": "No stored answer stands under that operation.",
    "approval-unknown": "Nothing of that id waits for a second person.",
    "at-rest-key": "The key that opens a sealed vault is missing, wrong, or not kept for oneself.",
    "at-rest-not-possible": "A vault that is sealed at rest cannot do or keep this.",
    "average-not-allowed": "A card does not let such a sum over sites leave without noise.",
    "bad-airlock": "A request to the airlock is not declared as it should be.",
    "bad-budget": "An epsilon, delta or error is not a number that can be charged.",
    "bad-environment": "What a program brings along to run with cannot be had as it was pinned.",
    "bad-federation": "The agreement between sites cannot be read, or would not protect them.",
    "bad-pipeline": "The program, its outputs or its blocks are not declared as they should be.",
    "bad-request": "The request is not of the shape that its verb takes.",
    "bad-card": "The data card cannot be read or contradicts itself.",
    "bad-report": "The report is none that a device of the survey makes.",
    "bad-sql": "The text is not SQL that can be read.",
    "bad-survey": "The survey's definition cannot be read, or contradicts itself.",
    "ballot-forged": "The ballot token was not signed for this survey.",
    "ballot-spent": "The ballot token has counted another report already.",
    "budget-exceeded": "The question costs more than is left.",
    "cells-unreadable": "More cells of a column than may be cannot be read as its type.",
    "connection-unknown": "No connection of that name is for the caller.",
    "data-set-frozen": "The owner has frozen the data set, so nobody asks it.",
    "data-set-exists": "A data set of that name is already in the vault.",
    "engine-unavailable": "The vault's engine cannot be reached, or is none that there is.",
    "engine-unsafe": "The vault's engine would let more be done than reading prepared rows.",
    "error-needs-size": "The error of this aggregate depends on how many people it covers.",
    "error-out-of-reach": "No allowed epsilon reaches that error.",
    "fault": "A fault of ours; it says nothing of the rows.",
    "federation-unknown": "The data set's owner has joined no federation of that name.",
    "invitation-unknown": "The survey has no such invitation.",
    "invitation-used": "The invitation has been given its ballot token already.",
    "job-begun": "The job reads rows already, or is over, so it is not cancelled.",
    "job-unknown": "The caller has no such job.",
    "keys-needed": "A grouping needs keys that the owner has declared.",
    "ledger-busy": "Another process held the ledger for too long.",
    "ledger-frozen": "The ledger was rolled back or cannot show that it was not.",
    "ledger-unavailable": "The ledger's disk or database is full or out of reach.",
    "no-aggregate": "A question must ask for at least one aggregate.",
    "no-bounds": "A column without declared bounds cannot be summed.",
    "no-header": "A file's first line looks like a row, and names of columns are public.",
    "not-allowed": "The asker may not do this.",
    "not-signed-in": "There is no token, or it is wrong, too old, or revoked.",
    "not-installed": "A part that is optional is not installed.",
    "not-in-language": "The question uses something outside the language.",
    "noise-out-of-range": "The noise this question needs is larger than can be drawn exactly.",
    "numbers-too-large": "An expression can grow beyond what is added up exactly.",
    "op-reused": "The operation id already belongs to another question.",
    "out-of-reach": "No way to recode the table reaches what was asked.",
    "pipeline-unknown": "The data set has no program of that digest.",
    "pipeline-waits": "The owner has not approved the program, or not at that price.",
    "question-failed": "The question could not be computed; it was charged all the same.",
    "question-frozen": "This shape of question was stopped once and waits for the owner.",
    "question-too-large": "The text is longer or deeper than a question may be.",
    "remote-elsewhere": "An operation needs tensors that are not at one worker.",
    "remote-private": "What is asked back was computed from a site's own table.",
    "remote-refused": "A worker does no such thing.",
    "remote-unknown": "The worker holds no such object.",
    "same-people": "The rows seem to be of people whose budget has another name.",
    "sandbox-missing": "No sandbox can be started, so no program is run.",
    "second-person-needed": "A second person has to confirm that these are other people.",
    "serve-unsafe": "The service would not be safe, or cannot be reached, as it was asked to run.",
    "service-down": "The service cannot answer just now.",
    "sheet-broken": "An answer sheet or a receipt is not what the vault has signed.",
    "source-unreadable": "The source cannot be read as the card describes it.",
    "source-too-large": "The source has more rows than the card's maximum.",
    "too-large": "The request is larger than may be sent.",
    "too-many": "More was asked at once, or within a minute, than is let in.",
    "sum-message-refused": "A message of a secure sum is not what the round asks for.",
    "sum-not-trusted": "The terms of a secure sum would not protect the site.",
    "sum-too-few": "Too few sites are left for a secure sum.",
    "stream-exists": "A stream of that name was opened with other terms.",
    "stream-failed": "A day of the stream could not be counted; nothing of it was released.",
    "stream-lost": "The private state of the stream is missing, or is not the newest.",
    "stream-not-possible": "The card or the question does not allow such a stream.",
    "stream-out-of-order": "The day is closed already, has not begun, or lies beyond the horizon.",
    "stream-unknown": "The data set has no stream of that name.",
    "survey-not-open": "The survey has not begun, or is over.",
    "survey-unknown": "There is no survey of that id, or it is another's.",
    "top-up-impossible": "The earlier answer cannot be raised to that price.",
    "top-up-unknown": "The asker has no earlier answer to this very question under that operation.",
    "twin-not-possible": "The card does not allow such a twin.",
    "type-mismatch": "A comparison or an aggregate does not fit the column's type.",
    "unknown-column": "The card names no such column.",
    "unknown-data-set": "The vault holds no such data set.",
    "unknown-page": "There is nothing at that address.",
    "unknown-token": "The caller has no such token.",
    "unknown-user": "The vault knows no such user or group.",
    "update-refused": "An update is not of the numbers that a secure sum takes.",
    "upload-unknown": "The caller has no such upload, or it was added or removed.",
    "vault-exists": "The folder already holds a vault.",
    "vault-missing": "The folder holds no vault.",
}


class Refused(Exception):
    """A refusal that the caller can act on: code, cause and next step; never a row's value."""

    def __init__(self, code: str, cause: str, next_step: str, **facts: object) -> None:
        if code not in CODES:
            raise Bug(f"refusal code {code!r} is not in the table")
        super().__init__(f"{code}: {cause} {next_step}")
        self.code = code
        self.cause = cause
        self.next_step = next_step
        self.facts = facts

    def _render_traceback_(self) -> list[str]:
        """Return the traceback for IPython and Jupyter: the caller's line, no sfumato frames."""
        at, line = self.__traceback__, 0
        while at is not None and not _is_ours(at):
            line = at.tb_lineno
            at = at.tb_next
        return [f"Refused ({self.code}), line {line}: {self.cause}", f"  {self.next_step}"]


def _is_ours(at: TracebackType) -> bool:
    return str(at.tb_frame.f_globals.get("__name__")).startswith("sfumato.")


class Bug(Exception):
    """An internal error: sfumato broke its own invariant; callers' input never raises it."""
