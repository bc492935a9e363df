"""What callers call objects at a worker: tags, and a line of text; in their words, of no value."""

from __future__ import annotations

from typing import Any, Final

from sfumato.features.federated.tensors.tensor_messages import malformed

MOST_TAGS: Final = 32
MOST_LETTERS: Final = 1000  # of a tag, and of the line


class ObjectLabels:
    """Tags and lines by the keys of objects; has state."""

    def __init__(self) -> None:
        self._tags: dict[str, frozenset[str]] = {}
        self._lines: dict[str, str] = {}

    def put(self, key: str, tags: list[Any], line: str | None) -> None:
        """Add tags to an object; a line stands in the place of the one before."""
        words = [*tags, "" if line is None else line]
        if not all(isinstance(word, str) and len(word) <= MOST_LETTERS for word in words):
            raise malformed(f"a tag or a description is a text of {MOST_LETTERS} letters at most")
        together = self._tags.get(key, frozenset()) | {*tags}
        if len(together) > MOST_TAGS:
            raise malformed(f"an object has {MOST_TAGS} tags at most")
        self._tags[key] = together
        if line is not None:
            self._lines[key] = line

    def of(self, key: str) -> dict[str, Any]:
        """Return what an object is called."""
        tags = sorted(self._tags.get(key, ()))
        return {"tags": tags, "line": self._lines.get(key)}

    def with_all(self, tags: list[Any]) -> list[str]:
        """Return the keys of what bears all of these tags, oldest first."""
        if not all(isinstance(tag, str) for tag in tags):
            raise malformed("a tag is a text")
        return [key for key, borne in self._tags.items() if borne.issuperset(tags)]

    def forget(self, key: str) -> None:
        """Forget what an object was called."""
        self._tags.pop(key, None)
        self._lines.pop(key, None)

    def clear(self) -> None:
        """Forget what all objects were called."""
        self._tags.clear()
        self._lines.clear()
