"""The table of all commands: each one's module, and its help line, which needs no import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# heading -> command -> its module, and its first line of help
LISTED: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "Getting started": {
        "demo": ("cli.demo", "Show what sfumato does, on synthetic data, in under a minute."),
        "doctor": (
            "cli.demo",
            "Test every part; say what is missing, what needs it, and the command that "
            "installs it.",
        ),
        "init": ("cli.owner", "Make a new vault in DIR."),
        "change-key": (
            "cli.owner",
            "Encrypt the vault with another KEY: a file (made if absent), or `command:` and "
            "a command.",
        ),
        "add": (
            "cli.owner",
            "Add a data set or a new version, with its card; without --card, propose a card.",
        ),
        "add-report": (
            "cli.owner",
            "Print the report of how the rows of NAME were read when they were added; owner only.",
        ),
    },
    "For researchers": {
        "datasets": ("cli.researcher", "List the data sets that you may ask."),
        "card": ("cli.researcher", "Show the data card: what the owner declared about a data set."),
        "twin": (
            "features.synthetic.cli",
            "Make synthetic data: from the card alone (free), or from private counts (at a price).",
        ),
        "price": (
            "cli.researcher",
            "Predict the price and the error of a question; nothing is spent.",
        ),
        "ask": (
            "cli.researcher",
            "Ask a question in SQL; the private answer is charged to the budget.",
        ),
        "answer": (
            "cli.researcher",
            "Show an earlier answer of yours again, by its operation id; free.",
        ),
        "history": ("cli.researcher", "List your questions, newest first."),
        "budget": ("cli.researcher", "Show the privacy budget: cap, spent and left."),
        "pipeline": (
            "features.pipelines.rule_cli",
            "Submit, approve and run programs: private averages over blocks of people.",
        ),
        "airlock": (
            "features.airlock.cli",
            "Output checking: reviewers release files without noise (submit, run, show, "
            "vote, fetch).",
        ),
    },
    "For owners": {
        "enrol": (
            "cli.owner",
            "Put MEMBER into GROUP; they can ask every data set whose card lists GROUP "
            "under [ask].",
        ),
        "append": (
            "cli.owner",
            "Append the rows of SOURCE to NAME, as a new version; only the new rows are prepared.",
        ),
        "forget-earlier": (
            "cli.owner",
            "Remove the rows of earlier versions of all data sets from disk.",
        ),
        "forget-person": (
            "cli.owner",
            "Remove one PERSON's rows from NAME, as a new version, and its earlier versions from "
            "disk.",
        ),
        "stream": (
            "features.streams.cli",
            "Open a running count, close its days, show the closed days.",
        ),
        "survey": (
            "features.surveys.cli",
            "Run surveys in which each respondent's device adds the noise (local "
            "differential privacy).",
        ),
        "anonymity": (
            "features.anonymization.cli",
            "Measure and reach k-anonymity in your own table.",
        ),
        "ledger": (
            "features.audit.ledger_cli",
            "Show the last ledger entries; verify the ledger, print answer sheets, end a freeze.",
        ),
        "verify": (
            "features.audit.cli",
            "Check an answer sheet or an answer's receipt offline.",
        ),
    },
    "Services and federations": {
        "serve": (
            "cli.serve",
            "Serve the vault and its console over HTTP; a missing vault is made.",
        ),
        "invite": (
            "cli.serve",
            "Invite NAME to the service with these roles; prints a link that works once.",
        ),
        "sign-in": (
            "cli.sign_in",
            "Sign in to the service that --vault names; the session lasts twelve hours.",
        ),
        "sign-out": (
            "cli.sign_in",
            "Sign out of the service that --vault names, and revoke its token.",
        ),
        "site": (
            "features.federated.site_cli",
            "Serve the vault as a federated site: like `serve`, and also holds callers' tensors.",
        ),
        "federate": (
            "features.federated.cli",
            "Ask several sites together: secure aggregation returns only the noisy sum.",
        ),
    },
    "The lab (synthetic data)": {
        "attack": (
            "cli.lab",
            "Run an attack and print its result; without NAME, list the attacks.",
        ),
        "probe": ("cli.lab", "Ask one question repeatedly, and say what stops the repetition."),
        "audit": ("cli.audit", "Look for a mechanism that leaks more than it claims."),
        "lab": (
            "cli.lab",
            "Open the lab: pages with sliders, on synthetic data, only on this machine.",
        ),
    },
}
