"""Move modules to the paths of tools/moves/*.tsv and rewrite everything that names them.

`dissolve` makes importers of a package that only passes names on import the modules themselves;
`split` takes the definitions of splits.tsv out of their modules; `move all`, or `move FOLDER ...`,
moves files and rewrites imports, paths and dotted names; `edit` makes the replacements of
edits.toml; `rename` renames the functions of symbols.tsv; `check` compares tables and checkout.
With `--commit` moves and edits become a commit each, so that `git log --follow` finds a file.
Rows whose old path is gone are skipped, so that it can run again on a newer main.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import posixpath
import re
import runpy
import subprocess
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

SRC: Final = "src/sfumato/"
TARGETS: Final = "tools/mutate/targets.py"
TABLES: Final = Path(__file__).parent / "moves"
READ: Final = (
    ".py",
    ".md",
    ".toml",
    ".ipynb",
    ".html",
    ".tsv",
    ".jsonl",
    ".js",
    ".css",
    ".txt",
    ".service",
)
LEFT: Final = ("CHANGELOG.md", "tools/moves/", "tools/move_modules.py", TARGETS)
DOTTED: Final = re.compile(r"\bsfumato(?:\.[a-z_]\w*)+")
PATHED: Final = re.compile(r"[\w./-]*\w\.(?:py|proof\.md|html|js|css|json|toml|txt|tsv|csv)\b")
FOLDER: Final = r"(?:(?:\.\./)*(?:src/sfumato/|sfumato/))?"
ALL: Final = 1000  # files; a run of one feature moves fewer
GENERIC: Final = {  # as an import, such a name says nothing without its package
    "cli", "client", "engine", "model", "pages", "ports", "release", "routes", "service", "store",
    "verbs", "worker",
}  # fmt: skip
HERE: Final = re.compile(r"(Path\(__file__\)(?:\.resolve\(\))?)\.parent(?:s\[(\d)\])?(?!\w)")


def main() -> None:
    """Do what the command line asks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--commit", action="store_true")
    parser.add_argument("act", choices=("dissolve", "split", "move", "edit", "rename", "check"))
    parser.add_argument("only", nargs="*")
    asked = parser.parse_args()
    house = House(asked.root.resolve())
    if asked.act == "check":
        check(house)
    elif asked.act == "dissolve":
        dissolve(house)
        house.done(asked.commit, "house: import names from the modules that define them")
    elif asked.act == "split":
        split(house)
        house.done(asked.commit, "house: take the ports of theory and engines out of one file")
    elif asked.act == "move":
        move(house, tuple(asked.only), asked.commit)
    elif asked.act == "edit":
        edit(house)
        house.done(asked.commit, "house: adapt what names modules by hand")
    else:
        rename(house)
        house.done(asked.commit, "house: name functions in the field's words")


# --- the checkout


def rows(table: str) -> Iterator[list[str]]:
    """Yield the rows of a table, without its heading."""
    for line in (TABLES / table).read_text("utf-8").splitlines()[1:]:
        if line.strip() and not line.startswith("#"):
            yield line.split("\t")


@dataclass
class House:
    """A checkout: its files, and how its modules are called."""

    root: Path
    warned: list[str] = field(default_factory=list)

    def git(self, *words: str) -> str:
        """Run git and return what it prints."""
        return subprocess.run(
            ("git", "-C", str(self.root), *words), check=True, capture_output=True, text=True
        ).stdout

    def files(self) -> list[str]:
        """Return all files that git knows and that are there."""
        listed = self.git("ls-files", "-co", "--exclude-standard").splitlines()
        return [name for name in listed if (self.root / name).is_file()]

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield every file that may name a module, with its text."""
        for name in self.files():
            plain = (
                name.endswith(READ) or name.startswith((".ci/", "docs/deploy/")) or "." not in name
            )
            if plain and not name.startswith(LEFT):
                try:
                    yield name, (self.root / name).read_text("utf-8")
                except UnicodeDecodeError:
                    continue

    def write(self, name: str, text: str) -> None:
        """Write a file of the checkout."""
        (self.root / name).write_text(text, "utf-8")

    def modules(self) -> dict[str, str]:
        """Return the dotted name of each module -> its path."""
        return {
            dotted(name): name
            for name in self.files()
            if name.startswith("src/") and name.endswith(".py")
        }

    def format(self) -> None:
        """Sort imports and format, as `make check` wants it."""
        ruff = str(self.root / ".venv" / "bin" / "ruff")
        where = ("src", "tests", "bench", "tools")
        for words in (
            ("check", "-q", "--fix", *where),
            ("check", "-q", "--select", "E402", "--add-noqa", *where),
            ("format", "-q", *where),
            ("check", "-q", "--select", "E501", "--add-noqa", *where),
        ):
            subprocess.run((ruff, *words), cwd=self.root, check=False, capture_output=True)

    def done(self, commit: bool, message: str) -> None:
        """Format, say what needs a hand, and commit if asked."""
        self.format()
        for line in sorted(set(self.warned)):
            print(line)
        if commit:
            self.git("add", "-A")
            self.git("commit", "-q", "--no-verify", "-m", message)


def dotted(path: str) -> str:
    """Return the dotted name of a module's path."""
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


