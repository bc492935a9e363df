"""Every small change of a source file that its tests should notice: a mutant each."""

from __future__ import annotations

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "//",
    ast.Pow: "*", ast.LShift: ">>", ast.RShift: "<<", ast.BitAnd: "|", ast.BitOr: "&",
    ast.BitXor: "&",
}  # fmt: skip
NAMES = {
    "min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor",
    "units_up": "units_down", "units_down": "units_up",
}  # fmt: skip
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutant:
    """One change of a file: what stands between two places becomes another text."""

    path: str
    function: str
    operator: str
    number: int  # among the changes of this kind and text in the function
    line: int
    start: int
    end: int
    before: str
    after: str
    of: str  # digest of the function's code: a verdict on other code says nothing of this one

    @property
    def key(self) -> str:
        """Return what names the mutant wherever its function stands in the file."""
        return f"{self.path}::{self.function} {self.operator} {self.number} {self.of}"

    def applied(self, source: bytes) -> bytes:
        """Return the source with the change."""
        return source[: self.start] + self.after.encode() + source[self.end :]


@dataclass(frozen=True)
class _Change:
    operator: str
    after: str
    start: int
    end: int


def mutants(path: str, source: bytes) -> list[Mutant]:
    """Return every mutant of the file, in the order of its text."""
    text, seen = _Text(source), Counter[tuple[str, str]]()
    found = []
    for function, node in _scopes(ast.parse(source)):
        digest = digest_of(node)
        for change in sorted(_changes(node, text), key=lambda c: (c.start, c.operator)):
            if not _parses(text, node, change):
                continue
            seen[function, change.operator] += 1
            number = seen[function, change.operator]
            before = source[change.start : change.end].decode()
            line = source.count(b"\n", 0, change.start) + 1
            found.append(
                Mutant(
                    path, function, change.operator, number, line,
                    change.start, change.end, before, change.after, digest,
                )
            )  # fmt: skip
    return found


def digest_of(node: ast.stmt) -> str:
    """Return the digest of a function's code; its docstring, comments and layout do not count."""
    if isinstance(node, Function) and ast.get_docstring(node) is not None:
        node = copy.copy(node)
        node.body = node.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.unparse(node).encode()).hexdigest()[:8]


class _Text:
    """A source, by the byte offsets of its nodes."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return where the node begins and ends."""
        start = self._lines[node.lineno - 1] + node.col_offset
        return start, self._lines[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)

    def of(self, node: ast.expr | ast.stmt) -> bytes:
        """Return the text of the node."""
        start, end = self.span(node)
        return self.source[start:end]


def _scopes(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Yield each function and each statement outside of one, by the name of what it is in."""

    def within(body: list[ast.stmt], name: str) -> Iterator[tuple[str, ast.stmt]]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from within(node.body, f"{name}{node.name}.")
            elif isinstance(node, Function):
                yield name + node.name, node
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                yield name + _assigned(node), node

    return within(tree.body, "")


def _assigned(node: ast.Assign | ast.AnnAssign) -> str:
    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
    return ast.unparse(target)


def _changes(node: ast.stmt, text: _Text) -> Iterator[_Change]:
    for part in _told(node):
        if isinstance(part, ast.expr):
            yield from _of_expression(part, text)
        if isinstance(part, ast.If | ast.IfExp):
            yield from _of_branch(part, text)
        if isinstance(part, ast.comprehension):
            for condition in part.ifs:
                yield _Change("filter off", "True", *text.span(condition))


def _told(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what decides or computes: no annotation, decorator, docstring or message."""
    skipped = {"annotation", "returns", "decorator_list"}
    if isinstance(node, ast.Raise) or _is_alias(node):
        return
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return  # lists of one length zip to the same without it
    yield node
    for field, value in ast.iter_fields(node):
        if field in skipped:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield from _told(child)


def _is_alias(node: ast.AST) -> bool:
    """Say whether a statement names a union of types."""
    return (
        isinstance(node, ast.Assign)
        and all(
            isinstance(part, ast.Name | ast.BinOp | ast.BitOr | ast.expr_context | ast.Subscript)
            for part in ast.walk(node.value)
        )
        and any(isinstance(part, ast.BitOr) for part in ast.walk(node.value))
    )


def _of_expression(node: ast.expr, text: _Text) -> Iterator[_Change]:
    start, end = text.span(node)
    match node:
        case ast.Compare(ops=ops, left=left, comparators=others):
            for op, one, other in zip(ops, [left, *others[:-1]], others, strict=True):
                yield _between("comparison", COMPARISONS[type(op)], one, other, text)
        case ast.BinOp(op=op, left=left, right=right) if type(op) in OPERATORS:
            yield _between("arithmetic", OPERATORS[type(op)], left, right, text)
        case ast.BoolOp(op=op, values=values):
            swapped = "or" if isinstance(op, ast.And) else "and"
            yield _between("and-or", swapped, values[0], values[1], text)
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            yield _Change("sign", text.of(operand).decode(), start, end)
        case ast.Constant(value=bool(value)):
            yield _Change("constant", str(not value), start, end)
        case ast.Constant(value=int(value)):
            yield _Change("constant", f"({value + 1})", start, end)
        case ast.Name(id=name) if name in NAMES:
            yield _Change("name", NAMES[name], start, end)
        case ast.Attribute(attr=name) if name in NAMES:
            yield _Change("name", NAMES[name], end - len(name), end)


def _between(operator: str, after: str, one: ast.expr, other: ast.expr, text: _Text) -> _Change:
    """Return the change of what stands between two operands; a bracket there keeps its place."""
    start, end = text.span(one)[1], text.span(other)[0]
    between = text.source[start:end].decode()
    closed, right = between.rpartition(")")[:2], between.find("(")
    opened = between[right:] if right >= 0 else ""
    return _Change(operator, f"{''.join(closed)} {after} {opened}", start, end)


def _of_branch(node: ast.If | ast.IfExp, text: _Text) -> Iterator[_Change]:
    for always in ("True", "False"):
        yield _Change(f"branch {always.lower()}", always, *text.span(node.test))


def _parses(text: _Text, node: ast.stmt, change: _Change) -> bool:
    start, end = text.span(node)
    source = text.source
    changed = source[start : change.start] + change.after.encode() + source[change.end : end]
    block = b"if True:\n" + b" " * node.col_offset if node.col_offset else b""
    try:
        ast.parse(block + changed)
    except SyntaxError:
        return False
    return True
