"""Render the console's pages from templates with autoescaping; serve static files from memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final
from urllib.parse import quote

from jinja2 import Environment, FunctionLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from sfumato.server.console.number_text import FILTERS
from sfumato.server.console.refusal_text import in_pages
from sfumato.wire.verb_table import BY_NAME

KINDS: Final[Mapping[str, str]] = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOR_EVER: Final = "public, max-age=31536000, immutable"  # the URL contains the content's digest


@dataclass(frozen=True)
class Renderer:
    """The console's page templates, and its static files with their digest."""

    templates: Environment
    static: Mapping[str, bytes]
    digest: str

    def page(self, name: str, status: int = 200, **values: object) -> Response:
        """Render the template with that name as an HTML reply."""
        text = self.templates.get_template(name).render(static=f"/static/{self.digest}", **values)
        return HTMLResponse(text, status)

    def file(self, digest: str, name: str) -> Response | None:
        """Return a reply with a static file; None if the digest or the name is unknown."""
        content = self.static.get(name) if digest == self.digest else None
        if content is None:
            return None
        kind = KINDS[name[name.rindex(".") :]]
        return Response(content, headers={"Cache-Control": FOR_EVER, "Content-Type": kind})


def make_renderer() -> Renderer:
    """Read all console templates and static files into memory, and return their renderer."""
    texts = {name: content.decode() for name, content in _read("templates").items()}
    static = _read("static")
    digest = hashlib.sha256(b"".join(n.encode() + static[n] for n in sorted(static))).hexdigest()
    made = Environment(
        loader=FunctionLoader(texts.get),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    made.filters["in_pages"] = in_pages
    made.filters["in_path"] = lambda value: quote(str(value), safe="")
    made.globals["verbs"] = frozenset(BY_NAME)
    return Renderer(made, static, digest[:16])


def _read(folder: str) -> dict[str, bytes]:
    found = files("sfumato.server.console") / folder
    return {one.name: one.read_bytes() for one in found.iterdir() if one.is_file()}
