"""The commands `sign-in` and `sign-out`, for a service."""

from __future__ import annotations

from collections.abc import Mapping

import click

from sfumato.cli.shell import Shell, command
from sfumato.cli.token_file import keep_tokens, kept_tokens, token_for
from sfumato.dp.refusal import Refused


@click.command("sign-in")
@click.option(
    "--name", help="Your user name at the service; if you leave it out, the command asks."
)
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
        known = f"device {name} at {url}"
        body = {"user": name, "password": password}
        if known in kept_tokens():  # an older service neither returns nor accepts this proof
            body["device"] = kept_tokens()[known]
        with shell.app.connect(url, token="") as vault:  # no token exists yet
            session = vault.call("sign-in", body)
        token = session["token"]
        if "device" in session:
            keep_tokens({**kept_tokens(), known: str(session["device"])})
    with shell.app.connect(url, token=token) as vault:
        me, invited = vault.call("me", {}), vault.call("tokens", {}).get("invitations", [])
    keep_tokens({**kept_tokens(), url: token})
    words = "".join(map(_invited, invited)) if len(invited) > 1 else ""
    shell.show({**me, "invitations": invited}, f"Signed in to {url} as {me['user']}.{words}")


@click.command("sign-out")
@click.option("--all-devices", is_flag=True, help="Revoke all your tokens, on every device.")
@command
def sign_out(shell: Shell, all_devices: bool) -> None:
    """Sign out of the service that --vault names, and revoke its token."""
    url = _service(shell)
    with shell.app.connect(url, token=token_for(url)) as vault:
        if all_devices:
            vault.call("revoke-tokens", {"user": vault.call("me", {})["user"]})
        else:
            vault.call("sign-out", {})
    keep_tokens({known: token for known, token in kept_tokens().items() if known != url})
    shell.show({"signed_out": True}, f"Signed out of {url}.")


def _invited(one: Mapping[str, object]) -> str:
    """Describe one invitation of the signed-in user in a line of text.

    With an unexpected invitation, somebody else could sign in as this user.
    """
    made, over = (str(one[name])[:16].replace("T", " ") for name in ("made", "until"))
    until = "open (you can revoke it in the console)" if one["is_open"] else f"ended {over}"
    return f"\n  invited by {one['by']} {made}, {until}"


def _service(shell: Shell) -> str:
    if shell.vault is None or not shell.is_remote:
        raise Refused(
            "vault-missing",
            "The command needs a service.",
            "Give --vault https://HOST, or set SFUMATO_VAULT.",
        )
    return shell.vault.rstrip("/")


COMMANDS = (sign_in, sign_out)
