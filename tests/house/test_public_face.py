"""What people meet first: the public names, and the arguments and docstrings of what they call."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato import client, lab
from sfumato.app import federation, vault
from sfumato.client import remote_vault
from sfumato.dp.refusal import CODES
from sfumato.features.airlock import client as airlock_client
from sfumato.features.anonymization import Anonymity
from sfumato.features.regression import fit_result
from sfumato.features.surveys import client as surveys_client
from sfumato.features.surveys import device_files, respondent_client
from sfumato.features.synthetic.client import Twin
from sfumato.lab import attack, audit
from sfumato.wire.version import VERSION

ROOT = Path(__file__).parents[2]
# whose keywords are names that the caller chooses
NAMES_OF_THE_CALLER = {"where", "group_by", "each_person", "formula", "report"}
NOT_AWAITED = {"airlock", "has_receipt"}  # what the asynchronous client does not have
# what raises no refusal and no other error of ours; everything else has a "Raises" section
NEVER_REFUSES = {
    "AnswerValues.frame", "AnswerValues.of", "AnswerValues.output_of_column",
    "AsyncDataSet.builder", "AsyncVault.close", "Builder.builder", "Column.exp", "Column.floor",
    "Column.is_null", "Column.ln", "Column.round", "Column.sqrt", "Column.starts_with",
    "Column.total", "DataSet.builder", "Device.new", "FederatedVault.spent", "OpenVault.close",
    "RemoteVault.close", "Steps.at_most", "Steps.limit", "Steps.running_count", "Steps.show",
    "TableSteps.of_table", "anonymity", "attack_private_mean", "col", "rows_or_code",
}  # fmt: skip
CLASSES: tuple[type, ...] = (
    vault.OpenVault, remote_vault.RemoteVault, client.AsyncVault, client.AsyncDataSet,
    federation.FederatedVault, client.DataSet, client.Builder, client.Answer, client.Column,
    airlock_client.DataSetAirlock, airlock_client.Files, Twin, fit_result.Fit, surveys_client.LocalSurvey, device_files.KeptDevice,  # noqa: E501
    respondent_client.Device, Anonymity, attack.Attack,
)  # fmt: skip
FUNCTIONS: tuple[Callable[..., Any], ...] = (
    *(getattr(sfumato, name) for name in sfumato.__all__ if name not in ("Refused", "__version__")),
    *(thing for name in lab.__all__ if inspect.isfunction(thing := getattr(lab, name))),
    *(thing for name in audit.__all__ if inspect.isfunction(thing := getattr(audit, name))),
    federation.new_agreement, federation.new_convener, surveys_client.invite, surveys_client.reports,  # noqa: E501
    surveys_client.two_coins,
)  # fmt: skip


def methods() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield what the public classes and functions let people call, by name."""
    for kind in CLASSES:
        for name in dir(kind):
            member = inspect.getattr_static(kind, name)
            member = getattr(member, "__func__", member)
            if not name.startswith("_") and inspect.isfunction(member):
                yield f"{kind.__name__}.{name}", member
    for function in FUNCTIONS:
        yield f"{function.__module__}.{function.__name__}", function


METHODS = dict(methods())


def undocumented(function: Callable[..., Any]) -> list[str]:
    """Return the arguments that a docstring does not name, and "Returns" where that is not told."""
    text = inspect.getdoc(function) or ""
    told = re.search(r"^Args:\n((?:^(?: .*)?\n?)+)", text, re.M)
    lines = told.group(1) if told else ""
    named = re.findall(r"^    (?:\*{0,2})(\w+): \S", lines, re.M)
    signature = inspect.signature(function)
    taken = [name for name in signature.parameters if name not in {"self", "cls"}]
    missing = [name for name in taken if name not in named]
    missing += [f"{name} (no argument)" for name in named if name not in signature.parameters]
    is_told = text.startswith(("Return", "Yield")) or re.search(r"^(Returns|Yields):\n", text, re.M)
    if signature.return_annotation not in (None, "None", "NoReturn") and not is_told:
        missing.append("Returns")
    return missing


def raised(function: Callable[..., Any]) -> str:
    """Return what the "Raises" section of a docstring tells, or "" without one."""
    text = inspect.getdoc(function) or ""
    told = re.search(r"^Raises:\n((?:^    .*\n?)+)", text, re.M)
    return told.group(1) if told else ""


def test_a_public_method_documents_each_argument() -> None:
    assert len(METHODS) > 150
    found = {name: undocumented(method) for name, method in METHODS.items()}
    assert {name: missing for name, missing in found.items() if missing} == {}


def test_an_argument_without_a_word_is_found() -> None:
    def forgotten(told: int, untold: int) -> int:
        """Add them.

        Args:
            told: The one.
            gone: An argument that there was.
        """
        return told + untold

    assert undocumented(forgotten) == ["untold", "gone (no argument)", "Returns"]


def test_a_public_method_says_what_it_refuses_unless_it_never_does() -> None:
    untold = {method.__qualname__ for method in METHODS.values() if not raised(method)}
    assert untold == NEVER_REFUSES


def test_the_codes_that_a_public_method_names_exist() -> None:
    named = {
        (name, code)
        for name, method in METHODS.items()
        for code in re.findall(r"`([a-z]+(?:-[a-z]+)+)`", raised(method))
    }
    assert len(named) > 300
    assert {(name, code) for name, code in named if code not in CODES} == set()


def test_a_docstring_without_its_refusals_is_found() -> None:
    def told() -> None:
        """Refuse.

        Raises:
            Refused: `not-allowed`, always.
        """

    def untold() -> None:
        """Refuse; the word Raises: in a sentence is no section.

        Raises:
        """

    assert raised(told) == "    Refused: `not-allowed`, always."
    assert raised(untold) == ""


def test_a_public_method_names_its_keywords() -> None:
    found = {
        name.rpartition(".")[2]
        for name, method in METHODS.items()
        for one in inspect.signature(method).parameters.values()
        if one.kind is one.VAR_KEYWORD
    }
    assert found == NAMES_OF_THE_CALLER


def test_the_asynchronous_client_has_the_same_methods() -> None:
    pairs = (client.DataSet, client.AsyncDataSet), (client.Vault, client.AsyncVault)
    for one, other in pairs:
        names = {name for name in dir(one) if not name.startswith("_")} - NOT_AWAITED
        for name in names:
            here, there = (inspect.getattr_static(kind, name) for kind in (one, other))
            if inspect.isfunction(here):
                assert inspect.signature(there) == inspect.signature(here)
                assert inspect.getdoc(there) == inspect.getdoc(here)


def test_the_root_shows_its_public_names_alone() -> None:
    assert dir(sfumato) == sorted(sfumato.__all__)
    assert all(getattr(sfumato, name) is not None for name in sfumato.__all__)
    with pytest.raises(AttributeError, match="no attribute 'opn'"):
        _ = sfumato.opn


def test_the_version_is_the_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert sfumato.__version__ == VERSION == project["version"]


def test_importing_the_root_imports_no_more_than_the_refusal() -> None:
    code = "import sys, sfumato; print(*sorted(m for m in sys.modules if 'sfumato' in m))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [
        "sfumato",
        "sfumato.dp",
        "sfumato.dp.refusal",
        "sfumato.system",
        "sfumato.system.old_import_paths",
    ]


def test_the_package_says_that_it_is_typed() -> None:
    place = Path(str(importlib.import_module("sfumato").__file__)).parent
    assert (place / "py.typed").is_file()
