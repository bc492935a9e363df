"""Hooks of MkDocs: add the pages that do not lie in docs/, and change links and lists for it.

`mkdocs.yml` names this file. Whatever is wrong is a warning, and `make docs` ends at a warning.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import Abort
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page as SitePage

sys.path.insert(0, str(Path(__file__).parents[2]))  # MkDocs loads this file by its path
from tools.docs_site import glossary, pages
from tools.docs_site.link_check import problems
from tools.docs_site.markdown_lists import to_python_markdown
from tools.docs_site.notebooks import markdown_of
from tools.docs_site.reference import reference_pages

_SOURCES: dict[str, str] = {}  # place in the site -> the file that the page is made from


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace each `folder/*.md` of the nav by the pages of that folder."""
    config.nav = _expanded(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every page that does not lie in docs/."""
    _SOURCES.clear()
    texts = {
        f"{pages.DOCS}{file.src_uri}": Path(file.abs_src_path or "").read_text("utf-8")
        for file in files.documentation_pages()
    }
    _SOURCES.update({source.removeprefix(pages.DOCS): source for source in texts})
    for page in _generated(texts):
        files.append(File.generated(config, page.target, content=page.text))
        _SOURCES[page.target] = page.source
    return files


def on_page_markdown(markdown: str, page: SitePage, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the repository into links between pages."""
    target = page.file.src_uri
    if source := _SOURCES.get(target, ""):
        markdown = pages.relinked(markdown, source, target, {file.src_uri for file in files})
    page.meta.setdefault("search", _search_weight(target))
    if target == "index.md":
        page.meta.setdefault("hide", ["navigation"])  # it has nothing beside it
    if target == glossary.PAGE:
        page.meta.setdefault("hide", ["toc"])  # its tables are wide
        markdown = glossary.with_addresses(markdown)
    return to_python_markdown(markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Complete the search, and fail if a link leads nowhere or a page loads from elsewhere."""
    text = (Path(config.docs_dir) / glossary.PAGE).read_text("utf-8")
    glossary.add_to_search(Path(config.site_dir), text)
    if found := problems(Path(config.site_dir)):
        raise Abort("\n".join(found))


def _generated(texts: dict[str, str]) -> list[pages.Page]:
    made = list(pages.pages_outside_docs())
    proofs = [(page.target, page.text) for page in made if page.source.endswith(".proof.md")]
    decisions = [
        (pages.target_of(source), text)
        for source, text in sorted(texts.items())
        if source.startswith("docs/decisions/")
    ]
    made.append(pages.contents("Proofs", PROOFS, "explanation/proofs/index.md", proofs))
    made.append(pages.contents("Decisions", DECISIONS, "decisions/index.md", decisions))
    for path in _notebooks():
        source = f"examples/{path.name}"
        made.append(pages.Page(pages.target_of(source), source, markdown_of(path)))
    made += [
        pages.Page(f"reference/{name}.md", f"docs/reference/{name}.md", text)
        for name, text in reference_pages()
    ]
    linked = pages.linked_modules(texts | {page.source: page.text for page in made if page.source})
    modules = [
        pages.Page(pages.target_of(file), "", f"# `{module}`\n\n::: {module}\n")
        for file in linked
        if (module := pages.module_of(file))
    ]  # fmt: skip
    made.append(
        pages.contents(
            "Modules", MODULES, "reference/modules/index.md",
            [(module.target, module.text) for module in modules],
        )
    )  # fmt: skip
    return made + modules


def _search_weight(target: str) -> dict[str, Any]:
    """Return how the search treats a page: diaries are left out, and pages for users come first."""
    if target.startswith("notebook/"):
        return {"exclude": True}
    if target.startswith(("decisions/", "project/", "explanation/proofs/", "reference/modules/")):
        return {"boost": 0.1}
    return {}


def _expanded(nav: Any) -> Any:
    if isinstance(nav, list):
        return [item for one in nav for item in _items(one)]
    if isinstance(nav, dict):
        return {title: _expanded(item) for title, item in nav.items()}
    return nav


def _items(one: Any) -> list[Any]:
    if not (isinstance(one, str) and one.endswith("/*")):
        return [_expanded(one)]
    folder = one.removesuffix("*")
    if folder == "tutorials/notebooks/":
        found = sorted(
            (pages.ROOT / "examples").glob("*.ipynb"), key=lambda path: int(path.stem.split("-")[0])
        )
        return [pages.target_of(path.relative_to(pages.ROOT).as_posix()) for path in found]
    return [folder + path.name for path in sorted((pages.ROOT / "docs" / folder).glob("*.md"))]


def _notebooks() -> list[Path]:
    """Return the notebooks in the order of their numbers."""
    found = (pages.ROOT / "examples").glob("*.ipynb")
    return sorted(found, key=lambda path: int(path.stem.partition("-")[0]))


PROOFS = (
    "Each mechanism has its proof next to it in the code, and a test of its distribution. A proof "
    "says what is claimed, why it holds, and what the code relies on."
)
DECISIONS = "Each page has the question, the decision, its reasons, and what would change our mind."
MODULES = (
    "The modules that other pages link. Their names are not part of the public interface, which is "
    "[Python](../python.md)."
)