# --- rewriting one file of Python


@dataclass
class Change:
    """A piece of a text, and what it becomes."""

    start: int
    end: int
    text: str


def applied(text: str, changes: Iterable[Change]) -> str:
    """Return the text with all changes made; they do not overlap."""
    for change in sorted(changes, key=lambda c: -c.start):
        text = text[: change.start] + change.text + text[change.end :]
    return text


def offsets(text: str) -> list[int]:
    """Return where each line begins."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def span(node: ast.stmt | ast.expr, text: str, starts: list[int]) -> tuple[int, int]:
    """Return where a statement stands; columns of Python's trees count bytes."""

    def place(line: int, column: int) -> int:
        whole = text[starts[line - 1] : starts[line] if line < len(starts) else len(text)]
        return starts[line - 1] + len(whole.encode()[:column].decode())

    return place(node.lineno, node.col_offset), place(
        node.end_lineno or 0, node.end_col_offset or 0
    )


def identifiers(tree: ast.AST) -> set[str]:
    """Return every name that a file binds or reads, apart from attributes."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case (
                ast.Name(id=name)
                | ast.arg(arg=name)
                | ast.FunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                found.add(name)
            case ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.alias(name=name, asname=other):
                found.add(other or name.split(".")[0])
    return found


def bound(tree: ast.AST, *, imports: bool = False) -> set[str]:
    """Return every name that a file binds otherwise than by an import."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                found.add(name)
            case (
                ast.FunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.AsyncFunctionDef(name=name)
            ):
                found.add(name)
            case ast.ExceptHandler(name=str(name)):
                found.add(name)
            case ast.alias(name=name, asname=other) if imports:
                found.add(other or name.split(".")[0])
    return found


def names_renamed(text: str, renamed: dict[str, str], *, modules: bool) -> list[Change]:
    """Return the changes that rename local names; of modules, only where an attribute follows."""
    changes = []
    starts = offsets(text)
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    depth = 0
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        if token.type == tokenize.OP:
            depth += (token.string in "([{") - (token.string in ")]}")
        place = starts[token.start[0] - 1] + token.start[1]
        if token.type == tokenize.NAME and token.string in renamed:
            attribute = before is not None and before.string == "."
            first = before is None or before.string in "(," or before.string.isspace()
            keyword = depth > 0 and first and after is not None and after.string == "="
            if attribute or keyword:
                continue
            changes.append(Change(place, place + len(token.string), renamed[token.string]))
        elif token.type == tokenize.STRING and re.match(r"[rR]?[fF]", token.string):
            for old, new in renamed.items():
                tail = r"(?=\.)" if modules else r"(?=[(.\[!:},) ])"
                for part in re.finditer(r"\{[^{}]*\}", token.string):
                    for found in re.finditer(rf"(?<![\w.\"']){old}{tail}", part.group()):
                        at = place + part.start() + found.start()
                        changes.append(Change(at, at + len(old), new))
    return changes


@dataclass(frozen=True)
class Target:
    """Where a name that a file imports is to be found: a module, and its name there."""

    module: str
    name: str | None  # None: the module itself


def imports_rewritten(text: str, target: Resolver, name: str, house: House) -> list[Change]:
    """Return the changes of a file's imports of ours, and of what uses renamed modules."""
    tree = ast.parse(text)
    changes: list[Change] = []
    taken, stored = identifiers(tree), bound(tree)
    renamed: dict[str, str] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node.level or not node.module:
            continue
        by_module: dict[str, list[str]] = defaultdict(list)
        changed = False
        for alias in node.names:
            found = target(node.module, alias.name)
            local = alias.asname or alias.name
            kept = f" as {alias.asname}" if alias.asname else ""
            if found is None:
                by_module[node.module].append(alias.name + kept)
            elif found.name is not None:
                changed |= (found.module, found.name) != (node.module, alias.name)
                kept = kept or (f" as {local}" if local != found.name else "")
                by_module[found.module].append(found.name + kept)
            else:
                parent, _, last = found.module.rpartition(".")
                changed |= (parent, last) != (node.module, alias.name)
                if last != local and alias.asname is None:
                    better = f"{parent.rpartition('.')[2]}_{last}" if last in GENERIC else last
                    again = renamed.get(local) == better
                    if again or (better not in taken and local not in stored | set(renamed)):
                        taken.add(better)
                        renamed[local] = better
                        local = better
                by_module[parent].append(last + (f" as {local}" if last != local else ""))
        if changed:
            changes.append(import_change(text, node, by_module, name, house))
    for change in names_renamed(text, renamed, modules=True):
        if not any(c.start <= change.start < c.end for c in changes):
            changes.append(change)
    return changes


