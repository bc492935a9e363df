"""Read the built site: every link leads somewhere, and no page loads from elsewhere."""

from __future__ import annotations

import posixpath
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

_ELSEWHERE = re.compile(r"(https?:)?//")


class _Reader(HTMLParser):
    """What a page links and loads, and the ids that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = {""}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.ids.add(value)
            elif name == "href" and value and tag == "a":
                self.links.append(value)
            elif value and (name == "src" or (name, tag) == ("href", "link")):
                self.loads.append(value)


def problems(folder: Path) -> list[str]:
    """Return a line for each link of the site in this folder that leads nowhere.

    Args:
        folder: The built site.

    Returns:
        One line for each broken link, and for each script, style or picture from another host.
    """
    read: dict[str, _Reader] = {}
    for path in sorted(folder.rglob("*.html")):
        reader = _Reader()
        reader.feed(path.read_text("utf-8"))
        read[path.relative_to(folder).as_posix()] = reader
    return [
        f"{name}: {why}: {link}"
        for name, reader in read.items()
        if name != "404.html"  # its links start at the root of a host
        for why, link in _wrong(folder, read, name, reader)
    ]


def _wrong(
    folder: Path, read: dict[str, _Reader], name: str, reader: _Reader
) -> list[tuple[str, str]]:
    loaded = [("loads from elsewhere", link) for link in reader.loads if _ELSEWHERE.match(link)]
    own = (link for link in (*reader.links, *reader.loads) if not _is_outside(link))
    return loaded + [
        ("leads nowhere", link) for link in own if not _leads(folder, read, name, link)
    ]


def _is_outside(link: str) -> bool:
    return bool(_ELSEWHERE.match(link)) or link.startswith(
        ("mailto:", "data:image/", "javascript:")
    )


def _leads(folder: Path, read: dict[str, _Reader], name: str, link: str) -> bool:
    path, _, fragment = unquote(link).partition("#")
    place = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
    if place in read:
        return fragment in read[place].ids
    return (folder / place).is_file()
