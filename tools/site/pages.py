"""What is a page of the site, and where it stands; whatever is new in docs/ finds its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
START: Final = ("README.md", "docs/start-here.md", "docs/glossary.md")
HOW: Final = ("owner", "researcher", "respondent", "auditor", "teacher")
# What a reader needs first stands first; a page that is not named here comes after these.
GUIDES: Final = (
    "sharp-edges", "questions", "serving", "console", "surveys", "twins", "pipelines", "anonymity",
    "airlock", "sites", "federated", "flower", "local", "lab", "lab-attacks", "lab-attacks-models",
    "lab-bounds", "lab-audit", "audit", "figures",
)  # fmt: skip
INSIDE: Final = (
    "docs/explanation/house.md", "INVARIANTS.md", "CONTRIBUTING.md", "SECURITY.md",
    "CODE_OF_CONDUCT.md", "docs/decisions/dependencies.md", "CHANGELOG.md",
)  # fmt: skip


@dataclass(frozen=True)
class Page:
    """One page: its text as Markdown, where that stands in the repository, and where it goes."""

    source: str  # a path in the repository, which links in the text start from
    target: str  # a path in the site
    section: str
    text: str
    is_listed: bool = True  # in the list of pages that stands on every page

    @property
    def title(self) -> str:
        """Return the text's first heading."""
        for line in self.text.splitlines():
            if line.startswith("# "):
                return line[2:].strip().strip("`")
        return Path(self.source).stem


def written_pages() -> Iterator[Page]:
    """Yield every page that somebody wrote, section by section."""
    for path in START:
        yield _page(path, "Start")
    for role in HOW:
        yield _page(f"docs/how-to-{role}.md", "How to, by role")
    written = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))
    placed = {*START, *INSIDE, *(f"docs/how-to-{role}.md" for role in HOW)}
    first = [f"docs/{name}.md" for name in GUIDES]
    for path in first + [path for path in written if path not in {*placed, *first}]:
        yield _page(path, "Guides")
    for path in INSIDE:
        yield _page(path, "Inside")
    for page in sorted((ROOT / "docs" / "explanation").glob("*.md")):
        yield _page(page.relative_to(ROOT).as_posix(), "Inside")
    yield from _folder("docs/codes", "Refusals", "docs/codes/index.md")
    yield from _folder("docs/decisions", "Decisions", None)
    yield from _folder("docs/notebook", "Diaries", "docs/notebook/README.md")


def proof_pages() -> Iterator[Page]:
    """Yield the proofs, which stand beside the mechanisms that they are about."""
    for path in sorted((ROOT / "src").rglob("*.proof.md")):
        source = path.relative_to(ROOT).as_posix()
        target = "proofs/" + source.removeprefix("src/sfumato/").replace(".proof.md", ".html")
        yield Page(source, target, "Proofs", path.read_text("utf-8"), is_listed=False)


def _folder(folder: str, section: str, first: str | None) -> Iterator[Page]:
    """Yield the pages of a folder; only the first of them, if it is named, is listed."""
    if first is not None:
        yield _page(first, section)
    for path in sorted((ROOT / folder).glob("*.md")):
        source = path.relative_to(ROOT).as_posix()
        if source not in (first, *INSIDE):
            yield _page(source, section, is_listed=False)


def _page(source: str, section: str, *, is_listed: bool = True) -> Page:
    text = (ROOT / source).read_text("utf-8")
    return Page(source, target_of(source), section, text, is_listed)


def target_of(source: str) -> str:
    """Return where a Markdown file of the repository goes in the site."""
    place = source.removeprefix("docs/").removesuffix(".md")
    folder, _, name = place.rpartition("/")
    if name == "README":  # what a folder shows first
        return f"{folder}/index.html".removeprefix("/")
    return place.lower() + ".html"


def contents(pages: list[Page], title: str, intro: str, target: str, section: str) -> Page:
    """Return a page that lists the others."""
    depth = "../" * target.count("/")
    lines = [f"- [{page.title}](site:{depth}{page.target})" for page in pages]
    text = f"# {title}\n\n{intro}\n\n" + "\n".join(lines) + "\n"
    return Page("docs/" + target.removesuffix(".html") + ".md", target, section, text)
