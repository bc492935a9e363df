"""Measure the shape of the house: files, lengths, imports, circles, what features touch.

`python -m tools.shape [CHECKOUT ...]` prints a table, a column for each checkout, and the long
files and the import circles of the last one. `--frames` also asks a question in each checkout, with
its own `.venv`, and counts how many functions of ours are on the stack when noise is drawn.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

# feature -> what the names of its files and folders have in common, before and after the move
FEATURES: Final = {
    "airlock": r"airlock",
    "synthetic": r"twin|synthetic",
    "surveys": r"survey|ballot|respond|questionnaire",
    "pipelines": r"pipeline",
    "streams": r"stream(?!ed)",
    "federated": r"federat|convener|convening|site_|lesson",
    "anonymization": r"anonym|crowd",
}
LONG: Final = 25  # lines of a function
LONG_FILE: Final = 600  # lines of a file: a sign to look whether it is two things, and no error
RELEASE: Final = ("door.release", "release.guarded_release")


@dataclass(frozen=True)
class House:
    """The package in a checkout."""

    package: Path

    @cached_property
    def files(self) -> dict[str, Path]:
        """Return the dotted name of each module -> its file."""
        found = {}
        for path in sorted(self.package.rglob("*.py")):
            parts = path.relative_to(self.package).with_suffix("").parts
            found[".".join(part for part in parts if part != "__init__")] = path
        return found

    @cached_property
    def texts(self) -> dict[str, str]:
        """Return the text of each module."""
        return {name: path.read_text("utf-8") for name, path in self.files.items()}

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        """Return the syntax tree of each module."""
        return {name: ast.parse(text) for name, text in self.texts.items()}

    def imports(self, *, when: Iterable[str]) -> dict[str, set[str]]:
        """Return what each module imports of ours: at its top, later, or for types alone."""
        found: dict[str, set[str]] = {}
        for name, tree in self.trees.items():
            found[name] = set()
            for kind, node in _imports(tree, "top"):
                if kind in when:
                    found[name] |= self._modules(node) - {name}
        return found

    def _modules(self, node: ast.Import | ast.ImportFrom) -> set[str]:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [one if _ours(one) in self.files else str(node.module) for one in whole]
        return {
            _ours(one) for one in names if one.startswith("sfumato") and _ours(one) in self.files
        }


def _ours(name: str) -> str:
    return name.removeprefix("sfumato").removeprefix(".")


def _imports(tree: ast.AST, kind: str) -> Iterable[tuple[str, ast.Import | ast.ImportFrom]]:
    for node in ast.iter_child_nodes(tree):
        inner = kind
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            inner = "later"
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            inner = "types"
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield kind, node
        yield from _imports(node, inner)


def files(house: House) -> str:
    """Return how many files of Python there are."""
    return str(len(house.files))


def median_length(house: House) -> str:
    """Return how many lines a file has, in the middle."""
    return f"{statistics.median(text.count(chr(10)) for text in house.texts.values()):.0f}"


def import_lines(house: House) -> str:
    """Return which share of all lines are of import statements."""
    lines = sum(text.count("\n") for text in house.texts.values())
    nodes = (node for tree in house.trees.values() for _, node in _imports(tree, ""))
    mine = sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes)
    return f"{100 * mine / lines:.1f} %"


def imported_by_one(house: House) -> str:
    """Return how many modules exactly one other module imports."""
    users: defaultdict[str, set[str]] = defaultdict(set)
    for name, imported in house.imports(when=("top", "later", "types")).items():
        for one in imported:
            users[one].add(name)
    few = [name for name in house.files if len(users[name]) == 1]
    return f"{len(few)} ({100 * len(few) / len(house.files):.0f} %)"


def release_loads(house: House) -> str:
    """Return how many modules of ours the release imports, itself and packages included."""
    (start,) = (name for name in RELEASE if name in house.files)
    imports, seen = house.imports(when=("top",)), set[str]()
    left: list[str] = [start]
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += imports[name]
            left += [up for up in _above(name) if up in house.files]
    return str(len(seen))


def _above(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))]


def circles(*when: str) -> Callable[[House], str]:
    """Return a measure: how many groups of modules import each other, and of how many modules."""

    def measure(house: House) -> str:
        found = _circles(house.imports(when=when))
        return f"{len(found)} ({', '.join(str(len(one)) for one in found)})" if found else "0"

    return measure


def _circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    reached = {name: _reached(imports, name) for name in imports}
    found: dict[frozenset[str], list[str]] = {}
    for name, others in reached.items():
        group = frozenset(one for one in others if name in reached[one])
        if group:
            found[group | {name}] = sorted(group | {name})
    return sorted(found.values())


def _reached(imports: Mapping[str, set[str]], start: str) -> set[str]:
    seen, left = set[str](), list(imports[start])
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += imports[name]
    return seen


def long_functions(house: House) -> str:
    """Return which share of functions has more than 25 lines."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [n for tree in house.trees.values() for n in ast.walk(tree) if isinstance(n, kinds)]
    long = [n for n in nodes if (n.end_lineno or 0) - n.lineno + 1 > LONG]
    return f"{100 * len(long) / len(nodes):.1f} %"


