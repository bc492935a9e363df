"""One request to the console: its user, their rights, and calls to the vault's process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sfumato.dp.refusal import Refused
from sfumato.server.console.forms import Form
from sfumato.server.console.session import csrf_of
from sfumato.server.console.templates_renderer import Renderer
from sfumato.server.ipc.edge_client import DoorConnection
from sfumato.wire.http_status import STATUS
from sfumato.wire.json_text import json_text
from sfumato.wire.query_json import read_refusal
from sfumato.wire.verb_table import BY_NAME

Said = dict[str, Any]  # Any: JSON; the service's tests check its shape
NOBODY: Final[Mapping[str, object]] = {"user": "", "roles": [], "actions": []}


@dataclass(frozen=True)
class Visit:
    """A request to the console, with everything that its page needs.

    Its calls have only the rights of the session token.
    """

    request: Request
    line: DoorConnection
    paper: Renderer
    draw: Callable[[int], bytes]  # random bytes, for operation ids
    token: str = ""
    me: Mapping[str, Any] = field(default_factory=lambda: NOBODY)  # Any: JSON
    form: Form = field(default_factory=lambda: Form({}))

    @cached_property
    def place(self) -> str:
        """Return the IP address of the client, or "?" if it is unknown."""
        return self.request.client.host if self.request.client is not None else "?"

    def may(self, action: str) -> bool:
        """Return True if the user's session permits the action."""
        return action in self.me["actions"]

    def at(self, name: str) -> str:
        """Return a parameter of the URL path, such as the name of a data set."""
        return str(self.request.path_params[name])

    async def call(self, verb: str, body: Mapping[str, object] | None = None) -> Said:
        """Call a verb (API operation) in the vault's process.

        Return its result or raise `Refused`.
        """
        given = dict(body or {})
        route = BY_NAME[verb]
        params = {key: given.pop(key) for key in (*route.places, *route.query) if key in given}
        text = json_text(given).encode() if route.has_body else b""
        answered = await self.line.call(
            verb, token=self.token, place=self.place, params=params, body=text
        )
        said: Said = json.loads(answered.body)
        refused = read_refusal(said)
        if refused is not None:
            raise refused
        return said

    async def tried(
        self, verb: str, body: Callable[[], Mapping[str, object]]
    ) -> tuple[Said | None, Refused | None]:
        """Call an API verb. Return its result and None, or None and its refusal.

        `body` is a function that is called here, so that an unreadable field is refused in the same
        way. A refusal because the session has ended is raised.
        """
        try:
            return await self.call(verb, body()), None
        except Refused as refused:
            if refused.code == "not-signed-in" and self.token:
                raise
            kept = refused
        return None, kept

    def page(self, name: str, refused: Refused | None = None, **values: object) -> Response:
        """Render a page of the console; if it shows a refusal, that sets the HTTP status."""
        return self.paper.page(
            name,
            200 if refused is None else STATUS[refused.code],
            refused=refused,
            me=self.me,
            csrf=csrf_of(self.token) if self.token else "",
            path=self.request.url.path,
            **values,
        )

    def go(self, path: str) -> Response:
        """Return a redirect of the browser to another page of the console."""
        return RedirectResponse(path, 303)


def is_known(verb: str) -> bool:
    """Return True if this version of the service has the API verb."""
    return verb in BY_NAME


def safe_path(path: str) -> str:
    """Return the path unchanged if it is a path of this host; return "/" for any other URL."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\"))
    return path if is_ours and path.isprintable() and len(path) < 2000 else "/"


def whole_number(text: str) -> int | None:
    """Parse a whole number; None if the text is not a whole number."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 17 else None


def unknown_page() -> Refused:
    """Return the refusal of a URL that the console does not have."""
    return Refused(
        "unknown-page",
        "There is no page at this address.",
        "Check the address, or start from the first page (/).",
    )