def import_change(
    text: str,
    node: ast.ImportFrom,
    by_module: dict[str, list[str]],
    name: str,
    house: House,
) -> Change:
    """Return what an import statement becomes; its comments stay where it goes to one module."""
    start, end = span(node, text, offsets(text))
    old = text[start:end]
    if len(by_module) == 1:
        (module, names), *_ = by_module.items()
        same = [a.name + (f" as {a.asname}" if a.asname else "") for a in node.names]
        if names == same:
            return Change(start, end, re.sub(r"^from\s+[\w.]+", f"from {module}", old))
    if "#" in old:
        house.warned.append(f"{name}:{node.lineno}: a comment within an import is lost: {old!r}")
    pad = " " * node.col_offset
    lines = [f"from {module} import ({', '.join(names)})" for module, names in by_module.items()]
    return Change(start, end, f"\n{pad}".join(lines))


class Resolver:
    """What an import of a name from a module becomes; None: it stays as it is."""

    def __init__(
        self,
        moved: dict[str, str],
        exported: dict[str, dict[str, Target]],
        there: set[str],
        shown: dict[str, set[str]],
    ) -> None:
        self.moved, self.exported, self.there, self.shown = moved, exported, there, shown

    def __call__(self, module: str, name: str) -> Target | None:
        """Return the module, and the name in it, that hold what was imported."""
        found = self.exported.get(module, {}).get(name)
        if found is not None:
            module_new = self.moved.get(found.module, found.module)
            return Target(module_new, found.name)
        whole = f"{module}.{name}"
        is_module = whole in self.there or whole in self.moved
        if is_module and name not in self.shown.get(module, ()):
            return Target(self.moved[whole], None) if whole in self.moved else None
        return Target(self.moved[module], name) if module in self.moved else None


# --- packages that only pass names on


KEPT_FACES: Final = {  # what docs show to users
    "sfumato",
    "sfumato.client",
    "sfumato.core.local",
    "sfumato.lab",
    "sfumato.lab.attacks",
    "sfumato.lab.audit",
    "sfumato.services.anonymity",
}


def faces(house: House) -> dict[str, dict[str, Target]]:
    """Return, of each package that only passes names on, where each of its names is defined."""
    found: dict[str, dict[str, Target]] = {}
    modules = house.modules()
    for module, path in modules.items():
        if not path.endswith("/__init__.py") or module in KEPT_FACES:
            continue
        tree = ast.parse((house.root / path).read_text("utf-8"))
        plain = (ast.Expr, ast.ImportFrom, ast.Assign)
        if not all(isinstance(node, plain) for node in tree.body):
            continue  # it does something: the face of a package that is loaded when it is used
        names = {}
        for node in tree.body:
            if (
                isinstance(node, ast.ImportFrom)
                and node.module
                and node.module.startswith("sfumato")
            ):
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    is_module = whole in modules
                    names[alias.asname or alias.name] = (
                        Target(whole, None) if is_module else Target(node.module, alias.name)
                    )
        if names:
            found[module] = names
    for names in found.values():  # what one face takes from another
        for name, target in list(names.items()):
            names[name] = passed_on(found, target)
    return found


def passed_on(found: dict[str, dict[str, Target]], target: Target) -> Target:
    """Return where a name is defined that one package may have from another."""
    while target.name is not None and target.name in found.get(target.module, {}):
        target = found[target.module][target.name]
    return target


def shown(house: House) -> dict[str, set[str]]:
    """Return, of each package, the names of its `__all__`: they hide modules of the same name."""
    found = {}
    for module, path in house.modules().items():
        if path.endswith("/__init__.py"):
            for node in ast.parse((house.root / path).read_text("utf-8")).body:
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                    found[module] = set(ast.literal_eval(node.value))
    return found


def dissolve(house: House) -> None:
    """Import every name from where it is defined, and leave such a package its docstring."""
    passed = faces(house)
    there = set(house.modules())
    target = Resolver({}, passed, there, shown(house))
    for name, text in house.texts():
        if name.endswith(".py") and "sfumato" in text:
            changes = imports_rewritten(text, target, name, house)
            if changes:
                house.write(name, applied(text, changes))
        elif name.endswith((".md", ".ipynb")):
            new = imports_in_prose(text, target)
            if new != text:
                house.write(name, new)
    for module in passed:
        path = house.modules()[module]
        tree = ast.parse((house.root / path).read_text("utf-8"))
        doc = ast.get_docstring(tree, clean=False) or module
        house.write(path, f'"""{doc}"""\n')


def imports_in_prose(text: str, target: Resolver) -> str:
    """Return a page with its one-line imports rewritten; others are left to a check."""

    def one(found: re.Match[str]) -> str:
        module, names = found.group(1), [n.strip() for n in found.group(2).split(",")]
        by_module: dict[str, list[str]] = defaultdict(list)
        for name in names:
            plain, _, other = name.partition(" as ")
            hit = target(module, plain)
            local = other or plain
            if hit is None:
                by_module[module].append(name)
            elif hit.name is None:
                parent, _, last = hit.module.rpartition(".")
                by_module[parent].append(last + (f" as {local}" if last != local else ""))
            else:
                by_module[hit.module].append(
                    hit.name + (f" as {local}" if hit.name != local else "")
                )
        glue = '\\n",\n    "' if found.group(0).endswith('\\n"') else "\n"
        lines = [f"from {m} import {', '.join(ns)}" for m, ns in by_module.items()]
        return glue.join(lines) if len(lines) > 1 else lines[0]

    return re.sub(r"from (sfumato[\w.]*) import ([\w, ]+\b)", one, text)


