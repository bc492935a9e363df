"""Compare the string constants of two checkouts: what a move may change are names of modules.

`python -m tools.same_strings OLD NEW` prints each text that only one of them has. Stored names
(events, verbs, keys, codes) must not be among them; docstrings are left out.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path


def strings(root: Path) -> Counter[str]:
    """Count the string constants of the package, without docstrings and `__all__`."""
    found: Counter[str] = Counter()
    for path in (root / "src" / "sfumato").rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        left = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                left |= {id(inner) for inner in ast.walk(node)}
        for one in ast.walk(tree):
            if isinstance(one, ast.Constant) and id(one) not in left:
                found.update([one.value] if isinstance(one.value, str) else [])
    return found


def main() -> None:
    """Print the differences."""
    old, new = (strings(Path(one)) for one in sys.argv[1:3])
    for sign, more in (("-", old - new), ("+", new - old)):
        for text, count in sorted(more.items()):
            print(sign, count, repr(text)[:140])


if __name__ == "__main__":
    main()
