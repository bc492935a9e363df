"""Rewrite a refusal's next step for console readers, who have no command line.

Refusals are written once and name command-line options. Here these are replaced by the names of
the fields and pages that do the same.
"""

from __future__ import annotations

import re
from typing import Final

from sfumato.dp.refusal import Refused

GROUPS, ROWS = "“Max groups per person”", "“Max rows per person and group”"  # labels of ask.html
_NEW: Final = "“Who confirms that they are new”"  # of guided.html
INSTEAD: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(said), instead)
    for said, instead in (
        (r"max_groups \(--max-groups\)", GROUPS),
        (r"max_rows \(--max-rows\)", ROWS),
        (r"with `sfumato card [^`]*`", "on its page"),
        (r"See what there is with `sfumato datasets`", "See what there is under Data sets"),
        (r"See `sfumato airlock list(?: DATA_SET)?`", "See the data set's airlock"),
        (r"Look again with `sfumato airlock show`", "Look at the request again"),
        (r": `sfumato airlock vote`", ", on the page of the request"),
        (r"Take it out with `sfumato airlock edit`", "Take it out, and send the files again"),
        (r"as owner, run `sfumato ledger acknowledge`", "have its owner acknowledge the gap there"),
        (r"the owner runs `sfumato ledger acknowledge`", "its owner acknowledges the gap there"),
        (r"Give --delta 1e-6", "Give δ 1e-6 under More terms"),
        (r"Give your own guess with --people N", "Give your own guess under More terms"),
        (r" \(--error COLUMN=X; in Python error=\{\"COLUMN\": X\}\)", ""),
        (r"--epsilon 2 to raise", "ε 2 to raise"),
        (r"; --error does not go with it", "; a wanted error does not go with it"),
        (r"with --fresh, which", "with new noise (under More terms), which"),
        (r"ask the operator for --max-upload", "ask the operator to let larger files in"),
        (r"add --different-people NAME(?: \([^)]*\))?", f"name them under {_NEW}"),
        (r": --different-people NAME, or different_people over HTTP", f", under {_NEW}"),
        (r"as a new version: sfumato add", "as a new version, under Add a data set"),
        (r"Add --with [^ ]*=FILE", "Bring that table's file too"),
        (r"Name one of them with --table, or inner_table in Python: ",
         "Choose one of them: "),
        (r"Leave --table out, or inner_table\. Of a database, name the table in the source: "
         r"connection:NAME/SCHEMA\.TABLE", "Leave the table of the file out"),
        (r"Name yourself with --user NAME, or SFUMATO_USER", "Sign in again"),
        (r"Set a connection up \(--connection NAME=FILE\), and give connection:NAME/SCHEMA\.TABLE",
         "Have the operator set a connection up, and choose its table"),
        (r"Average each column by itself, or recode with --method mondrian",
         "Average each column by itself, or recode by the method of Mondrian"),
        (r" with `sfumato serve --name NAME`", ""),
        (r"Run there: sfumato invite [^ ]* --role owner --vault DIR",
         "Whoever keeps the vault invites them there"),
        (r": sfumato invite [^ ]* --role [a-z]* --vault DIR", "."),
        (r"with `sfumato (?:site|federate join|stream open)`", "on its own machine"),
        (r"`sfumato pipeline plan` does that", "A trial does that"),
        (r"Run `sfumato pipeline plan`, which", "Make a trial, which"),
        (r"Make one with `sfumato pipeline plan`, which", "Make a trial below, which"),
        (r"choose --blocks, --trim and --take yourself", "choose the terms of the run yourself"),
        (r"trimmed mean \(--trim (\w+)\)", r"trimmed mean (without \1 at each end)"),
        (r"approve it with --timing batch", "allow batches on the page of its review"),
        (r"Run `sfumato add NAME FOLDER` without --card\. It shows where, and drafts "
         r"\[bids\.description\] without it",
         "A draft of the card, made without a card of your own, shows where. It has "
         "[bids.description] without it"),
        (r": --people on the command line, people= in Python", ""),
        (r"; `aws configure export-credentials --format env` prints those of a profile", ""),
        (r", or is named with --main PATH", ", or is chosen below"),
        (r" \(--with\)", ""),
        (r": use `tar --dereference` \(not with hard links: also --hard-dereference\), or `zip` "
         r"without -y", ", not the links"),
        (r"ask the operator for --max-folder", "ask the operator to let larger folders in"),
        (r" \(`git annex find --not --in origin` in a clone\)", ""),
        (r"Run `sfumato doctor` on the vault's machine: it says what is missing",
         "Whoever runs the vault can see there what is missing"),
        (r"on DuckDB, which `sfumato init` makes by default, or", "on DuckDB or"),
        (r"use a vault that `sfumato init` makes by default", "use a vault on DuckDB"),
        (r": `sfumato history`, the page History, or GET /v1/questions", " (page History)"),
        (r"list of your runs, or from `sfumato history`", "list of your runs"),
        (r": --epsilon E or --error OUTPUT=X", ""),
        (r", who sees it in `sfumato pipeline list`", ", who sees it under Programs"),
        (r"find its digest with `sfumato pipeline list`", "find it under Programs"),
        (r"Decline the program with `sfumato pipeline decline`, and give a --reason",
         "Decline the program, and give a reason"),
        (r"`sfumato (?:pipeline|stream|federate|anonymity|site)[^`]*`", "the command line"),
    )
)  # fmt: skip


def in_pages(text: str) -> str:
    """Replace command-line commands and options in a sentence by console fields and pages."""
    for said, instead in INSTEAD:
        text = said.sub(instead, text)
    return text


def for_pages(refused: Refused) -> Refused:
    """Return the refusal with its next step rewritten for console pages."""
    return Refused(refused.code, refused.cause, in_pages(refused.next_step), **refused.facts)