# --- taking definitions out of a module


def split(house: House) -> None:
    """Put definitions into modules of their own, at their new paths, and import them from there."""
    exported: dict[str, dict[str, Target]] = defaultdict(dict)
    for path, said, new, words in rows("splits.tsv"):
        if not (house.root / SRC / path).exists():
            continue
        names = set(said.split())
        text = (house.root / SRC / path).read_text("utf-8")
        tree, starts = ast.parse(text), offsets(text)
        taken = [node for node in tree.body if names & defines(node)]
        if not taken:
            continue
        pieces, changes = [], []
        for node in taken:
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            start, end = starts[first - 1], span(node, text, starts)[1]
            end = text.index("\n", end) + 1  # with a comment on the same line
            pieces.append(text[start:end])
            changes.append(Change(start, end, ""))
        imports = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
        imports = [n for n in imports if all(a.asname != a.name for a in n.names)]  # passed on
        head = "".join(text[slice(*span(n, text, starts))] + "\n" for n in imports)
        target = house.root / SRC / new
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f'"""{words}"""\n\n{head}\n\n' + "\n\n".join(pieces), "utf-8")
        module = dotted(SRC + new)
        here = span(imports[-1], text, starts)[1]
        again = ", ".join(f"{name}" for name in sorted(names))
        changes.append(Change(here, here, f"\nfrom {module} import {again}"))
        house.write(SRC + path, applied(text, changes))
        exported[dotted(SRC + path)] |= {name: Target(module, name) for name in names}
    packages(house)
    resolver = Resolver({}, exported, set(house.modules()), shown(house))
    for name, text in house.texts():
        if name.endswith(".py"):
            house.write(name, applied(text, imports_rewritten(text, resolver, name, house)))
        elif name.endswith((".md", ".ipynb")):
            house.write(name, imports_in_prose(text, resolver))


def defines(node: ast.stmt) -> set[str]:
    """Return the names that a statement of a module defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


# --- moving


@dataclass(frozen=True)
class Moves:
    """The rows that are to be moved now: paths, from the checkout's root."""

    paths: dict[str, str]

    @property
    def modules(self) -> dict[str, str]:
        """Return old dotted name -> new dotted name."""
        return {
            dotted(o): dotted(n)
            for o, n in self.paths.items()
            if o.startswith("src/") and o.endswith(".py")
        }


def chosen(house: House, only: tuple[str, ...]) -> Moves:
    """Return the moves of the folders that are asked for, as far as they are still to be done."""
    there = set(house.files())
    paths = {}
    for table, base in (("modules.tsv", SRC), ("tests.tsv", "tests/")):
        for old, new, *_ in rows(table):
            if new in ("-", old):
                continue
            wanted = "all" in only or any(new.startswith(f"{one.rstrip('/')}/") for one in only)
            if wanted and base + old in there:
                paths[base + old] = base + new
    for old in [p for p in paths if p.endswith("__init__.py")]:  # the last to leave a folder
        folder = old.removesuffix("__init__.py")
        rest = [f for f in there if f.startswith(folder) and f not in paths and f.endswith(".py")]
        if rest or paths[old] in there:
            del paths[old]
    return Moves(paths)


def move(house: House, only: tuple[str, ...], commit: bool) -> None:
    """Move the files, then rewrite what names them."""
    moves = chosen(house, only)
    if not moves.paths:
        print("nothing to move")
        return
    before = dict(house.texts())
    there, names = set(house.modules()), shown(house)
    for old, new in moves.paths.items():
        (house.root / new).parent.mkdir(parents=True, exist_ok=True)
        house.git("mv", old, new)
    wanted = runpy.run_path(str(house.root / TARGETS))["TARGETS"]
    say = ", ".join(only)
    if commit:
        house.git("commit", "-q", "--no-verify", "-m", f"house: move files of {say}")
    packages(house)
    rewriter = Rewriter(house, moves, there, names)
    for name, text in before.items():
        new = rewriter.rewritten(name, text)
        if new != text:
            house.write(moves.paths.get(name, name), new)
    rewrite_targets(house, moves, wanted)
    for name in [p for p in house.files() if p.endswith("/__init__.py")]:
        empty_package(house, name)
    print(f"{len(moves.paths)} files moved")
    house.done(commit, f"house: name files of {say} by their new paths")


def rewrite_targets(house: House, moves: Moves, wanted: Any) -> None:
    """Write the mutation bench's table anew: for each area, source file -> its tests."""
    by_area: dict[str, list[str]] = defaultdict(list)
    for one in wanted:
        path = moves.paths.get(one.path, one.path).removeprefix(SRC).removesuffix(".py")
        tests = [moves.paths.get(test, test).removeprefix("tests/") for test in one.tests]
        said = " ".join(test.removesuffix(".py").replace("test_", "", 1) for test in tests)
        by_area[one.area].append(f'"{path}": "{said}",')
    text = (house.root / TARGETS).read_text("utf-8")
    known = runpy.run_path(str(house.root / TARGETS)).items()
    areas = {value: key for key, value in known if key.isupper() and isinstance(value, str)}
    head = text[: text.index("def _targets")]
    body = "".join(
        f"*_targets({areas[area]}, {{{''.join(lines)}}})," for area, lines in by_area.items()
    )
    house.write(TARGETS, f"{head}{_READER}\nTARGETS = ({body})\n")


