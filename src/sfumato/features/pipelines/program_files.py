"""A program of several files: its main file and its modules, as texts by their paths."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.query.expression import canonical_json
from sfumato.sandbox.program_outputs import bad_pipeline

MAX_SOURCE: Final = 200_000  # the most letters of a program, with all of its files
MAX_FILES: Final = 100
_FIRST: Final = ("main", "run", "__main__")  # what a main file is called, without its ending
_PART: Final = r"[A-Za-z0-9_,=+@-][A-Za-z0-9_.,=+@-]{0,99}"  # no part begins with a dot
_PATH: Final = re.compile(rf"{_PART}(/{_PART}){{0,7}}")
# Control characters: an owner who reads a program would not see them.
_UNSEEN: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_LEFT_OUT: Final = ("__pycache__",)
Modules = tuple[tuple[str, str], ...]  # the path and the text of each, sorted by path


def read_texts(shape: Mapping[str, object], least: int) -> tuple[str, str, Modules]:
    """Read a submitted program's text, its main file's path and its modules; or refuse.

    The path is "" for a program of one file. `least` is the fewest letters of its main file.
    """
    source = shape.get("source")
    main, given = shape.get("main") or "", shape.get("modules") or []
    is_text = isinstance(source, str) and source.isascii()
    if not isinstance(source, str) or not is_text or not least <= len(source) <= MAX_SOURCE:
        raise bad_pipeline(f"a program must be 1 to {MAX_SOURCE:,} ASCII letters of Python")
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


def text_digest(program: Mapping[str, Any]) -> str:  # Any: JSON of a program
    """Return the SHA-256 by which an approval rule names a program's text, with all its files."""
    keys = ("source", "main", "modules") if program.get("modules") else ("source",)
    said = {key: program[key] for key in keys}
    # no text of one file begins with that letter, so none has the digest of a folder
    text = f"\0{canonical_json(said)}" if len(keys) > 1 else said["source"]
    return hashlib.sha256(text.encode()).hexdigest()


def modules_json(main: str, modules: Sequence[tuple[str, str]]) -> Json:
    """Return the files of a program besides its source as JSON; nothing if it has one file."""
    if not modules:
        return {}
    return {"main": main, "modules": [{"path": path, "text": text} for path, text in modules]}


# --- a folder on the author's machine -------------------------------------------------------------


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
            yield name, _text(path, name)


def _text(path: Path, name: str) -> str:
    if path.stat().st_size > 4 * MAX_SOURCE:
        raise _bad_folder(f"{name} is longer than {MAX_SOURCE:,} letters")
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        pass
    raise _bad_folder(f"{name} is not a text")


def _main_of(paths: Sequence[str]) -> str:
    """Return the path of a folder's main file; refuse a folder in which it is not clear."""
    top = [path for path in paths if "/" not in path]
    for found in ([path for path in top if path.partition(".")[0] == name] for name in _FIRST):
        if len(found) == 1:
            return found[0]
    if len(top) == 1:
        return top[0]
    raise _bad_folder("it is not clear which file is the main one")


def _module(one: object) -> tuple[str, str]:
    if not isinstance(one, dict) or set(one) != {"path", "text"}:
        raise bad_pipeline("a file of a program must have a path and a text")
    path, text = one["path"], one["text"]
    if not isinstance(path, str) or not isinstance(text, str) or not text.isascii():
        raise bad_pipeline(f"the file {path!r} of the program may have only ASCII letters")
    _check_seen(text, f"the file {path!r} of the program")
    return path, text


def _check_paths(paths: Sequence[str]) -> None:
    """Refuse paths that are not plain, are there twice, or are a file and a folder at once."""
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


def _bad_folder(says: str) -> Refused:
    return Refused(
        "bad-pipeline",
        f"The program's folder cannot be read: {says}.",
        f"Give a folder of at most {MAX_FILES} files of text, without links. Its main file is "
        "called main or run, or is named with --main PATH.",
    )
