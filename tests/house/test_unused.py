"""What nothing uses is dead: a word in prose keeps nothing alive, and neither do tests alone.

It is about public functions, methods and classes, and about constants of modules.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = ("src/**/*.py", "bench/**/*.py", "tools/**/*.py")
# name -> who uses it all the same
DECLARES = ("verb", "open_verb", "command")
KEPT = {
    "seekable": "what zipfile asks a file of an archive",
    "Called": "a target of the lab: docs/tutorials/lab-attacks.md tells of it",
    "Forgetful": "a target of the lab that `probe` is to find wanting",
    "above_bounds": "what a report of the lab is judged by",
    "average_in_other_words": "an exhibit of the lab, as a function to call",
    "label_of_one": "an exhibit of the lab, as a function to call",
    "spread_of_errors": "an exhibit of the lab, as a function to call",
    "predicates_of_extremes": "an exhibit of the lab, as a function to call",
    "inference": "an exhibit of the lab: docs/tutorials/lab-attacks-models.md calls it",
    "linkability": "an exhibit of the lab, likewise",
    "singling_out": "an exhibit of the lab, likewise",
    "delta_at": "the third conversion of the accounting: what its tests judge the other two by",
    "epsilon_of_changes": "a price that docs/reference/local.md tells of",
    "permanent_answer": "what a device's answers are, of the library of dp/local",
    "prefix_oracle_of": "reads a heavy hitter's parameters, as its kin do, in dp/local",
    "mean_places": "what is estimated from rankings, of the library of dp/local",
    "mean_places_by_pairs": "what is estimated from rankings, of the library of dp/local",
    "add_workers": "a course's code calls it: docs/how-to/federated.md lists what it may call",
    "garbage_collect_data": "a course's code reads it",
    "id_at_location": "a course's code reads it",
    "objects_count": "a course's code calls it",
    "configure_train": "Flower calls it",
    "aggregate_train": "Flower calls it",
    "configure_evaluate": "Flower calls it",
    "aggregate_evaluate": "Flower calls it",
    "wait_closed": "uvicorn calls it",
    "format_commands": "click calls it",
    "create_module": "Python's import calls it",
    "exec_module": "Python's import calls it",
}

# what contributors fill in beside the code, and tests read
TABLES_OF_TESTS = {"NO_MECHANISM"}


def public(tree: ast.Module) -> Iterator[str]:
    """Yield the name of every public function, method and class; but not of what is declared."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and not node.name.startswith("_") and not is_handler(node):
            yield node.name


def is_handler(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Say whether a decorator declares the function as a verb's handler, or as a command."""
    called = (one.func for one in node.decorator_list if isinstance(one, ast.Call))
    return any(isinstance(one, ast.Attribute) and one.attr in DECLARES for one in called)


def constants(tree: ast.Module) -> Iterator[str]:
    """Yield the name of every constant of a module: what has an upper-case name."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        for target in targets:
            names = (one.id for one in ast.walk(target) if isinstance(one, ast.Name))
            yield from (name for name in names if name.isupper())


def used(code: str) -> Iterator[str]:
    """Yield each name that code reads, and each text that is a name: a lazy import has one.

    An import alone is no use, unless it gives another name: that one is read somewhere below.
    """
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                yield name
            case ast.Constant(value=str(text)) if text.isidentifier():
                yield text
            case ast.alias(name=name, asname=str()):
                yield name


def blocks(page: str) -> Iterator[str]:
    """Yield the blocks of Python of a page."""
    for found in re.findall(r"^( *```python\n.*?)^ *```", page, re.DOTALL | re.MULTILINE):
        block = textwrap.dedent(found.partition("\n")[2])
        try:
            ast.parse(block)
        except SyntaxError:  # it shows the shape of something
            continue
        yield block


def cells(notebook: str) -> Iterator[str]:
    """Yield the cells of Python of a notebook."""
    for cell in json.loads(notebook)["cells"]:
        if cell["cell_type"] == "code":
            lines = "".join(cell["source"]).splitlines()
            yield "\n".join(line for line in lines if not line.startswith(("%", "!")))


def texts(*globs: str) -> Iterator[str]:
    for glob in globs:
        yield from (path.read_text("utf-8") for path in ROOT.glob(glob))


def in_templates(page: str) -> Iterator[str]:
    """Yield the words of a template's expressions."""
    for expression in re.findall(r"{[{%](.*?)[%}]}", page, re.DOTALL):
        yield from re.findall(r"\w+", expression)


def all_used() -> set[str]:
    found = {name for code in texts(*CODE) for name in used(code)}
    for page in texts("docs/**/*.md", "README.md"):
        found.update(name for block in blocks(page) for name in used(block))
    for notebook in texts("examples/*.ipynb"):
        found.update(name for cell in cells(notebook) for name in used(cell))
    for page in texts("src/**/*.html"):
        found.update(in_templates(page))
    return found


def test_nothing_public_is_there_for_its_tests_alone() -> None:
    names = {name for code in texts("src/**/*.py") for name in public(ast.parse(code))}
    assert names - all_used() == set(KEPT)


def test_no_constant_is_there_without_a_reader() -> None:
    names = {name for code in texts("src/**/*.py") for name in constants(ast.parse(code))}
    assert names - all_used() == TABLES_OF_TESTS


def test_a_constant_that_nobody_reads_is_found() -> None:
    code = "READ: Final = 1\nSPARE: Final = 2\nONE, OTHER = READ, 3\n\nprint(ONE)\n"
    assert set(constants(ast.parse(code))) - set(used(code)) == {"SPARE", "OTHER"}


def test_a_name_that_nobody_uses_is_found() -> None:
    code = "class Used:\n    def spare(self) -> None:\n        'Say what spare says.'\n\nUsed()\n"
    assert set(public(ast.parse(code))) - set(used(code)) == {"spare"}