_READER: Final = '''def _targets(area: str, table: dict[str, str]) -> tuple[Target, ...]:
    """Return an area's targets: paths below src/sfumato, tests below tests/, without `test_`."""
    return tuple(
        Target(area, f"src/sfumato/{name}.py", tuple(map(_test, tests.split())))
        for name, tests in table.items()
    )


def _test(name: str) -> str:
    folder, _, file = name.rpartition("/")
    return f"tests/{folder}/test_{file}.py"

'''


def packages(house: House) -> None:
    """Give each folder of the package an `__init__.py`, with a docstring from the table."""
    said = dict(rows("packages.tsv"))
    folders = {
        posixpath.dirname(f) for f in house.files() if f.startswith(SRC) and f.endswith(".py")
    }
    for folder in sorted(folders | {posixpath.dirname(f) for f in folders}):
        if not folder.startswith(SRC.rstrip("/")):
            continue
        path = house.root / folder / "__init__.py"
        words = said.get(folder.removeprefix(SRC))
        if not path.exists():
            if words is None:
                house.warned.append(f"{folder}: no docstring in tools/moves/packages.tsv")
            path.write_text(f'"""{words or folder}"""\n', "utf-8")
        elif words is not None and folder != SRC.rstrip("/"):
            text = path.read_text("utf-8")
            if len(ast.parse(text).body) == 1:  # a docstring and nothing else
                path.write_text(f'"""{words}"""\n', "utf-8")


def empty_package(house: House, name: str) -> None:
    """Remove a package's `__init__.py` that nothing is left beside."""
    folder = house.root / posixpath.dirname(name)
    if name.startswith(SRC) and not any(
        p.suffix != ".pyc" for p in folder.rglob("*") if p.is_file() and p.name != "__init__.py"
    ):
        (house.root / name).unlink()


