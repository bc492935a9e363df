"""What a page says to do next can be done on a page: no command of a shell, no option of one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sfumato
from sfumato.dp.refusal import Refused
from sfumato.server.console.refusal_text import for_pages, in_pages

ROOT = Path(sfumato.__file__).parent
ROOMS = ("dp", "vault", "query", "release", "engines", "features", "storage", "wire", "server")
OF_A_SHELL = re.compile(r"(?:^|[ `(])--[a-z]{2}|`sfumato |sfumato [a-z]+ [-{]|in a shell")
NOT_ON_PAGES = (  # verbs that no page has: programs, k-anonymity, models, sites, the vault's engine
    "dp/anonymity/", "dp/learning/", "sandbox/program_environment.py", "features/federated/agreement.py", "dp/local/",  # noqa: E501
    "features/anonymization/", "features/federated/", "features/regression/", "features/surveys/device",  # noqa: E501
    "features/surveys/questionnaire.py", "features/surveys/respondent_client.py", "server/http/",
    "features/federated/", "features/streams/",
    "storage/vault_key.py",
)  # fmt: skip


def said(node: ast.expr) -> Iterator[str]:
    """Yield each text that the expression may be, with X for what is put into it."""
    match node:
        case ast.Constant(value=str() as text):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "X" for part in parts
            )
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from (a + b for a in [*said(left)] or ["X"] for b in [*said(right)] or ["X"])
        case ast.IfExp(body=body, orelse=other):
            yield from (*said(body), *said(other))


def _parts(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Call(args=args, keywords=keywords):
            return [*args, *(keyword.value for keyword in keywords)]
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
            return parts
        case ast.Assign(value=ast.expr() as value) | ast.Return(value=ast.expr() as value):
            return [value]
        case ast.AnnAssign(value=ast.expr() as value):
            return [value]
        case _:
            return []


def texts() -> Iterator[tuple[str, str]]:
    """Yield every text that a refusal may have, of the rooms that pages talk to."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name.startswith(NOT_ON_PAGES) or name.endswith(("refusal_text.py", "cli.py")):
                continue
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                yield from ((name, text) for part in _parts(node) for text in said(part))


FOUND = sorted({(name, text) for name, text in texts() if OF_A_SHELL.search(text)})


def test_there_are_refusals_that_name_the_shell() -> None:
    assert len(FOUND) > 15


@pytest.mark.parametrize(("name", "text"), FOUND, ids=[text[:60] for _, text in FOUND])
def test_no_page_names_a_command_or_an_option(name: str, text: str) -> None:
    assert not OF_A_SHELL.search(in_pages(text)), name


def test_a_refusal_keeps_its_code_its_cause_and_its_facts() -> None:
    refused = Refused("keys-needed", "Why.", "Give --delta 1e-6, or none.", column="age")
    shown = for_pages(refused)
    assert (shown.code, shown.cause, shown.facts) == ("keys-needed", "Why.", {"column": "age"})
    assert shown.next_step == "Give δ 1e-6 under More terms, or none."


def test_a_sentence_without_a_command_is_left_as_it_is() -> None:
    assert in_pages("Ask for COUNT, a -- b or x--y.") == "Ask for COUNT, a -- b or x--y."
