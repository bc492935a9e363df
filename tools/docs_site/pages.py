"""Which files of the repository are pages, and how links of files become links of pages."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = "docs/"
PROJECT: Final = (
    "CONTRIBUTING.md", "INVARIANTS.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md",
)  # fmt: skip
# What is no page itself leads to one that says the same.
INSTEAD: Final = {
    "README.md": "index.md", "examples": "tutorials/notebooks/6-publish-a-data-set.md",
    "docs/decisions": "decisions/index.md", "docs/notebook": "notebook/README.md",
    "docs/reference/codes": "reference/codes/index.md",
}  # fmt: skip
_CODE: Final = re.compile(
    r"^ *(?P<fence>```+|~~~+).*?^ *(?P=fence) *$|(`+)[^`].*?(?<!`)\2(?!`)", re.M | re.S
)
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


@dataclass(frozen=True)
class Page:
    """A page that does not lie in docs/: its place in the site, and its file."""

    target: str
    source: str
    text: str


def target_of(source: str) -> str:
    """Return the place in the site of a file of the repository."""
    if source in INSTEAD:
        return INSTEAD[source]
    if source.startswith(DOCS):
        return source.removeprefix(DOCS)
    if source in PROJECT:
        return "project/" + source.lower()
    if source.startswith("examples/"):
        return "tutorials/notebooks/" + Path(source).stem + ".md"
    if source.endswith(".proof.md"):
        return "explanation/proofs/" + source.removeprefix("src/sfumato/").replace(
            ".proof.md", ".md"
        )
    if re.fullmatch(r"src/sfumato/.*\.py", source):
        return "reference/modules/" + module_of(source).removeprefix("sfumato.") + ".md"
    return ""


def module_of(source: str) -> str:
    """Return the dotted name of a file of the package."""
    return (
        source.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    )


def outside_links(text: str) -> list[re.Match[str]]:
    """Return the links of a text that stand outside of its code."""
    code = [match.span() for match in _CODE.finditer(text)]
    return [
        link for link in _LINK.finditer(text)
        if not any(begin <= link.start() < end for begin, end in code)
    ]  # fmt: skip


def linked_modules(texts: Mapping[str, str]) -> list[str]:
    """Return the files of the package that a page links, where each text has its file's path."""
    found = {
        file
        for source, text in texts.items()
        for link in outside_links(text)
        if (file := resolved(source, link[3])).startswith("src/sfumato/") and file.endswith(".py")
    }
    return sorted(file for file in found if (ROOT / file).is_file())


def relinked(text: str, source: str, target: str, targets: set[str]) -> str:
    """Return the text with links between pages; a link to a file that is no page is dropped.

    Args:
        text: The Markdown of the page.
        source: The file in the repository, where its links start.
        target: The place of the page in the site.
        targets: The places of all pages and pictures.
    """
    parts, at = [], 0
    for link in outside_links(text):
        parts += [text[at : link.start()], _relinked(link, source, target, targets)]
        at = link.end()
    return "".join([*parts, text[at:]])


def _relinked(link: re.Match[str], source: str, target: str, targets: set[str]) -> str:
    mark, words, href = link[1], link[2], link[3]
    if re.match(r"(https?:|mailto:|#)", href):
        return link[0]
    words = relinked(words, source, target, targets)  # a picture that is a link
    place = target_of(resolved(source, href))
    if place in targets:
        fragment = href.partition("#")[2]
        found = posixpath.relpath(place, posixpath.dirname(target) or ".")
        return f"{mark}[{words}]({found}{'#' + fragment if fragment else ''})"
    exists = (ROOT / resolved(source, href)).exists()
    return words if exists and not mark else link[0]  # MkDocs reports what is not there


def resolved(source: str, href: str) -> str:
    """Return the path in the repository that a link of this file names."""
    path = href.partition("#")[0]
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), path))


def written(path: Path) -> tuple[str, str]:
    """Return the path in the repository of a file, and its text."""
    return path.relative_to(ROOT).as_posix(), path.read_text("utf-8")


def pages_outside_docs() -> Iterator[Page]:
    """Yield the project's pages and the proofs, as they are written."""
    for path in (*(ROOT / name for name in PROJECT), *sorted((ROOT / "src").rglob("*.proof.md"))):
        source, text = written(path)
        yield Page(target_of(source), source, text)


def title_of(text: str) -> str:
    """Return the first heading of a text."""
    found = re.search(r"^# (.+)$", text, re.M)
    return found[1].strip() if found else ""


def contents(title: str, intro: str, target: str, pages: list[tuple[str, str]]) -> Page:
    """Return a page that lists others, each given by its place and its text."""
    here = posixpath.dirname(target)
    lines = [f"- [{title_of(text)}]({posixpath.relpath(place, here)})" for place, text in pages]
    return Page(target, "", f"# {title}\n\n{intro}\n\n" + "\n".join(lines) + "\n")