class Rewriter:
    """Rewrite texts for a set of moves."""

    def __init__(self, house: House, moves: Moves, there: set[str], names: dict[str, set[str]]):
        self.house, self.paths = house, moves.paths
        self.modules = moves.modules
        self.old_there = there
        self.new_there = set(house.modules())
        self.target = Resolver(self.modules, {}, there, names)
        self.short: dict[str, str] = {}  # a path as prose and tests say it -> the new one
        for old, new in moves.paths.items():
            base = SRC if old.startswith(SRC) else "tests/"
            self.short[old.removeprefix(base)] = new.removeprefix(base)
        self.helpers = {  # the tests' own modules, as they import each other
            dotted(old.removeprefix("tests/")): dotted(new.removeprefix("tests/"))
            for old, new in moves.paths.items()
            if old.startswith("tests/") and old.endswith(".py")
        }

    def rewritten(self, name: str, text: str) -> str:
        """Return a file's text as it is to be."""
        changes: list[Change] = []
        if name.endswith(".py"):
            changes = imports_rewritten(text, self.target, name, self.house)
            changes += self._helpers(name, text)
            changes += self._relative_names(name, text)
            changes += self._heights(name, text)
        taken = [(c.start, c.end) for c in changes]
        if name.endswith(".py"):
            tree, starts = ast.parse(text), offsets(text)
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sfumato"):
                    taken.append(span(node, text, starts))
        for change in (*self._dotted(name, text), *self._pathed(name, text)):
            if not any(a <= change.start < b or change.start <= a < change.end for a, b in taken):
                changes.append(change)
                taken.append((change.start, change.end))
        text = applied(text, changes)
        if name.endswith((".md", ".ipynb")):
            text = imports_in_prose(text, self.target)
        return text

    def _helpers(self, name: str, text: str) -> Iterator[Change]:
        """Imports of the tests' own modules: `from vaults import x`."""
        helpers = self.helpers
        if not helpers or not name.startswith(("tests/", "bench/", "tools/")):
            return
        yield from imports_rewritten(
            text, Resolver(helpers, {}, set(helpers), {}), name, self.house
        )
        tree, starts = ast.parse(text), offsets(text)
        taken, stored = identifiers(tree), bound(tree)
        renamed: dict[str, str] = {}
        spans = [span(n, text, starts) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import) and any(a.name in helpers for a in node.names):
                start, end = span(node, text, starts)
                lines = []
                for alias in node.names:
                    if alias.name not in helpers:
                        lines.append(
                            f"import {alias.name}" + (f" as {alias.asname}" if alias.asname else "")
                        )
                        continue
                    parent, _, last = helpers[alias.name].rpartition(".")
                    local = alias.asname or alias.name
                    if (
                        alias.asname is None
                        and last != local
                        and last not in taken
                        and local not in stored
                    ):
                        renamed[local] = last
                        lines.append(f"from {parent} import {last}")
                    else:
                        lines.append(
                            f"from {parent} import {last}"
                            + (f" as {local}" if local != last else "")
                        )
                yield Change(start, end, ("\n" + " " * node.col_offset).join(lines))
                spans.append((start, end))
        for change in names_renamed(text, renamed, modules=True):
            if not any(a <= change.start < b for a, b in spans):
                yield change

    def _relative_names(self, name: str, text: str) -> Iterator[Change]:
        """Names of modules that stand in a table as strings, without their package."""
        mine = [row for row in rows("dynamic.tsv") if row[0] == name.removeprefix(SRC)]
        if not mine:
            return
        starts, tree = offsets(text), ast.parse(text)
        keys = {id(key) for n in ast.walk(tree) if isinstance(n, ast.Dict) for key in n.keys}
        listed = [n for n in tree.body if "__all__" in defines(n)]
        keys |= {id(word) for n in listed for word in ast.walk(n)}
        for _, old, new, *only in mine:
            names = set(" ".join(only).split())
            for node in ast.walk(tree):
                if not isinstance(node, ast.Constant) or id(node) in keys:
                    continue
                dotted_new = self.modules.get(f"{old}.{node.value!s}")
                if dotted_new is not None and (not names or node.value in names):
                    house = self.house  # each is to be looked at: a word may mean something else
                    house.warned.append(f"{name}:{node.lineno}: {node.value!r} -> {dotted_new}")
                    at, end = span(node, text, starts)
                    yield Change(at, end, '"' + dotted_new.removeprefix(new + ".") + '"')
            for found in re.finditer(re.escape(old + ".{"), text):
                if old != new:
                    yield Change(found.start(), found.end(), new + ".{")

    def _heights(self, name: str, text: str) -> Iterator[Change]:
        """`Path(__file__).parents[N]`, where a file lies deeper or higher than before."""
        new = self.paths.get(name)
        if new is None or new.count("/") == name.count("/"):
            return
        step = new.count("/") - name.count("/")
        for found in HERE.finditer(text):
            height = int(found.group(2) or 0)
            if found.group(2) is None and posixpath.dirname(name) + "/" not in (SRC, "tests/"):
                beside = posixpath.dirname(name)
                self.house.warned.append(
                    f"{new}: look at what lies beside it: {found.group()} (was {beside})"
                )
                continue
            yield Change(found.start(), found.end(), f"{found.group(1)}.parents[{height + step}]")

    def _dotted(self, name: str, text: str) -> Iterator[Change]:
        for found in DOTTED.finditer(text):
            said = found.group()
            if any(said == m or said.startswith(m + ".") for m in self._new_only(said)):
                continue
            parts = said.split(".")
            for cut in range(len(parts), 1, -1):
                head = ".".join(parts[:cut])
                if head in self.modules:
                    rest = parts[cut:]
                    end = found.start() + len(head)
                    if rest and self._is_package(head) and f"{head}.{rest[0]}" in self.old_there:
                        break  # a module that stays
                    yield Change(found.start(), end, self.modules[head])
                    break

    def _new_only(self, said: str) -> list[str]:
        parts = said.split(".")
        heads = [".".join(parts[:n]) for n in range(2, len(parts) + 1)]
        return [
            h
            for h in heads
            if h in self.new_there and h not in self.old_there and not self._is_new_package(h)
        ]

    def _is_package(self, module: str) -> bool:
        return any(m.startswith(module + ".") for m in self.old_there)

    def _is_new_package(self, module: str) -> bool:
        return any(m.startswith(module + ".") for m in self.new_there)

    def _pathed(self, name: str, text: str) -> Iterator[Change]:
        folder = posixpath.dirname(name)
        for found in PATHED.finditer(text):
            said = found.group()
            new = self._path(name, folder, said)
            if new is not None and new != said:
                yield Change(found.start(), found.end(), new)
        if len(self.paths) > ALL:  # a folder is named anew when the whole of it has moved
            for old, new in rows("folders.tsv"):
                for found in re.finditer(rf"(?<![\w/.]){FOLDER}({old})(?![\w.-]|/[\w*])", text):
                    yield Change(found.start(1), found.end(1), new)

    def _path(self, name: str, folder: str, said: str) -> str | None:
        """Return what a path becomes that stands in a file; None: it names nothing that moves."""
        bare = said.lstrip("./")
        if said.startswith("../") or (
            name.endswith(".md") and "/" in said
        ):  # a link, or a path within the page's folder
            whole = posixpath.normpath(posixpath.join(folder, said))
            target = self.paths.get(whole)
            home = posixpath.dirname(self.paths.get(name, name))
            if target is not None or (
                said.startswith("../") and home != folder and (self.house.root / whole).exists()
            ):
                return posixpath.relpath(target or whole, home)
        for prefix in ("src/sfumato/", "sfumato/", "tests/", ""):
            rest = said.removeprefix(prefix) if prefix else said
            if prefix and rest == said:
                continue
            for base in (
                (SRC, "tests/")
                if prefix == ""
                else ((SRC,) if "sfumato" in prefix else ("tests/",))
            ):
                if base + rest in self.paths and (
                    "/" in said or self._may_be_bare(name, base + rest, folder)
                ):
                    new = self.paths[base + rest]
                    if "/" not in said and posixpath.dirname(new) == posixpath.dirname(
                        self.paths.get(name, name)
                    ):
                        return posixpath.basename(new)
                    return prefix + new.removeprefix(base)
        if "/" not in bare and folder + "/" + said in self.paths:  # a neighbour, by its bare name
            new = self.paths[f"{folder}/{said}"]
            home = posixpath.dirname(self.paths.get(name, name))
            if posixpath.dirname(new) == home:
                return posixpath.basename(new)
            if name.endswith(".py"):
                return new.removeprefix(SRC).removeprefix("tests/")
            return posixpath.relpath(new, home)
        return None

    def _may_be_bare(self, name: str, path: str, folder: str) -> bool:
        return name.startswith("tests/house/")


