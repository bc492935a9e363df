"""A program's folder on its author's machine: its main file and its modules, as texts.

The console's edge loads this module, so it imports no engine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused

MAX_SOURCE: Final = 200_000  # the most bytes of a program, with all of its files
MAX_FILES: Final = 100
_FIRST: Final = ("main", "run", "__main__")  # what a main file is called, without its ending
_LEFT_OUT: Final = ("__pycache__",)


def text_digest(program: Mapping[str, Any]) -> str:  # Any: JSON of a program
    """Return the SHA-256 by which an approval rule names a program's text, with all its files."""
    keys = ("source", "main", "modules") if program.get("modules") else ("source",)
    said = {key: program[key] for key in keys}
    # no text of one file begins with that letter, so none has the digest of a folder
    text = f"\0{json.dumps(said, sort_keys=True)}" if len(keys) > 1 else said["source"]
    return hashlib.sha256(text.encode()).hexdigest()


def with_line_feeds(program: Mapping[str, object]) -> dict[str, object]:
    """Return a program that is submitted, in which every line ends with LF alone.

    A browser sends CR LF, and so does a file from Windows, but the command line reads LF. The same
    file is the same program, with the same digests, whichever way it came. It is also what the
    sandbox runs: a shell or a first line (`#!`) would not accept CR.
    """
    made = {**program, "source": _with_line_feeds(program.get("source"))}
    modules = program.get("modules")
    if isinstance(modules, list):
        made["modules"] = [
            {**one, "text": _with_line_feeds(one["text"])}
            if isinstance(one, dict) and "text" in one
            else one
            for one in modules
        ]
    return made


def _with_line_feeds(text: object) -> object:
    return text.replace("\r\n", "\n") if isinstance(text, str) else text


def modules_json(main: str, modules: Sequence[tuple[str, str]]) -> Json:
    """Return the files of a program besides its source as JSON; nothing if it has one file."""
    if not modules:
        return {}
    return {"main": main, "modules": [{"path": path, "text": text} for path, text in modules]}


def texts_of(program: Mapping[str, Any]) -> list[tuple[str, str]]:  # Any: JSON of our own store
    """Return the path and the text of each file of a stored program, its main file first.

    The path of a program's only file is "". An image's own program has no file.
    """
    modules = [(one["path"], one["text"]) for one in program.get("modules", ())]
    main = [(program.get("main", ""), program["source"])] if program["source"] else []
    return [*main, *modules]


def read_folder(place: Path, main: str | None = None) -> Json:
    """Read a program's folder: the texts of its files, and which is the main one; or refuse.

    Args:
        place: The folder. Names that begin with a dot, and `__pycache__`, are left out.
        main: The path of the main file; by default the file at the top that is called main or run,
            or the only file there.

    Returns:
        The fields of a request to submit a program: `source`, and `main` and `modules` if the
        folder has several files.
    """
    files = dict(_files(place))
    if not files:
        raise _bad_folder(f"the folder {place.name} has no file")
    first = _main_of(sorted(files)) if main is None else main
    if first not in files:
        raise _bad_folder(f"the folder has no file {first!r}")
    source = files.pop(first)
    return {"source": source, **modules_json(first, sorted(files.items()))}


def _files(top: Path) -> Iterator[tuple[str, str]]:
    count = 0
    for path in sorted(top.rglob("*")):
        parts = path.relative_to(top).parts
        if any(part.startswith(".") or part in _LEFT_OUT for part in parts):
            continue
        name = path.relative_to(top).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise _bad_folder(f"{name} is a link or a device")
        if path.is_file():
            count += 1
            if count > MAX_FILES:
                raise _bad_folder(f"it has more than {MAX_FILES} files")
            yield name, read_text(path, name)


def read_text(path: Path, name: str) -> str:
    """Read a file of a program as UTF-8; refuse other bytes, with the line where they are."""
    if path.stat().st_size > 4 * MAX_SOURCE:
        raise _bad_folder(f"{name} is longer than {MAX_SOURCE:,} bytes")
    text = path.read_bytes()
    place = _first_wrong(text)
    if place is None:
        return text.decode().replace("\r\n", "\n").replace("\r", "\n")
    raise Refused(
        "bad-pipeline",
        f"The program's file {name} is not UTF-8: line {text.count(10, 0, place) + 1} has the byte "
        f"0x{text[place]:02X}.",
        f"Save it as UTF-8, for example with `iconv -f WINDOWS-1252 -t UTF-8 {path.name}`. A file "
        "that is no text belongs into the program's image.",
    )


def _first_wrong(text: bytes) -> int | None:
    """Return the place of the first byte that is not UTF-8, or None."""
    try:
        text.decode()
    except UnicodeDecodeError as wrong:
        return wrong.start
    return None


def _main_of(paths: Sequence[str]) -> str:
    """Return the path of a folder's main file; refuse a folder in which it is not clear."""
    top = [path for path in paths if "/" not in path]
    for found in ([path for path in top if path.partition(".")[0] == name] for name in _FIRST):
        if len(found) == 1:
            return found[0]
    if len(top) == 1:
        return top[0]
    raise _bad_folder("it is not clear which file is the main one")


def _bad_folder(says: str) -> Refused:
    return Refused(
        "bad-pipeline",
        f"The program's folder cannot be read: {says}.",
        f"Give a folder of at most {MAX_FILES} files of text, without links. Its main file is "
        "called main or run, or is named with --main PATH.",
    )
