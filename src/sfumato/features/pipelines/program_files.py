"""Check the files of a submitted program: its main file, and its modules by their paths."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from sfumato.features.pipelines.program_folder import MAX_FILES, MAX_SOURCE
from sfumato.sandbox.program_outputs import bad_pipeline

_PART: Final = r"[A-Za-z0-9_,=+@-][A-Za-z0-9_.,=+@-]{0,99}"  # no part begins with a dot
_PATH: Final = re.compile(rf"{_PART}(/{_PART}){{0,7}}")
# Control characters: an owner who reads a program would not see them.
_UNSEEN: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
Modules = tuple[tuple[str, str], ...]  # the path and the text of each, sorted by path


def read_texts(shape: Mapping[str, object], least: int) -> tuple[str, str, Modules]:
    """Read a submitted program's text, its main file's path and its modules; or refuse.

    The path is "" for a program of one file. `least` is the fewest letters of its main file.
    """
    source = shape.get("source")
    main, given = shape.get("main") or "", shape.get("modules") or []
    is_text = isinstance(source, str) and source.isascii()
    if not isinstance(source, str) or not is_text or not least <= len(source) <= MAX_SOURCE:
        raise bad_pipeline(f"a program's text must have 1 to {MAX_SOURCE:,} ASCII letters")
    _check_seen(source, "a program's text")
    if not main and not given:
        return source, "", ()
    if not isinstance(main, str) or not main or not source:
        raise bad_pipeline("a program of several files must name its main file, with its text")
    if not isinstance(given, list) or not 1 <= len(given) < MAX_FILES:
        raise bad_pipeline(f"a program's folder must have 2 to {MAX_FILES} files")
    modules = tuple(sorted(map(_module, given)))
    paths = [main, *(path for path, _ in modules)]
    _check_paths(paths)
    if sum(len(text) for _, text in modules) + len(source) > MAX_SOURCE:
        raise bad_pipeline(f"a program must be at most {MAX_SOURCE:,} letters, with all its files")
    return source, main, modules


def _module(one: object) -> tuple[str, str]:
    if not isinstance(one, dict) or set(one) != {"path", "text"}:
        raise bad_pipeline("a file of a program must have a path and a text")
    path, text = one["path"], one["text"]
    if not isinstance(path, str) or not isinstance(text, str) or not text.isascii():
        raise bad_pipeline(f"the file {path!r} of the program may have only ASCII letters")
    _check_seen(text, f"the file {path!r} of the program")
    return path, text


def _check_paths(paths: Sequence[str]) -> None:
    """Refuse paths with other letters, a path given twice, and a file that is also a folder."""
    for path in paths:
        if _PATH.fullmatch(path) is None:
            raise bad_pipeline(
                f"the file {path[:100]!r} of the program must have a path of letters, digits and "
                "_.,=+@-, in which no name begins with a dot"
            )
    split = [path.split("/") for path in paths]
    folders = {"/".join(parts[:n]) for parts in split for n in range(1, len(parts))}
    if len(set(paths)) < len(paths) or folders & set(paths):
        raise bad_pipeline("two files of the program have the same path")


def _check_seen(text: str, what: str) -> None:
    if _UNSEEN.search(text):
        raise bad_pipeline(f"{what} may have line ends and tabs, but no other control letters")
