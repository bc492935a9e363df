"""Commands of requests for images: researchers ask, and operators accept or decline."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from sfumato.cli.shell import Shell, command, show_elapsed
from sfumato.dp.refusal import Refused
from sfumato.wire.query_json import Json

_WORDS = {
    "waiting": "waits for the operator", "accepted": "accepted, and not pulled yet",
    "declined": "declined", "there": "on the machine: --environment",
}  # fmt: skip


@click.command("request")
@click.argument("image", metavar="REGISTRY/NAME@sha256:...")
@click.option("--why", default="", metavar="TEXT", help="What you need it for.")
@command
def request(shell: Shell, image: str, why: str) -> None:
    """Ask the operator for an image at a registry that the vault allows."""
    with shell.open() as vault:
        made = vault.call("request-image", {"image": image, "why": why})
    shell.show(made, "\n".join(_lines(made)))


@click.command("requests")
@command
def requests(shell: Shell) -> None:
    """List requests for images: all if you are an operator, else your own."""
    with shell.open() as vault:
        found = vault.call("image-requests", {})
    lines = [line for one in found["requests"] for line in _lines(one)]
    shell.show(found, "\n".join(lines or ["There are no requests that you may see."]))


@click.command("accept")
@click.argument("request_id", metavar="REQUEST")
@click.option(
    "--login",
    type=click.Path(exists=True, dir_okay=False),
    help="A file with USER:PASSWORD, or the file that `docker login` writes.",
)
@command
def accept(shell: Shell, request_id: str, login: str | None) -> None:
    """Accept a request. In the vault's folder, this also pulls the image; over HTTP it does not."""
    if shell.is_remote:
        if login is not None:
            raise click.UsageError("--login is for the vault's own machine, which pulls the image.")
        with shell.open() as vault:
            made = vault.call("decide-image-request", {"request": request_id, "state": "accepted"})
        pull = f"sfumato pipeline environment accept {request_id}"
        next_ = f"To pull it, run this on the vault's machine: {pull}"
        shell.show(made, "\n".join([*_lines(made), next_]))
        return
    with shell.open_folder() as vault:
        found = _found(vault.call("image-requests", {})["requests"], request_id)
        with show_elapsed("Pulling"):
            vault.environments.pull_image(found["image"], None if login is None else Path(login))
        body = {"request": request_id, "state": "accepted"}
        made = vault.call("decide-image-request", body)
    shell.show(made, "\n".join(_lines(made)))


@click.command("decline")
@click.argument("request_id", metavar="REQUEST")
@click.option("--reason", default="", metavar="TEXT", help="The reason, which the researcher sees.")
@command
def decline(shell: Shell, request_id: str, reason: str) -> None:
    """Decline a request for an image."""
    body = {"request": request_id, "state": "declined", "reason": reason}
    with shell.open() as vault:
        made = vault.call("decide-image-request", body)
    shell.show(made, "\n".join(_lines(made)))


def _found(requests: list[Any], request_id: str) -> Any:  # Any: JSON of the service
    found = [one for one in requests if one["request"] == request_id]
    if not found:
        raise Refused(
            "bad-request",
            "There is no request for an image with this id.",
            "See `sfumato pipeline environment requests`.",
        )
    return found[0]


def _lines(one: Json) -> list[str]:
    state = _WORDS[str(one["state"])]
    name = f" {one['environment']}" if one["state"] == "there" else ""
    return [
        f"{one['request']} by {one['by']}, {one['at']}: {one['image']}",
        f"  {state}{name}",
        *(f"  why: {line}" for line in str(one["why"]).splitlines()),
        *(f"  reason: {line}" for line in str(one["reason"]).splitlines()),
    ]


REQUESTS: Final = (request, requests, accept, decline)
