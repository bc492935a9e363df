"""Who may import whom, as docs/house.md draws it; read from the source, not from running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

EVERYTHING: Final = ("",)
# room -> what of ours it may import (a prefix of the dotted name after `sfumato.`)
MAY: Final[Mapping[str, tuple[str, ...]]] = {
    "core": ("core",),
    "plan": ("plan", "core"),
    "door": ("door", "core", "plan"),
    "engines": (
        "engines",
        "core",
        "plan.lower",
        "plan.lower_from",
        "plan.lower_looks",
        "plan.print_values",
        "durable",
        "extras",
        "piped",
        "temporary",
        "together",
    ),
    "sandbox": ("sandbox", "core"),
    "stores": ("stores", "core", "durable", "together"),
    "services": ("core", "plan", "door"),
    "wire": ("wire", "core.refusal"),
    "faces": ("faces", "services", "wire", "core.network"),
    "faces.cli": (
        "faces.cli",
        "services",
        "wire",
        "client",
        "lab",
        "core.rows_text",
        "temporary",
    ),
    "faces.console": ("faces.console", "faces.line", "wire", "client", "lab", "extras"),
    "client": (
        "client",
        "wire",
        "durable",
        "extras",
        "temporary",  # where a frame's rows are written, and swept if the process is killed
        "core.question",
        "core.expression",
        "core.local",
        "core.refusal",
        "core.rows_text",  # how a frame is written
        "core.ballot",  # a respondent's device, and what it makes of an answer
        "core.blind",
        "core.survey",
        "core.survey_coins",
        "core.survey_estimate",
        "core.survey_promise",
        "core.survey_tally",
    ),
    "lab": ("lab", "client", "core", "dice", "extras"),
    "federated": ("federated", "core", "dice", "client.remote", "piped"),
    "convening": EVERYTHING,  # a part of the app: what a vault is as a site, and who convenes
    "dice": (),
    "garbage": (),
    "piped": (),
    "durable": (),
    "temporary": (),
    "together": (),
    "clock": (),
    "app": EVERYTHING,
    "vault_engine": EVERYTHING,  # a part of the app: builds the engine that a vault names
    "vault_rest": EVERYTHING,  # a part of the app: opens a vault that is sealed at rest
    "vault_stores": EVERYTHING,  # a part of the app: opens the stores that a vault names
    "settings": ("core.refusal", "durable"),
    "extras": ("core.refusal",),
    "serving": EVERYTHING,  # a part of the app: starts the processes of a service
    "site_demo": EVERYTHING,  # a part of the app: starts the processes of several sites
    "checkup": EVERYTHING,  # the doctor starts concrete things, as the app does
    "command": EVERYTHING,  # a part of the app: loads what a command needs
    "__main__": ("command",),
    "": ("app", "core.refusal"),  # the package itself
}


@dataclass(frozen=True)
class Import:
    """One import of ours: where it stands and what it names."""

    importer: str
    imported: str
    line: int


def imports_of(package: Path) -> Iterator[Import]:
    """Yield every import of ours in the package, wherever in a file it stands."""
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        importer = ".".join(p for p in parts if p != "__init__")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for name in _names(node, parts):
                yield Import(importer, name, getattr(node, "lineno", 0))


def _names(node: ast.AST, parts: tuple[str, ...]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        full = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            above = ("sfumato", *parts)[: len(parts) + 1 - node.level]
            base = ".".join([*above, base] if base else above)
        full = [f"{base}.{alias.name}" for alias in node.names]
    else:
        return
    for name in full:
        if name == "sfumato" or name.startswith("sfumato."):
            yield name.removeprefix("sfumato").removeprefix(".")


def is_allowed(found: Import) -> bool:
    """Say whether the table lets this import stand."""
    room = _room(found.importer)
    allowed = MAY[room]
    if room == "services":
        own = ".".join(found.importer.split(".")[:2])
        allowed = (*allowed, own)
        if found.imported.startswith("door."):
            return found.imported.count(".") == 1  # the door's public names only
    return allowed == EVERYTHING or any(_is_under(found.imported, p) for p in allowed)


def _room(importer: str) -> str:
    first, _, rest = importer.partition(".")
    two = f"{first}.{rest.split('.')[0]}" if rest else first
    return two if two in MAY else first


def _is_under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")
