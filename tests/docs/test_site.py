"""The site is built without a network, has every page, and no link of it leads nowhere."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from sfumato.client import DataSet
from sfumato.dp.refusal import CODES
from sfumato.wire.verb_table import ROUTES
from tools.site.build import build, check_links
from tools.site.pages import ROOT
from tools.site.render import Broken, render


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "docs"
    build(folder)
    return folder


def test_every_written_page_is_a_page_of_it(site: Path) -> None:
    for path in (ROOT / "docs").rglob("*.md"):
        page = path.with_name("index.md") if path.name == "README.md" else path
        assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").is_file(), path
    proofs = len(list((ROOT / "src").rglob("*.proof.md")))
    assert len(list((site / "proofs").rglob("*.html"))) == proofs + 1
    notebooks = len(list((ROOT / "examples").glob("*.ipynb")))
    assert len(list((site / "examples").glob("*.html"))) == notebooks


def test_the_reference_has_every_route_every_code_and_the_commands(site: Path) -> None:
    routes = (site / "reference" / "routes.html").read_text("utf-8")
    assert [r.path for r in ROUTES if f"<code>{r.method} {r.path}</code>" not in routes] == []
    codes = (site / "reference" / "refusals.html").read_text("utf-8")
    assert [code for code in CODES if f'href="../codes/{code}.html"' not in codes] == []
    commands = (site / "reference" / "commands.html").read_text("utf-8")
    for command in ("sfumato add", "sfumato ask", "sfumato survey publish", "sfumato serve"):
        assert f'<h2 id="{command.replace(" ", "-")}">{command}</h2>' in commands


def test_the_reference_lists_the_arguments_of_a_method(site: Path) -> None:
    python = (site / "reference" / "python.html").read_text("utf-8")
    (ask,) = re.findall(r"<code>DataSet\.ask\(.*?</ul>", python, re.S)
    for name in inspect.signature(DataSet.ask).parameters:
        assert name == "self" or f"<li><code>{name}</code>: " in ask, name
    assert "<em>Raises</em>: Refused: <code>budget-exceeded</code>" in ask


def test_a_notebook_shows_what_it_drew(site: Path) -> None:
    page = (site / "examples" / "6-publish-a-data-set.html").read_text("utf-8")
    assert "data:image/svg+xml" in page or "<svg" in page
    assert "NOTEBOOKCELL" not in page


def test_every_page_says_where_one_is_and_loads_nothing_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text("utf-8")
        assert "<h1" in text, path
        assert not re.search(r'(src|<link[^>]*href)="(https?:)?//', text), path
        assert "<script" not in text, path


def test_a_link_that_leads_nowhere_is_found(site: Path, tmp_path: Path) -> None:
    with pytest.raises(Broken, match=r"docs/a\.md: gone\.md"):
        render("[x](gone.md)", "docs/a.md", "a.html", {}, lambda _file: False)
    for wrong in ('<a href="gone.html">x</a>', '<a href="#gone">x</a>',
                  '<img src="https://elsewhere/x.png">'):  # fmt: skip
        (tmp_path / "a.html").write_text(f"<h1>A</h1>{wrong}")
        with pytest.raises(Broken, match=r"a\.html"):
            check_links(tmp_path)


def test_every_page_is_linked_from_another_one() -> None:
    pages = [*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "INVARIANTS.md"]
    linked = {
        (page.parent / link).resolve()
        for page in pages
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8"))
        if "://" not in link
    }
    assert [page.name for page in ROOT.glob("docs/*.md") if page.resolve() not in linked] == []


def test_text_of_a_page_is_no_html() -> None:
    made = render("# <b>x</b>\n\n<script>1</script>", "a.md", "a.html", {}, lambda _file: True)
    assert "<script>" not in made.html
    assert "<b>" not in made.html
