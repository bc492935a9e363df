"""Check the files of a submitted program: its main file, and its modules by their paths."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.program_folder import MAX_FILES, MAX_SOURCE
from sfumato.sandbox.hidden_characters import declared_encoding, hidden_character
from sfumato.sandbox.program_outputs import bad_pipeline

_PART: Final = r"[A-Za-z0-9_,=+@-][A-Za-z0-9_.,=+@-]{0,99}"  # no part begins with a dot
_PATH: Final = re.compile(rf"{_PART}(/{_PART}){{0,7}}")
Modules = tuple[tuple[str, str], ...]  # the path and the text of each, sorted by path


def read_texts(shape: Mapping[str, object], least: int) -> tuple[str, str, Modules]:
    """Read a submitted program's text, its main file's path and its modules; or refuse.

    The path is "" for a program of one file. `least` is the fewest letters of its main file.
    """
    source = shape.get("source")
    main, given = shape.get("main") or "", shape.get("modules") or []
    if not isinstance(source, str) or not least <= len(source) <= MAX_SOURCE:
        raise bad_pipeline(f"a program's text must have 1 to {MAX_SOURCE:,} bytes of UTF-8")
    check_readable(source, "the program's text")
    if text_size(source) > MAX_SOURCE:
        raise bad_pipeline(f"a program's text must have 1 to {MAX_SOURCE:,} bytes of UTF-8")
    if not main and not given:
        return source, "", ()
    if not isinstance(main, str) or not main or not source:
        raise bad_pipeline("a program of several files must name its main file, with its text")
    if not isinstance(given, list) or not 1 <= len(given) < MAX_FILES:
        raise bad_pipeline(f"a program's folder must have 2 to {MAX_FILES} files")
    modules = tuple(sorted(map(_module, given)))
    paths = [main, *(path for path, _ in modules)]
    _check_paths(paths)
    if sum(text_size(text) for _, text in modules) + text_size(source) > MAX_SOURCE:
        raise bad_pipeline(f"a program must be at most {MAX_SOURCE:,} bytes, with all its files")
    return source, main, modules


def text_size(text: str) -> int:
    """Return the bytes of a text without hidden characters, as the sandbox writes it."""
    return len(text.encode())


def check_readable(text: str, what: str) -> None:
    """Refuse a text that a reviewer would read as something else than what runs."""
    if found := hidden_character(text):
        raise Refused(
            "bad-pipeline",
            f"In {what}, {found}, which a reader does not see as it runs.",
            "Take this character out, or write it as an escape of the program's language. Save the "
            "text as UTF-8 without a byte-order mark, with line ends of Linux or Windows.",
        )
    if name := declared_encoding(text):
        raise Refused(
            "bad-pipeline",
            f"{what[0].upper()}{what[1:]} declares the encoding {name[:40]}, and is UTF-8.",
            "Take the line with `coding` out, and save the text as UTF-8.",
        )


def _module(one: object) -> tuple[str, str]:
    if not isinstance(one, dict) or set(one) != {"path", "text"}:
        raise bad_pipeline("a file of a program must have a path and a text")
    path, text = one["path"], one["text"]
    if not isinstance(path, str) or not isinstance(text, str):
        raise bad_pipeline("a file of a program must have a path and a text")
    check_readable(text, f"the file {path[:100]!r} of the program")
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
