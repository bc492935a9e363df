"""The table of all commands: each one's module, and its help line, which needs no import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# heading -> command -> its module, and its first line of help
LISTED: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "To begin": {
        "demo": ("cli.demo", "Tell the story on synthetic data, in under a minute."),
        "doctor": (
            "cli.demo",
            "Start every part for real; say what is missing, what for, and the command that "
            "brings it.",
        ),
        "init": ("cli.owner", "Make a new vault in DIR."),
        "change-key": (
            "cli.owner",
            "Seal the vault by another KEY: a file (made, if absent) or `command:` and what prints "
            "it.",
        ),
        "add": (
            "cli.owner",
            "Add a data set with its card, or a new version of one; without --card, propose a "
            "card.",
        ),
        "add-report": (
            "cli.owner",
            "Print again how the rows of NAME were read when they were added; for its owner alone.",
        ),
    },
    "For researchers": {
        "datasets": ("cli.researcher", "List the data sets that you may ask."),
        "card": ("cli.researcher", "Show what the owner declared of a data set."),
        "twin": (
            "features.synthetic.cli",
            "Make a look-alike of a data set: from its card alone, free; or at a price, from "
            "counts.",
        ),
        "price": (
            "cli.researcher",
            "Say what a question would cost and how far off it would be; nothing is spent.",
        ),
        "ask": (
            "cli.researcher",
            "Ask a question in SQL and get a private answer, paid from the budget.",
        ),
        "answer": ("cli.researcher", "Show an answer of yours again, by its operation; free."),
        "history": ("cli.researcher", "List your own questions, the newest first."),
        "budget": ("cli.researcher", "Show the cap, what is spent and what is left."),
        "pipeline": (
            "features.pipelines.rule_cli",
            "Hand in a program, approve it, run it: private averages over blocks of people.",
        ),
        "airlock": (
            "features.airlock.cli",
            "Let files out that cannot have noise: hand in, run once, look, vote, release, fetch.",
        ),
    },
    "For owners": {
        "enrol": (
            "cli.owner",
            "Put MEMBER into GROUP, so that cards with that group under [ask] let them ask.",
        ),
        "forget-earlier": (
            "cli.owner",
            "Remove from disk the rows of earlier versions, which nobody asks any more.",
        ),
        "stream": (
            "features.streams.cli",
            "Open a running count that goes on, close its days, show what is closed.",
        ),
        "survey": (
            "features.surveys.cli",
            "Ask people whose own devices add the noise: simulate, publish, invite, answer, "
            "results.",
        ),
        "anonymity": (
            "features.anonymization.cli",
            "Measure and reach k-anonymity in a table of your own.",
        ),
        "ledger": (
            "features.audit.ledger_cli",
            "Show the last entries, or verify, print a sheet, acknowledge.",
        ),
        "verify": (
            "features.audit.cli",
            "Check an answer sheet, or an answer's receipt, offline.",
        ),
    },
    "Served, and several vaults as one": {
        "serve": (
            "cli.serve",
            "Serve the vault over HTTP, with its console; an absent vault is made.",
        ),
        "invite": (
            "cli.serve",
            "Let NAME sign in to the service with these roles; prints what opens once.",
        ),
        "sign-in": (
            "cli.sign_in",
            "Sign in to the service that --vault names; the session lasts twelve hours.",
        ),
        "sign-out": (
            "cli.sign_in",
            "Revoke the token for the service that --vault names, and forget it.",
        ),
        "site": (
            "features.federated.site_cli",
            "Serve the vault as a site: what `serve` does, and callers' tensors beside it.",
        ),
        "federate": (
            "features.federated.cli",
            "Ask several sites as one: each adds up its own rows, and only the noisy sum "
            "comes back.",
        ),
    },
    "The lab, on synthetic data": {
        "attack": (
            "cli.lab",
            "Run an attack and say what it found; without a NAME, list the attacks.",
        ),
        "probe": ("cli.lab", "Ask one question again and again, and say what stops it."),
        "audit": ("cli.audit", "Look for a mechanism that leaks more than it claims."),
        "lab": (
            "cli.lab",
            "Open the lab's pages: exhibits with sliders, on synthetic data, for this machine "
            "only.",
        ),
    },
}
