"""The notebooks of examples/ as Markdown, with what they printed and drew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def markdown_of(path: Path) -> str:
    """Return a notebook as one Markdown text; pictures and tables stand in it as HTML."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return "\n\n".join(part for cell in cells for part in _parts(cell)) + "\n"


def _parts(cell: dict[str, Any]) -> Iterator[str]:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield text
    else:
        yield _code(text, "python")
        for output in cell["outputs"]:
            yield _output(output)


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return _code("".join(output["text"]), "text")
    shown = output.get("data", {})
    if "text/html" in shown:  # our own, stored in the repository: pictures and tables
        html = "".join(
            line for line in "".join(shown["text/html"]).splitlines(True) if line.strip()
        )
        return f'<div class="output">{html}</div>'  # an empty line would end the HTML
    return _code("".join(shown.get("text/plain", "")), "text")


def _code(text: str, kind: str) -> str:
    return f"````{kind}\n{text.rstrip()}\n````"
