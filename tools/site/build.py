"""Put the site together: pages, pictures, one stylesheet, and no link that leads nowhere."""

from __future__ import annotations

import posixpath
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tools.site.notebooks import fill, notebook_pages
from tools.site.pages import ROOT, Page, contents, proof_pages, written_pages
from tools.site.reference import reference_pages
from tools.site.render import Broken, picture_place, render

HERE = Path(__file__).parent
SECTIONS = (
    "Start", "How to, by role", "Guides", "Notebooks", "Reference", "Refusals", "Proofs",
    "Inside", "Decisions", "Diaries",
)  # fmt: skip


def build(folder: Path) -> list[Page]:
    """Write the site into the folder, which is made anew; return its pages."""
    pages = all_pages()
    places = {page.source: page.target for page in pages}
    places |= {"examples": "examples/1-heights.html", "docs/decisions": "decisions/index.html"}
    places |= {"docs/notebook": "notebook/index.html"}
    shutil.rmtree(folder, ignore_errors=True)
    template = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined
    ).get_template("page.html")
    written: dict[str, str] = {}
    pictures: set[str] = set()
    for page in pages:
        made = render(
            page.text, page.source, page.target, places, lambda file: (ROOT / file).exists()
        )
        pictures |= made.pictures
        html = fill(made.html, page.source) if page.section == "Notebooks" else made.html
        head, _, body = html.partition("</h1>")
        written[page.target] = template.render(
            page=page, head=f"{head}</h1>", body=body, headings=made.headings,
            menu=_menu(pages, page), up="../" * page.target.count("/"),
        )  # fmt: skip
    _write(folder, written, pictures)
    check_links(folder)
    return pages


def all_pages() -> list[Page]:
    """Return every page, in the order of the sections."""
    pages, proofs = list(written_pages()), list(proof_pages())
    decisions = [page for page in pages if page.section == "Decisions"]
    pages += [*notebook_pages(), *reference_pages(), *proofs]
    intro = (
        "Each mechanism has its proof beside it in the code, and a test of its law. The pages say "
        "what is claimed, why it holds, and what the code relies on."
    )
    pages.append(contents(proofs, "Proofs", intro, "proofs/index.html", "Proofs"))
    why = "Each page: the question, the decision, its reasons, and what would change our mind."
    pages.append(contents(decisions, "Decisions", why, "decisions/index.html", "Decisions"))
    return sorted(pages, key=lambda page: SECTIONS.index(page.section))


def _menu(pages: list[Page], here: Page) -> list[tuple[str, list[tuple[str, str, bool]]]]:
    """Return for each section its listed pages: title, where from here, whether it is this."""
    start = posixpath.dirname(here.target) or "."
    return [
        (
            section,
            [
                (page.title, posixpath.relpath(page.target, start), page.target == here.target)
                for page in pages
                if page.section == section and page.is_listed
            ],
        )
        for section in SECTIONS
    ]


def _write(folder: Path, written: dict[str, str], pictures: set[str]) -> None:
    for target, html in written.items():
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        (folder / target).write_text(html, "utf-8")
    for file in pictures:
        place = folder / picture_place(file)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, place)
    shutil.copyfile(HERE / "site.css", folder / "site.css")


class _Reader(HTMLParser):
    """What a page points at, and what in it can be pointed at."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif name == "href" and value and tag == "a":
                self.points.append(value)
            elif name in ("src", "href") and value:
                self.loads.append(value)


def check_links(folder: Path) -> None:
    """Raise if a link of the site leads nowhere, or a page would load something from elsewhere."""
    read: dict[str, _Reader] = {}
    for path in folder.rglob("*.html"):
        reader = _Reader()
        reader.feed(path.read_text("utf-8"))
        read[path.relative_to(folder).as_posix()] = reader
    wrong = [
        f"{name}: {link}"
        for name, reader in read.items()
        for link in (*reader.points, *reader.loads)
        if not _leads(folder, read, name, link, is_loaded=link in reader.loads)
    ]
    if wrong:
        raise Broken("\n".join(wrong))


def _leads(
    folder: Path, read: dict[str, _Reader], name: str, link: str, *, is_loaded: bool
) -> bool:
    if re.match(r"(https?:|mailto:)", link):
        return not is_loaded
    if link.startswith("data:image/"):
        return True
    path, _, fragment = link.partition("#")
    place = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
    if fragment and place in read:
        return fragment in read[place].ids
    return (folder / place).is_file()
