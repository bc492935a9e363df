"""Merge modules that were split by length: the third column of tools/moves/modules.tsv.

`python -m tools.merge_modules [--root DIR] [--commit]` runs after `tools.move_modules`. A module
that cannot be merged by rule (both define a name, or one uses the other as a module) is left, and
the reason is printed.
"""

from __future__ import annotations

import argparse
import ast
from pathlib import Path

from tools.move_modules import (
    SRC,
    Change,
    House,
    Moves,
    Rewriter,
    applied,
    defines,
    dotted,
    offsets,
    rows,
    shown,
    span,
)

Imports = list[ast.Import | ast.ImportFrom]


def main() -> None:
    """Merge what can be merged by rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--commit", action="store_true")
    asked = parser.parse_args()
    house = House(asked.root.resolve())
    there, names = set(house.modules()), shown(house)
    before = dict(house.texts())
    done: dict[str, str] = {}
    imported = {dotted(name): top_imports(text, there) for name, text in before.items()}
    texts = {name: text for name, text in before.items() if name.startswith(SRC)}
    for _, new, into, *_ in rows("modules.tsv"):
        part, whole = SRC + new, SRC + into
        if not into or part not in texts or whole not in texts:
            continue
        joined = together(imported, dotted(part), dotted(whole))
        why = obstacle(texts[part], texts[whole], part, whole, before)
        why = why or ("that would close a circle" if is_circle(joined, dotted(whole)) else None)
        if why:
            house.warned.append(f"{new} stays beside {into}: {why}")
            continue
        imported = joined
        texts[whole] = merged(texts.pop(part), texts[whole], part, whole)
        done[part] = whole
    rewriter = Rewriter(house, Moves(done), there, names)
    for name, text in before.items():
        if name in done:
            (house.root / name).unlink()
            continue
        old = texts.get(name, text)
        new = rewriter.rewritten(name, old)
        if new != text:
            house.write(name, new)
    print(f"{len(done)} modules merged")
    house.done(asked.commit, "house: merge modules that were split by length")


def top_imports(text: str, there: set[str]) -> set[str]:
    """Return the modules of ours that a module imports when it is loaded."""
    if "sfumato" not in text or not text.startswith('"""'):
        return set()
    try:
        brought = brought_by(ast.parse(text))
    except SyntaxError:  # a page
        return set()
    return {where if where in there else where.rpartition(".")[0] for _, where in brought} & there


def together(imported: dict[str, set[str]], part: str, whole: str) -> dict[str, set[str]]:
    """Return what modules import once one of them is a part of another."""
    found = {}
    for name, others in imported.items():
        if name != part:
            found[name] = {whole if one == part else one for one in others} - {name}
    found[whole] = (imported[part] | imported[whole]) - {part, whole}
    return found


def is_circle(imported: dict[str, set[str]], start: str) -> bool:
    """Say whether a module imports itself, by way of others."""
    seen: set[str] = set()
    left = list(imported[start])
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += imported.get(name, ())
    return start in seen


def obstacle(part: str, whole: str, name: str, into: str, all_texts: dict[str, str]) -> str | None:
    """Return why a module cannot be merged into another by rule; None: it can."""
    one, other = ast.parse(part), ast.parse(whole)
    both = names_of(one) & names_of(other) - same_names(one, other)
    if both:
        return f"both define {', '.join(sorted(both)[:4])}"
    brought = {a.asname or a.name: where for a, where in brought_by(one)}
    mine = {a.asname or a.name: where for a, where in brought_by(other)}
    unlike = {x for x in brought.keys() & mine.keys() if brought[x] != mine[x]}
    unlike |= brought.keys() & names_of(other) - from_module(one, dotted(into))
    unlike |= mine.keys() & names_of(one) - from_module(other, dotted(name))
    if unlike:
        return f"a name means two things: {', '.join(sorted(unlike)[:4])}"
    for tree, module in ((one, dotted(into)), (other, dotted(name))):
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                if any(f"{node.module}.{a.name}" == module for a in node.names):
                    return "one uses the other as a module"
                if node.module == module and any(a.asname for a in node.names):
                    return "one gives the other's names names of its own"
    if any(isinstance(node, ast.If) for node in one.body):
        return "it has imports for types alone"
    stem = dotted(name).rpartition(".")[2]
    if any(f"import {stem}\n" in text for path, text in all_texts.items() if path != name):
        return "it is used as a module"
    return None


def same_names(one: ast.Module, other: ast.Module) -> set[str]:
    """Return the names that both modules define in the very same words."""
    found: set[str] = set()
    said = {ast.dump(node) for node in other.body}
    for node in one.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and ast.dump(node) in said:
            found |= defines(node)
    return found


def names_of(tree: ast.Module) -> set[str]:
    """Return the names that a module defines."""
    return {name for node in tree.body for name in defines(node)} - {"__all__"}


def brought_by(tree: ast.Module) -> list[tuple[ast.alias, str]]:
    """Return what a module imports at its top, and from where."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            found += [(alias, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(alias, f"{node.module}.{alias.name}") for alias in node.names]
    return found


def from_module(tree: ast.Module, module: str) -> set[str]:
    """Return the names that a module imports from another."""
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == module]
    return {alias.name for node in nodes for alias in node.names}


def merged(part: str, whole: str, name: str, into: str) -> str:
    """Return the text of the module that holds both; the part first, unless it needs the other."""
    words = (ast.get_docstring(ast.parse(part)) or "").split("\n")[0]
    needs = bool(from_module(ast.parse(part), dotted(into)))
    doc, head, body = taken_apart(whole, dotted(name), set())
    again = same_names(ast.parse(part), ast.parse(whole))
    _, more, inner = taken_apart(part, dotted(into), again if needs else set())
    body = body if needs else taken_apart(whole, dotted(name), again)[2]
    inner = f"# --- {words.rstrip('.')}\n\n\n{inner.strip()}"
    pieces = (body.strip(), inner) if needs else (inner, body.strip())
    return f"{doc}\n\n{head}{more}\n\n" + "\n\n\n".join(pieces) + "\n"


def taken_apart(text: str, without: str, again: set[str]) -> tuple[str, str, str]:
    """Return docstring, imports and the rest, without what another module has."""
    tree, starts = ast.parse(text), offsets(text)
    first = tree.body[0]
    tops: Imports = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    dropped = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == without]
    kept = [n for n in tops if n not in dropped]
    lines = {id(n): (span(n, text, starts)[0], starts[n.end_lineno or 0]) for n in tops}
    head = "".join(text[slice(*lines[id(n)])] for n in kept)  # with a comment on its line
    places = {span(first, text, starts), *lines.values()}
    cuts = [Change(*place, "") for place in places]
    inside = {span(n, text, starts) for n in dropped if n not in tops}
    cuts += [Change(*place, "pass") for place in inside]
    cuts += [Change(*span(n, text, starts), "") for n in tree.body if again & defines(n)]
    return text[slice(*span(first, text, starts))], head, applied(text, cuts)


if __name__ == "__main__":
    main()
