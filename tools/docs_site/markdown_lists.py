"""Rewrite Markdown lists so that Python-Markdown reads them as code hosts do.

CommonMark, which code hosts use, lets a list follow a paragraph at once, and indents what belongs
to an item as far as its text. Python-Markdown wants an empty line first, and steps of four spaces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_ITEM = re.compile(r"( *)([-*+]|\d{1,9}[.)])( +)(?=\S)")
_FENCE = re.compile(r" *(```+|~~~+)")
STEP = 4


def to_python_markdown(text: str) -> str:
    """Return the text with an empty line before each list, and items indented by four spaces."""
    rewriter = _Rewriter()
    for line in text.split("\n"):
        rewriter.add(line)
    return "\n".join(rewriter.lines)


@dataclass
class _Rewriter:
    lines: list[str] = field(default_factory=list)
    items: list[int] = field(default_factory=list)  # where the text of each open item begins
    fence: str = ""
    fence_shift: int = 0
    in_paragraph: bool = False  # a line of text stands just above

    def add(self, line: str) -> None:
        if self.fence:
            self._add_code(line)
        elif not line.strip():
            self.in_paragraph = False
            self.lines.append(line)
        else:
            self._add_text(line)

    def _add_text(self, line: str) -> None:
        indent = len(line) - len(line.lstrip(" "))
        item, fence = _ITEM.match(line), _FENCE.match(line)
        if item is not None and not self._starts_item(item):
            item = None
        if item is not None or fence is not None or not self.in_paragraph:
            self._close_items(indent)
        shift = STEP * len(self.items) - (self.items[-1] if self.items else 0)
        if item is not None:
            self._begin_item(item)
        elif indent < (self.items[-1] if self.items else 0):
            shift = STEP * len(self.items) - indent  # a paragraph that goes on, indented lazily
        if fence is not None:
            self.fence, self.fence_shift = fence[1], shift
        self.lines.append(_shifted(line, shift))
        self.in_paragraph = fence is None and not line.lstrip().startswith(("#", "|"))

    def _starts_item(self, item: re.Match[str]) -> bool:
        """Say whether it is an item; in a paragraph, only 1 begins a numbered list."""
        is_sibling = any(at > len(item[1]) for at in self.items)
        return item[2][0] in "-*+" or item[2][:-1] == "1" or not self.in_paragraph or is_sibling

    def _begin_item(self, item: re.Match[str]) -> None:
        above = self._block_above()
        is_first = not any(_ITEM.match(line) for line in above)
        is_outdented = bool(above) and above[0].startswith(" " * (STEP * len(self.items) + 1))
        if (self.in_paragraph and is_first) or is_outdented:
            self.lines.append("")
        self.items.append(item.end())

    def _block_above(self) -> list[str]:
        """Return the lines since the last empty one."""
        at = len(self.lines)
        while at and self.lines[at - 1].strip():
            at -= 1
        return self.lines[at:]

    def _close_items(self, indent: int) -> None:
        while self.items and indent < self.items[-1]:
            self.items.pop()

    def _add_code(self, line: str) -> None:
        self.lines.append(_shifted(line, self.fence_shift))
        if line.strip().startswith(self.fence) and not line.strip().strip("`~"):
            self.fence, self.in_paragraph = "", False


def _shifted(line: str, shift: int) -> str:
    if not line.strip():
        return line
    return " " * shift + line if shift >= 0 else line[min(-shift, len(line) - len(line.lstrip())) :]
