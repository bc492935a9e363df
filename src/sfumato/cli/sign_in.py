"""Signing in to a service: the token lies in a file that only its user may read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from sfumato.cli.shell import Shell, command
from sfumato.dp.refusal import Refused


def tokens_path() -> Path:
    """Return where this user's tokens lie."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "sfumato" / "tokens.json"


def token_for(url: str) -> str:
    """Return the token for a service: SFUMATO_TOKEN, or what `sign-in` has kept; or refuse."""
    given = os.environ.get("SFUMATO_TOKEN")
    kept = given or _kept().get(url.rstrip("/"))
    if not kept:
        raise Refused(
            "not-signed-in",
            f"There is no token for {url}.",
            f"Run `sfumato sign-in --vault {url}`, or set SFUMATO_TOKEN.",
        )
    return kept


@click.command("sign-in")
@click.option("--name", help="Your name at the service; asked for if left out.")
@click.option("--token", "with_token", is_flag=True, help="Paste a token instead of a password.")
@command
def sign_in(shell: Shell, name: str | None, with_token: bool) -> None:
    """Sign in to the service that --vault names; the session lasts twelve hours."""
    url = _service(shell)
    if with_token:
        token = click.prompt("Token", hide_input=True)
    else:
        name = name or click.prompt("Name")
        password = click.prompt("Password", hide_input=True)
        known = f"device of {name} at {url}"
        body = {"user": name, "password": password}
        if known in _kept():  # a service of before gives none, and takes none
            body["device"] = _kept()[known]
        with shell.app.connect(url, token="") as vault:  # nobody yet
            session = vault.call("sign-in", body)
        token = session["token"]
        if "device" in session:
            _keep({**_kept(), known: str(session["device"])})
    with shell.app.connect(url, token=token) as vault:
        me, invited = vault.call("me", {}), vault.call("tokens", {}).get("invitations", [])
    _keep({**_kept(), url: token})
    words = "".join(map(_invited, invited)) if len(invited) > 1 else ""
    shell.show({**me, "invitations": invited}, f"Signed in to {url} as {me['user']}.{words}")


@click.command("sign-out")
@click.option("--all-devices", is_flag=True, help="Revoke every token of yours, wherever it is.")
@command
def sign_out(shell: Shell, all_devices: bool) -> None:
    """Revoke the token for the service that --vault names, and forget it."""
    url = _service(shell)
    with shell.app.connect(url, token=token_for(url)) as vault:
        if all_devices:
            vault.call("revoke-tokens", {"user": vault.call("me", {})["user"]})
        else:
            vault.call("sign-out", {})
    _keep({known: token for known, token in _kept().items() if known != url})
    shell.show({"signed_out": True}, f"Signed out of {url}.")


def _invited(one: Mapping[str, object]) -> str:
    """Return a line of an invitation: one that was not asked for lets somebody else in."""
    made, over = (str(one[name])[:16].replace("T", " ") for name in ("made", "until"))
    until = "open: revoke it in the console" if one["is_open"] else f"over {over}"
    return f"\n  invited by {one['by']} {made}, {until}"


def _service(shell: Shell) -> str:
    if shell.vault is None or not shell.is_remote:
        raise Refused(
            "vault-missing", "No service was named.", "Give --vault https://HOST, or SFUMATO_VAULT."
        )
    return shell.vault.rstrip("/")


def _kept() -> dict[str, str]:
    path = tokens_path()
    try:
        found: Any = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    except ValueError:
        found = {}
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def _keep(tokens: dict[str, str]) -> None:
    """Write the tokens anew, whole or not at all; nobody else may ever read the file."""
    path = tokens_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = path.with_suffix(".new")
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(tokens, file)
    made.chmod(0o600)
    made.replace(path)


COMMANDS = (sign_in, sign_out)
