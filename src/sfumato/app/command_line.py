"""The entry point of `sfumato`: it imports an app module only when a command needs it.

The parent process of `sfumato serve` runs as long as its service, so it must not hold modules
that it does not use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from sfumato.app.processes import Serving, check, serve, serve_lab
from sfumato.app.settings import settings_of
from sfumato.cli.main import run
from sfumato.dp.refusal import Refused


def main() -> int:
    """Run the `sfumato` command with this process's arguments; return its exit code."""
    return run(sys.argv[1:], CommandLine())


# Any: see cli/serve.py
def serve_vault(folder: str, *, ledger: str | None, say: Callable[[str], None], **how: Any) -> None:
    """Serve a vault over HTTP until stopped; create the vault first if it does not exist."""
    root = Path(folder).absolute()
    serving = Serving(vault=str(root), **how)
    check(serving)
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        _of("app.vault", "create")(root, ledger=ledger, at_rest_key=serving.at_rest_key)
        if serving.at_rest_key is not None:
            say(
                f"The rows are encrypted with the key of {serving.at_rest_key}. If you lose "
                "the key, you lose the rows."
            )
    elif ledger is not None and settings_of(root).get("ledger") != ledger:
        raise Refused(
            "vault-exists",
            "This vault exists already and has its own ledger.",
            "Leave --ledger out.",
        )
    serve(serving, say)


def _of(module: str, name: str) -> Callable[..., Any]:  # Any: any function
    """Return a function that imports its module only when it is called for the first time."""

    def act(*what: Any, **how: Any) -> Any:
        return getattr(import_module(f"sfumato.{module}"), name)(*what, **how)

    return act


class CommandLine:
    """The app's functions for the command line; each imports its module only when called."""

    create: Final = staticmethod(_of("app.vault", "create"))
    open: Final = staticmethod(_of("app.vault", "open"))
    connect: Final = staticmethod(_of("app.vault", "connect"))
    change_key: Final = staticmethod(_of("app.encryption", "change_key"))
    checkup: Final = staticmethod(_of("app.doctor", "checkup"))
    try_program: Final = staticmethod(_of("app.local_trial", "try_program"))
    anonymity: Final = staticmethod(_of("app.vault", "anonymity"))
    federation: Final = staticmethod(_of("app.federation", "federation"))
    new_agreement: Final = staticmethod(_of("app.federation", "new_agreement"))
    new_convener: Final = staticmethod(_of("app.federation", "new_convener"))
    federate_demo: Final = staticmethod(_of("app.site_demo", "demo"))
    serve: Final = staticmethod(serve_vault)
    serve_lab: Final = staticmethod(serve_lab)

    @staticmethod
    def draw(count: int) -> bytes:
        """Return `count` fresh random bytes."""
        drawn: bytes = _of("system.randomness", "SystemRandomSource")().draw(count)
        return drawn
