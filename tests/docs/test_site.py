"""The site builds without a warning, its search finds the terms, and it needs no network."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from sfumato.client import DataSet
from sfumato.dp.refusal import CODES
from sfumato.wire.verb_table import VERBS
from support.browser import chromium
from tools.docs_site.link_check import problems
from tools.docs_site.markdown_lists import to_python_markdown
from tools.docs_site.pages import ROOT, outside_links, relinked, target_of

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md")])
# What somebody who knows another library searches for, and a page that has to be found.
FOUND = {
    "contribution bound": "reference/glossary.html",
    "privacy unit": "reference/glossary.html",
    "local differential privacy": "reference/glossary.html",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        (sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)),
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


@pytest.mark.slow
def test_every_written_page_is_a_page_of_it(site: Path) -> None:
    for path in (ROOT / "docs").rglob("*.md"):
        page = path.with_name("index.md") if path.name == "README.md" else path
        assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").is_file(), path
    proofs = len(list((ROOT / "src").rglob("*.proof.md")))
    assert len(list((site / "explanation" / "proofs").rglob("*.html"))) == proofs + 1
    notebooks = len(list((ROOT / "examples").glob("*.ipynb")))
    assert len(list((site / "tutorials" / "notebooks").glob("*.html"))) == notebooks


@pytest.mark.slow
def test_the_reference_has_every_route_every_code_and_the_commands(site: Path) -> None:
    routes = (site / "reference" / "routes.html").read_text("utf-8")
    assert [r.path for r in VERBS if f"<code>{r.method} {r.path}</code>" not in routes] == []
    codes = (site / "reference" / "codes" / "index.html").read_text("utf-8")
    assert [code for code in CODES if f'href="{code}.html"' not in codes] == []
    commands = (site / "reference" / "commands.html").read_text("utf-8")
    for command in ("sfumato add", "sfumato ask", "sfumato survey publish", "sfumato serve"):
        assert f'<h2 id="{command.replace(" ", "-")}">{command}<' in commands


@pytest.mark.slow
def test_the_reference_has_the_arguments_of_a_method_from_its_docstring(site: Path) -> None:
    python = (site / "reference" / "python.html").read_text("utf-8")
    ask = python.partition('id="sfumato.client.DataSet.ask"')[2].partition("<h4")[0]
    for name in inspect.signature(DataSet.ask).parameters:
        assert name == "self" or f"<code>{name}</code>" in ask, name
    assert "Raises:" in ask


@pytest.mark.slow
def test_code_is_highlighted_and_a_notebook_shows_what_it_drew(site: Path) -> None:
    assert '<span class="k' in (site / "how-to" / "researcher.html").read_text("utf-8")
    page = (site / "tutorials" / "notebooks" / "2-privacy-and-usefulness.html").read_text("utf-8")
    drawn = r'<div class="output"><figure>[^<]*<div id="chart"[^>]*><svg .*class="marks"'
    assert re.search(drawn, page)


@pytest.mark.slow
def test_the_search_of_a_site_that_is_opened_as_a_file_finds_the_terms(site: Path) -> None:
    outside: list[str] = []
    with chromium() as browser:
        for term, page in FOUND.items():
            tab = browser.new_page()
            tab.on("request", lambda request: outside.append(request.url))
            tab.goto((site / "index.html").as_uri())
            tab.locator(".md-search__input").click()
            tab.keyboard.type(term, delay=30)
            first = tab.locator(".md-search-result__item > a").first
            first.wait_for(timeout=120_000)
            tab.wait_for_timeout(1000)  # what was found for the last letter
            assert page in str(first.get_attribute("href")), term
            tab.close()
    assert [url for url in outside if not url.startswith(("file:", "data:", "about:"))] == []


def test_lists_and_tables_are_those_of_a_code_host() -> None:
    markdown = pytest.importorskip("markdown")
    for path in PAGES:
        text = path.read_text("utf-8")
        extensions = ["tables", "pymdownx.superfences", "sane_lists"]
        ours = markdown.markdown(to_python_markdown(text), extensions=extensions)
        theirs = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
        assert blocks(ours) == blocks(theirs), path


def blocks(html: str) -> Counter[str]:
    return Counter(re.findall(r"<(li|ul|ol|table|tr|h\d|img)\b", html))


def test_a_link_becomes_one_between_pages_and_what_is_no_page_loses_it() -> None:
    text = "[a](../../README.md#x) [b](../../bench/page.py) `[c](d.md)` [e](gone.md) [f](https://g.org)"
    assert relinked(text, "docs/how-to/a.md", "how-to/a.md", {"index.md"}) == (
        "[a](../index.md#x) b `[c](d.md)` [e](gone.md) [f](https://g.org)"
    )
    assert target_of("src/sfumato/dp/budget.py") == "reference/modules/dp.budget.md"


@pytest.mark.parametrize(
    "wrong",
    ['<a href="gone.html">', '<a href="#gone">', '<img src="https://elsewhere.org/x.png">',
     '<script src="//elsewhere.org/x.js">', '<link href="https://fonts.example/css">'],
)  # fmt: skip
def test_a_link_that_leads_nowhere_or_loads_from_elsewhere_is_found(
    wrong: str, tmp_path: Path
) -> None:
    (tmp_path / "a.html").write_text('<a href="#b" id="b"><a href="https://good.org">')
    assert problems(tmp_path) == []
    (tmp_path / "a.html").write_text(f"<h1>A</h1>{wrong}")
    assert len(problems(tmp_path)) == 1


def test_every_page_is_linked_from_another_one() -> None:
    linked = {
        (page.parent / link[3].partition("#")[0]).resolve()
        for page in PAGES
        for link in outside_links(page.read_text("utf-8"))
    }
    kinds = ("tutorials", "how-to", "reference", "explanation")
    pages = [page for kind in kinds for page in (ROOT / "docs" / kind).rglob("*.md")]
    assert [page.name for page in pages if page.resolve() not in linked] == []