# --- by hand, and functions


def edit(house: House) -> None:
    """Make the replacements that no rule makes; each must be found."""
    table = tomllib.loads((TABLES / "edits.toml").read_text("utf-8"))
    for one in table.get("edit", []):
        path = house.root / one["file"]
        text = path.read_text("utf-8") if path.exists() else ""
        if one["old"] in text:
            path.write_text(text.replace(one["old"], one["new"]), "utf-8")
        elif one["new"] not in text:
            house.warned.append(f"{one['file']}: not found: {one['old'][:60]!r}")
    audited_files(house)
    for one in table.get("copy", []):
        target = house.root / one["to"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((TABLES / one["from"]).read_text("utf-8"), "utf-8")
    for one in table.get("remove", []):
        (house.root / one["file"]).unlink(missing_ok=True)


def audited_files(house: House) -> None:
    """Name files of mechanisms and aggregates by their new stems, in the auditor's tables."""
    stems = {}
    for old, new, *_ in rows("modules.tsv"):
        if old.startswith(("core/noise/", "core/local/", "plan/verbs/")):
            stems[old[:-3]] = posixpath.basename(new)[:-3]
    for name in ("shipped_mechanisms", "shipped_local_randomisers", "release_audit"):
        path = f"{SRC}lab/audit/{name}.py"
        text = (house.root / path).read_text("utf-8")
        folders = ("plan/verbs",) if name == "release_audit" else ("core/noise", "core/local")
        changes = []
        for one in stems_in(ast.parse(text)):
            said = [stems[key] for key in (f"{f}/{one.value!s}" for f in folders) if key in stems]
            if said:
                at, end = span(one, text, offsets(text))
                changes.append(Change(at, end, f'"{said[0]}"'))
        house.write(path, applied(text, changes))


def stems_in(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the constants of the auditor's tables that name a file by its stem."""
    for node in ast.walk(tree):
        named: Sequence[ast.expr | None] = []
        match node:
            case ast.Call(func=ast.Name(id="Shipped"), args=[_, ast.Tuple(elts=named), *_]):
                pass
            case ast.Call(func=ast.Name(id="Question"), args=[_, _, ast.Tuple(elts=named), *_]):
                pass
            case ast.Tuple(elts=[ast.Constant(), ast.Tuple(elts=named), _, *_]):
                pass
            case ast.AnnAssign(target=ast.Name(id="NO_MECHANISM"), value=ast.Dict(keys=named)):
                pass
        yield from (one for one in named if isinstance(one, ast.Constant))


def rename(house: House) -> None:
    """Rename functions and classes of modules, where they are defined and where they are used."""
    wanted: dict[str, dict[str, str]] = defaultdict(dict)
    for path, old, new, *_ in rows("symbols.tsv"):
        wanted[dotted(SRC + path)][old] = new
    modules = house.modules()
    for module, names in wanted.items():
        if module not in modules:
            house.warned.append(f"symbols.tsv: there is no {module}")
            continue
        tree = ast.parse((house.root / modules[module]).read_text("utf-8"))
        top = {
            n.name
            for n in tree.body
            if isinstance(n, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
        }
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                top |= {t.id for t in targets if isinstance(t, ast.Name)}
        for old in [o for o in names if o not in top]:
            if names[old] not in top:
                house.warned.append(f"symbols.tsv: {module} has no {old}")
            del names[old]
        for old in [o for o in names if o in assigned(tree)]:
            house.warned.append(f"{modules[module]}: {old} is a local name, too; rename by hand")
            del names[old]
        for old in [o for o, n in names.items() if n in identifiers(tree)]:
            house.warned.append(f"symbols.tsv: {module} has a {names[old]} already, so {old} stays")
            del names[old]
    for name, text in house.texts():
        if name.endswith(".py"):
            new = renamed_in(house, name, text, wanted)
            if new != text:
                house.write(name, new)


def assigned(tree: ast.Module) -> set[str]:
    """Return the names that a file assigns or has as arguments, below its top."""
    top = {id(node) for one in tree.body if not defines(one) for node in ast.walk(one)}
    heads = {id(n) for one in tree.body if isinstance(one, ast.Assign) for n in one.targets}
    nodes = [n for n in ast.walk(tree) if id(n) not in top | heads]
    found = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return found | {n.arg for n in nodes if isinstance(n, ast.arg)}


def quoted_types(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the strings that name a type: in annotations, in type expressions, in `__all__`."""
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        match node:
            case ast.arg(annotation=part) | ast.FunctionDef(returns=part):
                parts = [part]
            case ast.AnnAssign(annotation=part) | ast.Subscript(slice=part):
                parts = [part]
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=listed)):
                yield from (one for one in listed if isinstance(one, ast.Constant))
        for one in parts:
            for inner in ast.walk(one) if one is not None else ():
                if isinstance(inner, ast.Constant) and str(inner.value)[:1].isupper():
                    yield inner


def names_in_strings(
    tree: ast.Module, text: str, starts: list[int], wanted: dict[str, dict[str, str]]
) -> Iterator[Change]:
    """Yield changes of programs in strings, and of names that `setattr` is given as strings."""
    anywhere: defaultdict[str, set[str]] = defaultdict(set)
    for names in wanted.values():
        for old, new in names.items():
            anywhere[old].add(new)
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="setattr") | ast.Name(id="setattr"),
                args=[_, ast.Constant(value=str(old)) as said, *_],
            ) if len(anywhere.get(old, ())) == 1:
                yield Change(*span(said, text, starts), f'"{min(anywhere[old])}"')
            case ast.Constant(value=str(program)) if re.search(r"(from|import) .*sfumato", program):
                first, last = span(node, text, starts)
                for module, names in wanted.items():
                    for old in names if module in program else ():
                        for found in re.finditer(rf"(?<!\w){old}(?=[,(\s;]|$)", text[first:last]):
                            at = first + found.start()
                            yield Change(at, at + len(old), names[old])


def names_imported(
    node: ast.ImportFrom,
    names: dict[str, str],
    taken: tuple[set[str], set[str]],
    local: dict[str, str],
) -> list[str] | None:
    """Return what an import brings by new names, noting these in `local`; None: as before."""
    parts, is_same = [], True
    for alias in node.names:
        new = names.get(alias.name, alias.name)
        kept = alias.asname
        if new != alias.name and kept is None:
            if alias.name in taken[0] or new in taken[1]:
                kept = alias.name  # the name means something else here, too
            else:
                local[alias.name] = new
        is_same &= new == alias.name
        parts.append(f"{new} as {kept}" if kept not in (None, new) else new)
    return None if is_same else parts


def renamed_in(house: House, name: str, text: str, wanted: dict[str, dict[str, str]]) -> str:
    """Return one file with the functions renamed that it defines or imports."""
    if not name.startswith(SRC) and "sfumato" not in text:
        return text
    tree, starts = ast.parse(text), offsets(text)
    own = wanted.get(dotted(name), {}) if name.startswith(SRC) else {}
    local: dict[str, str] = {}
    changes: list[Change] = []
    imports = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    spans = [span(one, text, starts) for one in imports]
    taken = (bound(tree), identifiers(tree))
    local |= own
    aliases: dict[str, dict[str, str]] = {}
    for node in imports:
        if isinstance(node, ast.ImportFrom) and node.module:
            whole = {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
            aliases |= {name: wanted[one] for name, one in whole.items() if one in wanted}
            parts = names_imported(node, wanted.get(node.module, {}), taken, local)
            if parts is not None:
                start, end = span(node, text, starts)
                if "#" in text[start:end]:
                    house.warned.append(f"{name}:{node.lineno}: a comment in an import is lost")
                new = f"from {node.module} import ({', '.join(parts)})"
                changes.append(Change(start, end, new))
    for change in names_renamed(text, local, modules=False):
        if not any(a <= change.start < b for a, b in spans):
            changes.append(change)
    for one in quoted_types(tree):
        if one.value in local:
            at, end = span(one, text, starts)
            changes.append(Change(at, end, f'"{local[str(one.value)]}"'))
    changes += names_in_strings(tree, text, starts, wanted)
    for local_name, known in aliases.items():
        for old, better in known.items():
            for found in re.finditer(rf"(?<![\w.]){local_name}\.{old}\b", text):
                changes.append(Change(found.end() - len(old), found.end(), better))
    return applied(text, changes)


def check(house: House) -> None:
    """Say what of the tables does not fit the checkout: files without a row, names given twice."""
    listed = {SRC + old for old, *_ in rows("modules.tsv")} | {
        "tests/" + old for old, *_ in rows("tests.tsv")
    }
    new = defaultdict(list)
    for table, base in (("modules.tsv", SRC), ("tests.tsv", "tests/")):
        for old, to, *_ in rows(table):
            new[base + to].append(old)
    for path, olds in new.items():
        if len(olds) > 1 and not path.endswith("/-"):
            print(f"twice: {path} of {olds}")
    for name in house.files():
        stays = name in new or name.startswith(
            (SRC + "lab/data/", SRC + "__", SRC + "py.typed", "tests/data/")
        )
        if name.startswith((SRC, "tests/")) and name not in listed and not stays:
            print(f"no row: {name}")
    for old in sorted(listed):
        if not (house.root / old).exists() and os.environ.get("GONE"):
            print(f"gone: {old}")


if __name__ == "__main__":
    main()