def long_bodies(house: House) -> str:
    """Return which share of functions has more than 25 lines without their docstrings."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [n for tree in house.trees.values() for n in ast.walk(tree) if isinstance(n, kinds)]
    long = [n for n in nodes if (n.end_lineno or 0) - n.lineno + 1 - _docstring_lines(n) > LONG]
    return f"{100 * len(long) / len(nodes):.1f} %"


def _docstring_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    text = ast.get_docstring(function, clean=False)
    return 0 if text is None else text.count("\n") + 1


def long_files(house: House) -> str:
    """Return how many files have more than 600 lines."""
    return str(len(_long_files(house)))


def _long_files(house: House) -> dict[str, int]:
    lines = {name: text.count("\n") for name, text in house.texts.items()}
    return {name: count for name, count in lines.items() if count > LONG_FILE}


# Asks a question with the command line, in this process, and prints a number for each draw: how
# many frames of the package are on the stack.
_ASK: Final = """
import sys, tempfile
from pathlib import Path
import sfumato
from sfumato.__main__ import main

package, found = str(Path(sfumato.__file__).parent), []

def look(frame, event, of):
    code = frame.f_code
    if event == "call" and code.co_name == "sample" and code.co_filename.endswith("laplace.py"):
        found.append(0)
        while frame is not None:
            found[-1] += frame.f_code.co_filename.startswith(package)
            frame = frame.f_back

with tempfile.TemporaryDirectory() as folder:
    rows, vault = Path(folder, "rows.csv"), str(Path(folder, "vault"))
    rows.write_text("name,age\\n" + "".join(f"p{n},{n % 90}\\n" for n in range(200)))
    ages = {"age": {"type": "integer", "lower": 0, "upper": 110}}
    sfumato.create(vault)
    with sfumato.open(vault) as opened:
        opened.add("t", str(rows), {"unit": "name", "budget": {"epsilon": 3}, "columns": ages})
    ask = ["ask", "t", "SELECT COUNT(*) AS n FROM t", "--epsilon", "1", "--vault", vault]
    sys.argv = ["sfumato", *ask]
    sys.setprofile(look)
    main()
    sys.setprofile(None)
print(max(found))
"""


def frames_to_the_noise(root: Path) -> str:
    """Return how many functions of ours are on the stack when `sfumato ask` draws its noise."""
    own = root / ".venv" / "bin" / "python"
    python = str(own) if own.exists() else sys.executable
    path = {"PYTHONPATH": str((root / "src").resolve()), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [python, "-c", _ASK], env=path, capture_output=True, text=True, check=True
    )
    return done.stdout.split()[-1]


def folders_of(feature: str) -> Callable[[House], str]:
    """Return a measure: the folders outside its own that hold a file named after a feature."""

    def measure(house: House) -> str:
        pattern = re.compile(FEATURES[feature])
        paths = [path.relative_to(house.package) for path in house.files.values()]
        own = [path for path in paths if pattern.search(path.as_posix())]
        homes = {path.parent.as_posix() for path in own if not pattern.search(str(path.parent))}
        inside = {path.parts[:2] for path in own if pattern.search(str(path.parent))}
        return f"{len(own)} files, {len(homes) + max(len(inside) - 1, 0)} folders outside"

    return measure


MEASURES: Final[Mapping[str, Callable[[House], str]]] = {
    "files": files,
    "lines of a file, median": median_length,
    "share of import lines": import_lines,
    "modules that one other imports": imported_by_one,
    "modules that release loads": release_loads,
    "circles when loaded": circles("top"),
    "circles, imports in functions too": circles("top", "later"),
    "circles, imports for types too": circles("top", "later", "types"),
    "functions over 25 lines": long_functions,
    "the same without docstrings": long_bodies,
    "files over 600 lines": long_files,
    **{f"{feature}: files by name": folders_of(feature) for feature in FEATURES},
}


def main() -> None:
    """Print the table, and what of the last checkout to look at."""
    words = (__doc__ or "").split("\n\n")
    reader = argparse.ArgumentParser(prog="python -m tools.shape", description=words[0])
    reader.add_argument("checkout", nargs="*", type=Path, help="one column each; else this one")
    reader.add_argument("--frames", action="store_true", help="also run `sfumato ask` in each")
    given = reader.parse_args()
    roots: list[Path] = given.checkout or [Path(__file__).parents[1]]
    houses = [House(root / "src" / "sfumato") for root in roots]
    print(
        "| what | " + " | ".join(root.resolve().as_posix().split("/")[-1] for root in roots) + " |"
    )
    print("| --- |" + " ---: |" * len(roots))
    for name, measure in MEASURES.items():
        print(f"| {name} | " + " | ".join(measure(house) for house in houses) + " |")
    if given.frames:
        print("| frames from `sfumato ask` to the noise | ", end="")
        print(" | ".join(frames_to_the_noise(root) for root in roots) + " |")
    for house in houses[-1:]:
        for name, lines in _long_files(house).items():
            print(f"long file: {name}, {lines} lines")
        for group in _circles(house.imports(when=("top", "later", "types"))):
            print("circle:", ", ".join(group))


if __name__ == "__main__":
    main()
