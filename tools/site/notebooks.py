"""The notebooks of examples/ as pages, with what they printed and drew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.site.pages import ROOT, Page
from tools.site.render import code


def notebook_pages() -> Iterator[Page]:
    """Yield a page for each notebook; cells that are no text stand in it as marks."""
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        source = path.relative_to(ROOT).as_posix()
        texts = [text for text, _ in _cells(path)]
        target = source.replace(".ipynb", ".html")
        yield Page(source, target, "Notebooks", "\n\n".join(texts))


def fill(html: str, source: str) -> str:
    """Put a notebook's code and what it printed where the marks stand."""
    for text, filled in _cells(ROOT / source):
        if filled:
            html = html.replace(f"<p>{text}</p>", filled)
    return html


def _cells(path: Path) -> Iterator[tuple[str, str]]:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    for number, cell in enumerate(cells):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield text, ""
        else:
            said = "".join(_said(output) for output in cell["outputs"])
            yield f"NOTEBOOKCELL{number}END", code(text, "python") + said


def _said(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return code("".join(output["text"]), "said")
    shown = output.get("data", {})
    if "text/html" in shown:  # our own, stored in the repository: pictures and tables
        opened = '<div class="wide" role="region" aria-label="Output" tabindex="0">'
        return f"{opened}{''.join(shown['text/html'])}</div>"
    return code("".join(shown.get("text/plain", "")), "said")
